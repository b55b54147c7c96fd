"""The shape of a source: what its rows hold, and how one of them becomes a prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row

Columns = dict[str, Any]
Convert = Callable[[Row, Selection], Columns]


@dataclass(frozen=True)
class Hub:
    """Where the Hugging Face hub has it."""

    name: str
    """OWNER/NAME."""
    split: str
    config: str | None = None
    revision: str | None = None
    """A commit; None: it could not be asked where this table was written, and the newest is read."""
    file: str | None = None
    """A file of the repository that is read as it lies there: no builder of the hub reads it right."""


@dataclass(frozen=True)
class Loader:
    """One source. `convert` is pure: a row as it lies there → our columns (id, category, prompt, turns or messages)."""

    what: str
    """One phrase for the docs."""
    columns: tuple[str, ...]
    """What a row must hold."""
    template: str
    """How a prompt is made of them, in words."""
    licence: str
    convert: Convert
    hub: Callable[[str | None], Hub] | None = None
    """By the config that counts; None: no hub has it."""
    gated: bool = False
    """Whether the hub wants a login and a click first."""
    note: str = ""
    files: Callable[[str | None], tuple[str, ...]] | None = None
    """Names below a folder that `uri` may name, by the config that counts; the first that is there is read."""
    split: Callable[[Row], list[Row]] | None = None
    """Of a row that holds several prompts: each as a row. Raises BadRow. None: a row is a prompt."""
    ids: bool = True
    """Whether its rows tell themselves apart; else they are told by their place."""


def always(hub: Hub) -> Callable[[str | None], Hub]:
    """A source that the hub has in one place, whatever the config."""
    return lambda _: hub


def quoted(template: str) -> str:
    """A template in one line of a table."""
    return f"`{template}`".replace("\n", "⏎")


class LeftOut(SpecbenchError):
    """The source's own rule leaves this row out; the message says which, in a few words, the same for all of a kind."""


class NoText(SpecbenchError):
    """The row has no text that could be sent; the message says why, in a few words, the same for all of a kind."""


def text_at(row: Row, name: str) -> str:
    """A text column as it lies there. Raises BadRow."""
    value = row.columns.get(name)
    if value is None:
        there = ", ".join(known for known, found in row.columns.items() if found is not None)
        raise BadRow(f"the column {name} is missing; there are: {there or 'none'}")
    if not isinstance(value, str):
        raise BadRow(f"{name} is a {type(value).__name__}: give a text")
    if not value.strip():
        raise BadRow(f"{name} is empty: leave the row out, or fill it")
    return value


def label_at(row: Row, *names: str) -> str | None:
    """The first of these columns that has a value, as the text of a label."""
    found = next((row.columns[name] for name in names if row.columns.get(name) is not None), None)
    return None if found is None else str(found)


def key_at(row: Row, *names: str) -> str | int:
    """What tells the row apart: the first of these columns that has a value, else its place."""
    for name in names:
        value = row.columns.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return value
    return row.place.replace(" ", "-")


def asked(prompt: str, row: Row, *keys: str, category: str | None = None, **facts: Any) -> Columns:
    """Our columns of a prompt of one turn."""
    return {"id": key_at(row, *keys), "category": category, "prompt": prompt, **facts}
