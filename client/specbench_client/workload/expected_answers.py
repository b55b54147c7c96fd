"""Extracts what is compared of an answer and of the expected one: a number, the letter of a choice, or the text.

Answers of models and those of data sets are read in the same way, so a row may have GSM8K's whole solution, which ends
with `#### 18`.
"""

from __future__ import annotations

import re
from decimal import Decimal

from specbench_api.spec.answers import AnswerMatch

_MARK = "####"
_NUMBER = re.compile(r"(?:(?<![\w.,)])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+")
_NAMED_CHOICE = re.compile(
    r"answer\b(?:\s+is)?\s*:?[\s*_$\"'`]*(?:\\boxed\{|\\text\{)*[(\[]?(?-i:([A-J]))(?![\w'])", re.IGNORECASE
)
_LONE_CHOICE = re.compile(r"(?<![\w'])([A-J])(?![\w'])")


def extract_answer(text: str, match: AnswerMatch) -> str | None:
    """Return what is compared, in one spelling: `1,080.50` is `1080.5`; None if the text has no answer."""
    if match is AnswerMatch.EXACT:
        return text.strip() or None
    if match is AnswerMatch.CHOICE:
        found = _NAMED_CHOICE.findall(text) or _LONE_CHOICE.findall(text)
        return found[-1] if found else None
    plain = text.replace("\u2212", "-")  # the minus sign
    _, mark, after = plain.rpartition(_MARK)
    marked = _NUMBER.search(after) if mark else None
    if marked is not None:
        return _one_spelling(marked[0])
    numbers = _NUMBER.findall(plain)
    return _one_spelling(numbers[-1]) if numbers else None


def _one_spelling(number: str) -> str:
    """Return a number without commas, leading zeros and trailing zeros after the point."""
    text = f"{Decimal(number.replace(',', '')):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("", "-0", "-") else text
