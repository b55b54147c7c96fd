"""Parses answers of the API server, which contain what anybody stored there: JSON nested thousands of levels deep.

Python's parser rejects such a text as a whole, so one object would hide all others of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

LEVELS_KEPT = 150
"""Levels of a text that is nested too deeply; more than a spec may have, so that it is refused by its own rules."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text, with null for each value below level LEVELS_KEPT if the text is nested deeper.

    "Deeper" means more than the 200 levels of the parser, in any version of Python. Raises ValueError for a text that
    is not JSON.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return from_json(_without_deep_values(text), allow_inf_nan=False)


def _without_deep_values(text: bytes) -> bytes:
    kept: list[bytes] = []
    level = position = 0
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            level += 1
            if level == LEVELS_KEPT + 1:
                kept.append(text[position : token.start()])
        elif first in b"]}":
            level -= 1
            if level == LEVELS_KEPT:
                kept.append(b"null")
                position = token.end()
    return b"".join((*kept, text[position:]))


LIST_BYTES_AT_ONCE = 1024 * 1024
"""Size up to which a list is parsed as a whole: faster, and at most 50 MiB once parsed."""


def parse_list(text: bytes) -> tuple[dict[str, Any], Iterator[Any]]:
    """Return a Kubernetes list without its items, and its items: of a large list, one is parsed at a time.

    Raises ValueError for a text that is not JSON; of a large list also while the items are read.
    """
    if len(text) <= LIST_BYTES_AT_ONCE:
        head = parse_json(text)
        return head, iter(head.pop("items", None) or ())
    begin, end, items = _items_of(text)
    head = parse_json(text[:begin] + text[end:])
    head.pop("items", None)
    return head, (parse_json(text[first:last]) for first, last in items)


def _items_of(text: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """Where the contents of the list's `items` begin and end, and where each object in them does."""
    level = begin = end = start = 0
    items: list[tuple[int, int]] = []
    name = b""
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first == b'"':
            name = token[0] if level == 1 else name
        elif first in b"[{":
            level += 1
            if level == 2 and name == b'"items"':
                begin = token.end()
            elif level == 3 and name == b'"items"':
                start = token.start()
        else:
            level -= 1
            if level == 2 and name == b'"items"':
                items.append((start, token.end()))
            elif level == 1 and name == b'"items"':
                end = token.start()
    return begin, end, items
