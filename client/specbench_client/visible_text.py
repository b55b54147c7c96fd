"""Text from strangers as people may see it: characters that hide or rearrange other text are shown as escapes.

Names, messages and answers come from specs, results and engines that anybody may have written. A terminal executes
control characters, bidirectional controls change the order of what follows, and zero-width characters make two names
look the same.
"""

from __future__ import annotations

import re

_TERMINAL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""C0 except tab and line feed, DEL, C1, line separators, and bidirectional controls."""
_HIDDEN = (
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb"
)
"""Characters without width: soft hyphen, joiners, fillers, interlinear marks, byte-order mark."""
_TAGS = "\U000e0000-\U000e0fff"
_SURROGATES = "\ud800-\udfff"
_INVISIBLE = re.compile(f"[{_TERMINAL}{_HIDDEN}{_TAGS}{_SURROGATES}]")
_BLANK = re.compile(f"[{_TERMINAL}{_HIDDEN}{_TAGS}\ufe00-\ufe0f]")
"""Characters of which a person sees nothing; half a character (a surrogate) is seen once its other half follows."""
_SPREADSHEET_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def visible(text: str) -> str:
    r"""Return the text with invisible characters as escapes such as `\x1b`; tabs and line feeds stay."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text)


def without_blanks(text: str) -> str:
    """Return the text without characters that show nothing, and without the white space around it."""
    return _BLANK.sub("", text).strip()


def json_escaped(document: str) -> str:
    """Return a JSON document with invisible characters as JSON escapes, so that nothing is lost."""
    return _INVISIBLE.sub(json_escape, document)


def json_escape(found: re.Match[str]) -> str:
    """Return the characters of a match as JSON escapes."""
    units = found[0].encode("utf-16-be", "surrogatepass")  # JSON escapes are UTF-16 code units
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def spreadsheet_text(text: str) -> str:
    """Return text for a cell of a spreadsheet. A text that would be evaluated as a formula begins with an apostrophe.

    A text that is a number stays one.
    """
    text = visible(text)
    return f"'{text}" if _SPREADSHEET_FORMULA.match(text) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text[0].isspace()
