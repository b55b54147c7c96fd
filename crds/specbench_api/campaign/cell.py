"""A combination as people read it: axis=value, with a name in the place of a whole object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.plan.canonical import canonical_json, plain_numbers
from specbench_api.spec.campaign_status import CELL_TEXT_MAX

VALUE_TEXT_MAX = 40


def cell_text(cell: Mapping[str, Any]) -> str:
    """All of it, for messages."""
    return " ".join(f"{name}={value_text(value)}" for name, value in cell.items()) or "the template"


def short_cell_text(cell: Mapping[str, Any]) -> str:
    """The same in as many characters as a row of status has."""
    return _cut(cell_text(cell), CELL_TEXT_MAX)


def value_text(value: Any) -> str:
    """A scalar as it is, an object by its name, a list of objects by their names; anything else as JSON, cut."""
    if isinstance(value, str):
        return _cut(value, VALUE_TEXT_MAX)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return _cut(value["name"], VALUE_TEXT_MAX)
    if isinstance(value, list) and value and all(isinstance(row, Mapping) and "name" in row for row in value):
        return _cut("+".join(str(row["name"]) for row in value), VALUE_TEXT_MAX)
    return _cut(canonical_json(plain_numbers(value)), VALUE_TEXT_MAX)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
