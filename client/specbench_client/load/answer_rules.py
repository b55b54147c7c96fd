"""Judges a complete answer: empty, broken or looping text, and what the workload demands.

An answer that reached its maximum of tokens cannot be valid JSON, and its last number means nothing. That is a flaw of
its own (`Unfinished`), which the baseline's answers to the same prompts mostly have too.

Loops are detected in characters, because engines do not report token ids. An answer loops if its end is one text at
least four times in a row, exactly, over the length of at least 64 tokens. A list whose items differ in a number is not
a loop. The longest period that is found is 4,096 characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from specbench_api.spec.answers import Answers, ExpectedAnswer, schema_validator
from specbench_client.dialects.engine_answer import EngineAnswer, ToolCall
from specbench_client.documents.record import AnswerFlaw
from specbench_client.workload.row_parsing import extract_answer

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

LOOP_TOKENS = 64
LOOP_REPETITIONS = 4
LONGEST_PERIOD = 4096
CHARACTERS_PER_TOKEN = 4.0
"""Assumed where the engine does not count tokens."""
_LENGTH, _TOOL_CALLS = "length", "tool_calls"
_BROKEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd]")
"""Control characters except white space, and the replacement character, which lone surrogates have become too."""


def flaw_of(
    text: str, reasoning: str, finish_reason: str | None, tokens: int | None, *, called: bool = False
) -> AnswerFlaw | None:
    """Return what is wrong with an answer; None if nothing was found.

    `tokens`: of reasoning and text together. `called`: it has a tool call, after which some engines report `stop`.
    """
    whole = reasoning + text
    if is_empty(text, reasoning, finish_reason) and not called:
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


def unmet_demand(answers: Answers, expected: str | None, answer: EngineAnswer) -> AnswerFlaw | None:
    """Return which demand of the workload an answer does not meet; None if it meets all.

    `expected`: of this prompt. The answer's text has no reasoning.
    """
    if answers.json_schema is not None:
        flaw = _document_flaw(answers.json_schema, answer.text, AnswerFlaw.SCHEMA_MISMATCH)
    elif answers.tools is not None:
        flaw = _calls_flaw(answers.tools, answer.tool_calls)
    else:
        flaw = _unexpected(answers.expected, expected, answer.text)
    return AnswerFlaw.UNFINISHED if flaw is not None and answer.finish_reason == _LENGTH else flaw


def _unexpected(declared: ExpectedAnswer | None, expected: str | None, text: str) -> AnswerFlaw | None:
    if declared is None or expected is None or extract_answer(text, declared.match) == expected:
        return None
    return AnswerFlaw.WRONG_ANSWER


def _calls_flaw(tools: list[dict[str, Any]], calls: tuple[ToolCall, ...]) -> AnswerFlaw | None:
    """Return the first flaw of the tool calls, one of which is demanded."""
    if not calls:
        return AnswerFlaw.NO_TOOL_CALL
    offered = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    for call in calls:
        if call.name not in offered:
            return AnswerFlaw.TOOL_CALL_MISMATCH
        flaw = _document_flaw(offered[call.name], call.arguments or "{}", AnswerFlaw.TOOL_CALL_MISMATCH, dict)
        if flaw is not None:
            return flaw
    return None


def _document_flaw(
    schema: Mapping[str, Any], text: str, mismatch: AnswerFlaw, kind: type = object
) -> AnswerFlaw | None:
    """Return the flaw of a JSON document; `kind`: the class of Python that it must have, whatever its schema."""
    try:
        document = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return AnswerFlaw.INVALID_JSON
    return None if isinstance(document, kind) and _matches(schema, document) else mismatch


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value of JSON")


def _matches(schema: Mapping[str, Any], document: Any) -> bool:
    """Return whether a document matches; one that cannot be compared (nested too deeply, a huge number) does not."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 -- slow to import

    try:
        return _validator(json.dumps(schema)).is_valid(document)
    except (RecursionError, ArithmeticError, Unresolvable):
        return False


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    return schema_validator(json.loads(schema))
