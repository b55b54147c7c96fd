"""Paths into a resource, as `--set` and a campaign's axes write them: `load.repeats`, `drafters[0].args`.

A row of a list goes by its number, or by a field that tells it from the others: `workloads[name=chat]`. A key that
holds dots or slashes stands in brackets and quotes: `placement.nodeSelector["nvidia.com/gpu.product"]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_STEP = re.compile(r'\["([^"]*)"\]|\[([^\[\]]*)\]|([^.\[\]]+)')


def steps_of(path: str) -> tuple[str, ...]:
    """The steps of a path, from the outside inwards."""
    return tuple(next((step for step in found if step), "") for found in _STEP.findall(path))


def path_of(steps: Sequence[str]) -> str:
    """The steps as one path, so that two spellings of the same steps become equal."""
    return "".join(_spelt(step) for step in steps).removeprefix(".")


def _spelt(step: str) -> str:
    if "." in step or "/" in step:
        return f'["{step}"]'
    return f"[{step}]" if step.isdecimal() or "=" in step else f".{step}"


def replaced(node: Any, steps: Sequence[str], value: Any) -> Any:
    """The data with the value put in, missing mappings made on the way; the given data stay as they are.

    Raises LookupError, saying why, where a list has no such row or where the way leads through what has no parts.
    """
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(node, list):
        row = _row(node, step)
        return [replaced(item, rest, value) if at == row else item for at, item in enumerate(node)]
    branch = node if isinstance(node, dict) else {}
    return {**branch, step: replaced(branch.get(step, {}), rest, value)}


def found(node: Any, steps: Sequence[str]) -> Any:
    """What lies there. Raises LookupError where nothing does."""
    for step in steps:
        node = node[_row(node, step)] if isinstance(node, list) else _field(node, step)
    return node


def numbered(node: Any, steps: Sequence[str]) -> tuple[str, ...]:
    """The same way with every row by its number, as far as the data go: two ways to one place become equal."""
    told: list[str] = []
    for at, step in enumerate(steps):
        try:
            row = str(_row(node, step)) if isinstance(node, list) else step
            node = found(node, (step,))
        except LookupError:
            return (*told, *steps[at:])
        told.append(row)
    return tuple(told)


def _field(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node[step]
    raise LookupError(f"{step!r} is no field of {node!r}")


def _row(rows: list[Any], step: str) -> int:
    """Where the row is. Raises LookupError."""
    field, named, value = step.partition("=")
    if named:
        matching = [at for at, row in enumerate(rows) if isinstance(row, dict) and str(row.get(field)) == value]
        if len(matching) == 1:
            return matching[0]
        raise LookupError(f"{len(matching)} rows have {field} {value!r}, where one is meant: {_told(rows)}")
    row = int(step) if step.isdecimal() else -1
    if not 0 <= row < len(rows):
        raise LookupError(f"{step!r} is no row of a list, whose rows go by number: {_told(rows)}")
    return row


def _told(rows: list[Any]) -> str:
    names = [row.get("name") if isinstance(row, dict) else row for row in rows]
    told = (str(index) if name is None else f"{index} ({name})" for index, name in enumerate(names))
    return ", ".join(told) or "it has none"
