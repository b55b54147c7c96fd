"""Answers are judged in a process of its own, which no schema can keep for longer than its limit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.outcome.record import Record
from specbench_api.spec.answers import Answers
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.load import answer_judge
from specbench_client.load.answer_judge import MAX_OVERRUNS, AnswerJudge, JudgeLost
from specbench_testing.conversation_turns import blank_record

pytestmark = pytest.mark.process

PATTERN = {"jsonSchema": {"type": "string", "pattern": "^(a+)*$"}}
FAST, SLOW, WRONG = '"aaa"', f'"{"a" * 60}!"', '"b"'
ALTERNATIVES = {"jsonSchema": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 3}}
NESTED = "[" * 40 + "1" + "]" * 40
ARGUMENTS = {"tools": [{"type": "function", "function": {"name": "say", "parameters": {
    "properties": {"text": PATTERN["jsonSchema"]}}}}]}  # fmt: skip
GOOD, NOT_JUDGED = (True, None), (False, "NotJudged")


def answer(text: str, *calls: ToolCall) -> EngineAnswer:
    return EngineAnswer(text, (), RequestAcceptance(), finish_reason="stop", tool_calls=calls)


def called(text: str) -> EngineAnswer:
    return answer("", ToolCall("say", f'{{"text": {text}}}'))


async def judged(answers: dict[str, Any], given: Sequence[EngineAnswer]) -> list[tuple[bool, str | None]]:
    """Whether each answer was judged, and its flaw."""
    records: list[Record] = []
    async with AnswerJudge(Answers.model_validate(answers), records.append) as judge:
        for number, each in enumerate(given):
            judge.submit(replace(blank_record(), request_id=str(number)), each)
        await judge.drained()
    assert [int(record.request_id) for record in records] == list(range(len(given)))
    return [(record.judged, record.flaw) for record in records]


@pytest.mark.parametrize(
    ("answers", "given", "flaw"),
    [
        (PATTERN, [answer(text) for text in (FAST, SLOW, WRONG)], "SchemaMismatch"),
        (ALTERNATIVES, [answer(text) for text in ("[]", NESTED, "1")], "SchemaMismatch"),
        (ARGUMENTS, [called(text) for text in (FAST, SLOW, WRONG)], "ToolCallMismatch"),
    ],
    ids=["pattern", "alternatives", "arguments"],
)
async def test_answers_that_take_too_long_are_not_judged_and_all_others_are(
    answers: dict[str, Any], given: list[EngineAnswer], flaw: str
) -> None:
    assert await judged(answers, given) == [GOOD, NOT_JUDGED, (True, flaw)]


async def test_a_load_has_a_limit_of_slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_judge, "MAX_OVERRUNS", 2)
    found = await judged(PATTERN, [answer(text) for text in (FAST, SLOW, SLOW, FAST, *[SLOW] * 1000)])
    assert found == [GOOD] + [NOT_JUDGED] * 1003
    assert MAX_OVERRUNS > 2


async def test_more_answers_than_may_wait_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_judge, "MAX_WAITING", 3)
    records: list[Record] = []
    async with AnswerJudge(Answers.model_validate(PATTERN), records.append) as judge:
        for _ in range(5):
            judge.submit(blank_record(), answer(FAST))
        await judge.drained()
    assert Counter((record.judged, record.flaw) for record in records) == {GOOD: 3, NOT_JUDGED: 2}


async def test_the_event_loop_runs_while_an_answer_is_judged() -> None:
    async with AnswerJudge(Answers.model_validate(PATTERN), lambda _: None) as judge:
        judge.submit(blank_record(), answer(SLOW))
        judging, turns = asyncio.create_task(judge.drained()), 0
        while not judging.done():
            turns += 1
            await asyncio.sleep(0.01)
        await judging
    assert turns > 10


async def test_a_process_that_was_killed_is_an_error_and_never_an_unjudged_answer() -> None:
    records: list[Record] = []
    async with AnswerJudge(Answers.model_validate(PATTERN), records.append) as judge:
        os.kill(judge.pid, signal.SIGKILL)
        judge.submit(blank_record(), answer(FAST))
        with pytest.raises(JudgeLost, match="exit code -9"):
            await judge.drained()
        with pytest.raises(JudgeLost):
            judge.submit(blank_record(), answer(FAST))
    assert records == []


async def test_a_process_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_judge, "_COMMAND", ("false",))
    with pytest.raises(JudgeLost, match="did not start"):
        async with AnswerJudge(Answers.model_validate(PATTERN), lambda _: None):
            pass
