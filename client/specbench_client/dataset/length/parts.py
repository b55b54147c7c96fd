"""Which part of a row is context and which is instruction: told by columns, or by markers in the prompt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_client.dataset.length.fit import DoesNotFit, Parts
from specbench_client.errors import BadInput

TEMPLATE = "{context}\n\n{instruction}"
COLUMNS = ("context", "instruction")


@dataclass(frozen=True, slots=True)
class Told:
    """How rows tell their context. `marks`: what stands before and after it in the prompt; both stay in it.

    Without marks, rows have the columns `context` and `instruction`, joined by `template`.
    """

    template: str = TEMPLATE
    marks: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if any(self.template.count(f"{{{name}}}") != 1 for name in COLUMNS):
            raise BadInput(f"--template {self.template!r}: it must hold {{context}} and {{instruction}}, each once")
        if self.marks and not all(self.marks):
            raise BadInput("--marks: give two texts that are not empty, such as --marks '<context>' '</context>'")


def parts_of(columns: Mapping[str, Any], told: Told) -> Parts:
    """The row's parts. Raises DoesNotFit, with what the row needs, where they cannot be told."""
    if told.marks:
        return _between(whole_text(columns, told), told.marks)
    context, instruction = (_text(columns, name) for name in COLUMNS)
    before, _, after = told.template.partition("{context}")
    before, after = (side.replace("{instruction}", instruction) for side in (before, after))
    return Parts(before, context, after)


def whole_text(columns: Mapping[str, Any], told: Told) -> str:
    """The prompt as one text. Raises DoesNotFit for several turns, messages and token ids."""
    turns = columns.get("turns")
    if isinstance(columns.get("prompt"), str):
        return str(columns["prompt"])
    if isinstance(turns, list) and len(turns) == 1 and isinstance(turns[0], str):
        return turns[0]
    if all(isinstance(columns.get(name), str) for name in COLUMNS):
        parts = parts_of(columns, Told(told.template))
        return parts.before + parts.context + parts.after
    raise DoesNotFit("it needs a prompt, one turn, or context and instruction: several turns have no one length")


def _text(columns: Mapping[str, Any], name: str) -> str:
    value = columns.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DoesNotFit(
            f"its column {name} is {'missing' if value is None else 'no text'}: give context and instruction, "
            "or --marks BEGIN END around the context within the prompt"
        )
    return value


def _between(text: str, marks: tuple[str, str]) -> Parts:
    begin, end = text.find(marks[0]), text.rfind(marks[1])
    start = begin + len(marks[0])
    if begin < 0 or end < start:
        raise DoesNotFit(f"its prompt has no {marks[0]!r} with a {marks[1]!r} after it")
    return Parts(text[:start], text[start:end], text[end:])
