"""Parses JSON that anybody may have written: nesting that is too deep is an ordinary error of the text."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises json.JSONDecodeError, also for a text that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        raise json.JSONDecodeError("nested too deeply", shown, 0) from error
