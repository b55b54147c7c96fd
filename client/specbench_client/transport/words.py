"""What an engine said when it refused: its own words out of a body, cut to a length that fits a record."""

from __future__ import annotations

import json
from typing import Any

WORDS_MAX = 500


def well_formed(text: str) -> str:
    """With what JSON's escapes cut in two made whole, and lone halves (surrogates) replaced: no file takes them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str) -> str:
    """As one piece of at most WORDS_MAX characters."""
    text = well_formed(text).strip()
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 1] + "…"


def engine_words(body: bytes) -> str:
    """The message in an error body: `error.message`, `message` or `detail` of its JSON, else the text itself."""
    text = body.decode(errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        return cut(text)
    except RecursionError:  # a body may be nested as deep as it likes
        return cut(text)
    return cut(message_of(document) or text)


def message_of(document: Any) -> str | None:
    """The message of an error object in one of the shapes that engines use."""
    if isinstance(document, str):
        return document or None
    if not isinstance(document, dict):
        return None
    for key in ("error", "message", "detail"):
        found = document.get(key)
        if isinstance(found, str) and found:
            return found
        if isinstance(found, dict):
            return message_of(found) or json.dumps(found, ensure_ascii=False)
        if found:
            return json.dumps(found, ensure_ascii=False)
    return None
