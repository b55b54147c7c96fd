"""Answers are judged in a process of its own, which no schema can keep for longer than its limit."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specbench_api.spec.answers import Answers
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.documents.record import Record
from specbench_client.load import judge_child, judge_parent
from specbench_client.load.judge_child import JudgeStart
from specbench_client.load.judge_parent import MAX_OVERRUNS, AnswerJudge, JudgeLost
from specbench_client.sliced_tasks import NICENESS
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
    monkeypatch.setattr(judge_parent, "MAX_OVERRUNS", 2)
    found = await judged(PATTERN, [answer(text) for text in (FAST, SLOW, SLOW, FAST, *[SLOW] * 1000)])
    assert found == [GOOD] + [NOT_JUDGED] * 1003
    assert MAX_OVERRUNS > 2


@pytest.mark.parametrize(
    ("letters", "chunks", "fit"), [(3, 0, 48), (20_000, 0, 4), (3, 1000, 1)], ids=["short", "long", "chunks"]
)
async def test_answers_beyond_the_memory_of_waiting_ones_are_not_judged(
    monkeypatch: pytest.MonkeyPatch, letters: int, chunks: int, fit: int
) -> None:
    """Twice as many are submitted at once as fit; when those are judged, as many fit again."""
    monkeypatch.setattr(judge_parent, "MAX_WAITING_BYTES", 100_000)
    records = asyncio.Queue[Record]()
    record = replace(blank_record(), chunk_ns=list(range(chunks)))
    async with AnswerJudge(Answers.model_validate({"jsonSchema": {"type": "string"}}), records.put_nowait) as judge:
        for _ in ("first", "again"):
            for _ in range(2 * fit):
                judge.submit(record, answer(f'"{"a" * letters}"'))
            found = [await records.get() for _ in range(2 * fit)]
            assert Counter((each.judged, each.flaw) for each in found) == {GOOD: fit, NOT_JUDGED: fit}


def last_argument(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")[-2]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(JudgeStart.NORMAL, ["schema", "ready", "lower"]), (JudgeStart.LOW, ["lower", "schema", "ready"])],
)
def test_the_first_process_lowers_its_priority_once_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, start: JudgeStart, expected: list[str]
) -> None:
    events: list[str] = []
    monkeypatch.setattr(judge_child, "give_way_to_sockets", lambda: events.append("lower"))
    monkeypatch.setattr(judge_child, "_reply", lambda _: events.append("ready"))
    reads = SimpleNamespace(model_validate_json=lambda _: events.append("schema"))
    monkeypatch.setattr(judge_child, "Answers", reads)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"{}")))
    judge_child.main(start)
    assert events == expected


async def test_each_process_judges_at_a_lower_priority_and_only_the_first_starts_at_the_normal_one() -> None:
    records = asyncio.Queue[Record]()
    async with AnswerJudge(Answers.model_validate(PATTERN), records.put_nowait) as judge:
        starts, priorities = list[str](), list[int]()
        for text in (FAST, SLOW, FAST):
            judge.submit(blank_record(), answer(text))
            await records.get()
            starts.append(last_argument(judge.pid))
            priorities.append(os.getpriority(os.PRIO_PROCESS, judge.pid))
    assert starts == ["normal", "low", "low"]
    assert set(priorities) == {min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)}


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
    monkeypatch.setattr(judge_parent, "_COMMAND", ("false",))
    with pytest.raises(JudgeLost, match="did not start"):
        async with AnswerJudge(Answers.model_validate(PATTERN), lambda _: None):
            pass
