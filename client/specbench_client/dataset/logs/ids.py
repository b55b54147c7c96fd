"""Columns of a row, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from specbench_client.analysis.oracle.answers import Tokens
from specbench_client.errors import BadInput

_BOUND = 2**31
"""Token ids and counts are small; what is larger is something else."""


def whole_numbers(columns: Mapping[str, Any], name: str, where: str, least: int = 0) -> Tokens:
    """A column that is a list of whole numbers. Raises BadInput."""
    value = columns[name]
    wrong = f"{where}: {name} is no list of whole numbers from {least} on"
    if not isinstance(value, list) or any(type(each) is not int or not least <= each < _BOUND for each in value):
        raise BadInput(wrong)
    return np.array(value, dtype=np.int64)


def first_of(columns: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these columns that the row has a value in."""
    return next((name for name in names if columns.get(name) is not None), None)


def category_of(columns: Mapping[str, Any]) -> str | None:
    """The row's category; None where it has none that is a text."""
    value = columns.get("category")
    return value if isinstance(value, str) and value else None


def id_of(columns: Mapping[str, Any], place: str) -> str:
    """The row's id, else its place."""
    name = first_of(columns, ("id", "question_id"))
    return str(columns[name]) if name else place
