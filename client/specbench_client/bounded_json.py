"""Parses JSON that anybody may have written: nesting that is too deep is an ordinary error of the text."""

from __future__ import annotations

import json
from typing import Any


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
