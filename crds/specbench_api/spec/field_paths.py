"""Paths of fields in a resource, as `--set` and a campaign's axes write them: `load.repeats`, `drafters[0].args`.

A list row is selected by its index or by a field that identifies it: `workloads[name=chat]`. A key with dots or slashes
is written in brackets and quotes: `placement.nodeSelector["nvidia.com/gpu.product"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_STEP = re.compile(r'\["([^"]*)"\]|\[([^\[\]]*)\]|([^.\[\]]+)')


def steps_of(path: str) -> tuple[str, ...]:
    """Return the components of a path, outermost first."""
    return tuple(next((step for step in found if step), "") for found in _STEP.findall(path))


def path_of(steps: Sequence[str]) -> str:
    """Join components into the canonical spelling of a path, so that equal paths compare equal."""
    return "".join(_formatted(step) for step in steps).removeprefix(".")


def _formatted(step: str) -> str:
    if "." in step or "/" in step:
        return f'["{step}"]'
    return f"[{step}]" if step.isdecimal() or "=" in step else f".{step}"


def replaced(node: Any, steps: Sequence[str], value: Any) -> Any:
    """Return a copy of the data with the value at the path, creating missing mappings. The input is not modified.

    Raises LookupError if a list has no such row, or if a component on the way is not a mapping or list.
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
    """Return the value at the path. Raises LookupError if there is none."""
    for step in steps:
        node = node[_row(node, step)] if isinstance(node, list) else _field(node, step)
    return node


def numbered(node: Any, steps: Sequence[str]) -> tuple[str, ...]:
    """Return the path with every list row by index, as far as the data exist, so that equal paths compare equal."""
    resolved: list[str] = []
    for at, step in enumerate(steps):
        try:
            row = str(_row(node, step)) if isinstance(node, list) else step
            node = found(node, (step,))
        except LookupError:
            return (*resolved, *steps[at:])
        resolved.append(row)
    return tuple(resolved)


def _field(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node[step]
    raise LookupError(f"{step!r} is not a field of {node!r}, which is not a mapping")


def _row(rows: list[Any], step: str) -> int:
    """Return the index of the row. Raises LookupError."""
    field, named, value = step.partition("=")
    if named:
        matching = [at for at, row in enumerate(rows) if isinstance(row, dict) and str(row.get(field)) == value]
        if len(matching) == 1:
            return matching[0]
        raise LookupError(f"{len(matching)} rows have {field} {value!r} instead of exactly one; rows: {_listed(rows)}")
    row = int(step) if step.isdecimal() else -1
    if not 0 <= row < len(rows):
        raise LookupError(f"{step!r} is not the index of a row; rows: {_listed(rows)}")
    return row


def _listed(rows: list[Any]) -> str:
    names = [row.get("name") if isinstance(row, dict) else row for row in rows]
    labels = (str(index) if name is None else f"{index} ({name})" for index, name in enumerate(names))
    return ", ".join(labels) or "none"


def values_at(node: Any, steps: Sequence[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each occurrence of a field below a node.

    The steps have a notation of their own: `name[]` means every row of a list, `name{}` every key of a map, `name{=}`
    every entry of a map as the text KEY=VALUE, and `name?` a field that counts as empty text if it is not set.
    """
    if not steps:
        yield path, node
        return
    name = steps[0].rstrip("[]{}=?")
    child = node.get(name) if isinstance(node, Mapping) else None
    where = f"{path}.{name}" if path else name
    if steps[0].endswith("?"):
        yield where, "" if child is None else child
    elif steps[0].endswith("[]"):
        for row, item in enumerate(child if isinstance(child, list) else []):
            yield from values_at(item, steps[1:], f"{where}[{row}]")
    elif steps[0].endswith("{=}"):
        entries = child if isinstance(child, Mapping) else {}
        yield from ((f"{where}[{key}]", f"{key}={value}") for key, value in entries.items())
    elif steps[0].endswith("{}"):
        yield from ((f"{where}[{key}]", key) for key in (child if isinstance(child, Mapping) else {}))
    elif child is not None:
        yield from values_at(child, steps[1:], where)
