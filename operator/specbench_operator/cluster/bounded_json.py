"""Parses answers of the API server, which contain what anybody stored there: JSON nested thousands of levels deep.

Python's parser rejects such a text as a whole, so one object would hide all others of a list.
"""

from __future__ import annotations

import re
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
