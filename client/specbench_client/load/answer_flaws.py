"""Judges a complete answer without knowing the question: empty, broken or looping text, and unexpected ends.

Loops are detected in characters, because engines do not report token ids. An answer loops if its end is one text at
least four times in a row, exactly, over the length of at least 64 tokens. A list whose items differ in a number is not
a loop. The longest period that is found is 4,096 characters.
"""

from __future__ import annotations

import math
import re

from specbench_api.outcome.record import AnswerFlaw

EXPECTED_FINISHES = frozenset({"stop", "length", "tool_calls"})
"""Finish reasons of OpenAI's API after which an answer is complete; the other one, `content_filter`, is unexpected."""
LOOP_TOKENS = 64
LOOP_REPETITIONS = 4
LONGEST_PERIOD = 4096
CHARACTERS_PER_TOKEN = 4.0
"""Assumed where the engine does not count tokens."""
_LENGTH, _TOOL_CALLS = "length", "tool_calls"
_BROKEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd]")
"""Control characters except white space, and the replacement character, which lone surrogates have become too."""


def flaw_of(text: str, reasoning: str, finish_reason: str | None, tokens: int | None) -> AnswerFlaw | None:
    """Return what is wrong with an answer; None if nothing was found. `tokens`: of reasoning and text together."""
    whole = reasoning + text
    if finish_reason is not None and finish_reason not in EXPECTED_FINISHES:
        return AnswerFlaw.UNEXPECTED_FINISH
    if is_empty(text, reasoning, finish_reason):
        return AnswerFlaw.EMPTY
    if is_broken(whole, cut=finish_reason == _LENGTH):
        return AnswerFlaw.BROKEN_TEXT
    return AnswerFlaw.LOOP if loops(whole, tokens) else None


def is_empty(text: str, reasoning: str, finish_reason: str | None) -> bool:
    """Return whether an answer has no visible text. Reasoning that was cut, and tool calls, need no text after them."""
    if text.strip() or finish_reason == _TOOL_CALLS:
        return False
    return not (finish_reason == _LENGTH and reasoning.strip())


def is_broken(text: str, *, cut: bool) -> bool:
    """Return whether a text has characters that no answer should have. `cut`: its last character may be incomplete."""
    return _BROKEN.search(text.rstrip("\ufffd") if cut else text) is not None


def loops(text: str, tokens: int | None) -> bool:
    """Return whether the end of a text repeats exactly, see the module."""
    per_token = len(text) / tokens if tokens else CHARACTERS_PER_TOKEN
    least = max(LOOP_TOKENS, math.ceil(LOOP_TOKENS * per_token))
    longest = min(LONGEST_PERIOD, len(text) // LOOP_REPETITIONS)
    if len(text) < least:
        return False
    # A loop of at least `least` characters contains its last half once more, one period earlier.
    end = text[-(least // 2) :]
    last = len(text) - len(end)
    at = text.rfind(end, max(0, last - longest), len(text) - 1)
    while at >= 0:
        period = last - at
        length = max(least, LOOP_REPETITIONS * period)
        if text[-length + period :] == text[-length:-period]:
            return True
        at = text.rfind(end, max(0, last - longest), at + len(end) - 1)
    return False
