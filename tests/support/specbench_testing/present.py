"""Values that must be there: an assertion that also narrows the type, within an expression."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """Return the value; fail if it is None."""
    assert value is not None
    return value
