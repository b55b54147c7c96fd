"""Parses JSON that anybody may have written: nesting that is too deep is an ordinary error of the text.

`parse_json` is for texts of users, of any depth that Python can read. An engine may be hostile: `parse_engine_json` and
`parse_strict_json` limit the nesting and the number of values, and are faster.
"""

from __future__ import annotations

import json
from typing import Any

import orjson


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises json.JSONDecodeError, also for nesting or a number that is too long."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        problem = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        raise json.JSONDecodeError(problem, shown, 0) from error


MAX_JSON_DEPTH = 64
"""Deepest nesting of lists and objects. Recursive functions (`repr`, serialisation) fail at a few hundred levels."""
LARGE_JSON_BYTES = 8 * 1024 * 1024
MAX_LARGE_JSON_VALUES = 8_000_000
"""Most values in JSON of more than 8 MiB. Parsed, one value takes up to 30 times the memory of its text (`[],`)."""


def parse_engine_json(data: str | bytes) -> Any:
    """Return the value. Raises ValueError if it is not JSON, is nested too deeply, or has too many values.

    Lone surrogates are accepted: engines send them if a character is split over two chunks.
    """
    reject_too_many_values(data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        # orjson is several times faster, but rejects lone surrogates; the json module accepts them.
        try:
            value = json.loads(data)
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
    if _openings(data) > MAX_JSON_DEPTH and _is_deeper(value, MAX_JSON_DEPTH):
        raise ValueError(_TOO_DEEP)
    return value


def parse_strict_json(data: bytes) -> Any:
    """Like `parse_engine_json`, but also raises ValueError for lone surrogates, NaN and infinity."""
    reject_too_many_values(data)
    value = orjson.loads(data)
    if _is_deeper(value, MAX_JSON_DEPTH):
        raise ValueError(_TOO_DEEP)
    return value


def reject_too_many_values(data: str | bytes) -> None:
    """Raise ValueError if a large text contains more values than any answer of an engine."""
    if len(data) > LARGE_JSON_BYTES and _openings(data) + _separators(data) > MAX_LARGE_JSON_VALUES:
        raise ValueError(f"more than {MAX_LARGE_JSON_VALUES:,} values")


_TOO_DEEP = f"nested more than {MAX_JSON_DEPTH} levels deep"


def _openings(data: str | bytes) -> int:
    if isinstance(data, str):
        return data.count("[") + data.count("{")
    return data.count(b"[") + data.count(b"{")


def _separators(data: str | bytes) -> int:
    return data.count(",") if isinstance(data, str) else data.count(b",")


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return any(isinstance(child, dict | list) for child in level)


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
