"""Extracts what is compared of an answer and of the expected one: a number, the letter of a choice, or the text.

Answers of models and those of data sets are read in the same way, so a row may have GSM8K's whole solution, which ends
with `#### 18`.
"""

from __future__ import annotations

import re
from decimal import Decimal

from specbench_api.spec.answers import AnswerMatch

_NUMBER = (
    r"(?:(?:(?<![\w.,)])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)"
    r"(?:e[+-]?[0-9]{1,3}(?!\w))?"
)
_ANY_NUMBER = re.compile(_NUMBER, re.IGNORECASE)
# A heading such as `#### 3. Add the costs` is no mark.
_MARKED_NUMBER = re.compile(
    rf"(?<!#)#{{4,}}+[^\w\n.#-]*+({_NUMBER})[^\n\d.:)]{{0,24}}+\.?[^\S\n]*+$", re.IGNORECASE | re.MULTILINE
)
# "I think" and "A train" begin with a word, "A is right" and "I because" with a choice.
_LETTER = r"(?:[B-HJ]|[AI](?!\s+(?!(?:and|as|because|by|due|for|is|or|since)\b)[a-z]))(?![\w'])"
# Possessive quantifiers keep it linear: an answer may end in thousands of spaces.
_NAMED_CHOICE = re.compile(
    r"answer\b(?:\s++is)?+\s*+:?[\s*_$\"'`]*+(?:(?:option|choice|letter)\b[\s:*_$\"'`]*+)?+(?:\\boxed\{|\\text\{)*+"
    rf"(?-i:[(\[]([a-j])[)\]]|[(\[]?({_LETTER}))",
    re.IGNORECASE,
)
_LONE_CHOICE = re.compile(rf"(?<![\w']){_LETTER}")


def extract_answer(text: str, match: AnswerMatch) -> str | None:
    """Return what is compared, in one spelling: `1,080.50` is `1080.5`; None if the text has no answer."""
    if match is AnswerMatch.EXACT:
        return text.strip() or None
    if match is AnswerMatch.CHOICE:
        named = _NAMED_CHOICE.findall(text)
        if named:
            return "".join(named[-1]).upper()
        lone = _LONE_CHOICE.findall(text)
        return lone[-1] if lone else None
    plain = text.replace("\u2212", "-")  # the minus sign
    numbers = _MARKED_NUMBER.findall(plain) or _ANY_NUMBER.findall(plain)
    return _one_spelling(numbers[-1]) if numbers else None


def _one_spelling(number: str) -> str:
    """Return a number without commas, leading zeros and trailing zeros after the point."""
    text = f"{Decimal(number.replace(',', '')):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("", "-0", "-") else text
