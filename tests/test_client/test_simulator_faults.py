"""Faults of the simulator: each has its documented effect, and the truth file stays correct."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from specbench_client.simulator import (
    SimulatedEngine,
    SimulatorConfig,
    SimulatorServer,
    choose_dialect,
    parse_faults,
)
from specbench_client.simulator.faults import AnswerCircumstances
from specbench_client.simulator.generated_text import AnswerForm, GeneratedText, TextRequest, generate_text, prescribe
from specbench_testing.closing_servers import ClosingTestServer


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    return tmp_path / "truth.jsonl"


def test_http_500_has_its_probability() -> None:
    faults = parse_faults(("http-500=0.5",))
    rejections = [faults.refuses(0, index) for index in range(1000)]
    assert 400 < sum(rejections) < 600
    assert rejections == [faults.refuses(0, index) for index in range(1000)]


def test_faults_of_a_stream_begin_at_their_number_of_chunks() -> None:
    faults = parse_faults(("malformed-sse=2", "reset-after=2", "stall=3"))
    assert [faults.garbles(sent) for sent in range(4)] == [False, True, False, False]
    assert [faults.resets(sent) for sent in range(4)] == [False, False, True, True]
    assert [faults.stalls(sent) for sent in range(4)] == [False, False, False, True]


def test_throttle_slows_steps_with_engine_time() -> None:
    faults = parse_faults(("throttle=0.2",))
    assert [faults.slowdown(seconds) for seconds in (0, 5, 1000)] == [1, 2, 10]


def test_cold_steps_become_faster_with_engine_time() -> None:
    faults = parse_faults(("cold=3",))
    assert [round(faults.slowdown(seconds), 2) for seconds in (0, 20, 60)] == [3.0, 1.74, 1.1]


@pytest.mark.parametrize(
    ("faults", "reused"), [((), 64), (("reuse-last-block",), 48), (("reuse-lost=0.25",), 48), (("reuse-lost",), 0)]
)
def test_reuse_faults_lose_cache_hits_only_with_a_drafter(faults: tuple[str, ...], reused: int) -> None:
    parsed = parse_faults(faults)
    assert (parsed.reused_tokens(64, speculates=True), parsed.reused_tokens(64, speculates=False)) == (reused, 64)
    assert parsed.reused_tokens(0, speculates=True) == 0


@pytest.mark.parametrize(
    ("fault", "caches", "left"),
    [("acceptance-decay=0.4", False, 0.8), ("acceptance-decay-cached=0.4", True, 0.8),
     ("acceptance-decay-cached=0.4", False, 1.0)],
)  # fmt: skip
def test_acceptance_decay_lowers_the_accepted_tokens_by_its_share(fault: str, caches: bool, left: float) -> None:
    faults = parse_faults((fault,))
    first = (0.9, 0.8, 0.5)

    def accepted(hours: float) -> float:
        left_over = faults.decayed(first, hours * 3600, caches=caches)
        return sum(prod(left_over[:depth]) for depth in (1, 2, 3))

    assert accepted(0) == pytest.approx(0.9 + 0.72 + 0.36)
    assert accepted(6) == pytest.approx(left * accepted(0))
    assert accepted(1000) == (0 if left < 1 else accepted(0))


DRAFTING = AnswerCircumstances(max_tokens=200, draft_tokens=3, running=8)
QUESTIONS = [f"{number} and 3, how many?" for number in range(400)]


def answers(*faults: str, at: AnswerCircumstances = DRAFTING, schema: Any = None) -> list[GeneratedText]:
    """The answers to 400 questions."""
    parsed = parse_faults(faults)
    found = []
    for question in QUESTIONS:
        text = generate_text(TextRequest("simulated", question, at.max_tokens), seed=0, mean_tokens=60)
        found.append(parsed.rewrite(prescribe(text, AnswerForm(schema), (question,), at.max_tokens), at))
    return found


def changed_share(*faults: str, at: AnswerCircumstances = DRAFTING, schema: Any = None) -> float:
    """The share of answers that differ from those without faults; each one that does names its fault."""
    pairs = list(zip(answers(at=at, schema=schema), answers(*faults, at=at, schema=schema), strict=True))
    names = [fault.partition("=")[0] for fault in faults]
    assert all(list(other.faults) == (names if one != replace(other, faults=()) else []) for one, other in pairs)
    return sum(one.words != other.words or one.finish_reason != other.finish_reason for one, other in pairs) / 400


@pytest.mark.parametrize(
    ("fault", "at", "share"),
    [
        ("loops=0.2", replace(DRAFTING, draft_tokens=0), 0.2),
        ("empty=0.2", replace(DRAFTING, draft_tokens=0), 0.2),
        ("finish-reason=0.2", replace(DRAFTING, draft_tokens=0), 0.2),
        ("wrong-deep=2", DRAFTING, 0.5),
        ("wrong-deep=3", DRAFTING, 0),
        ("restored-damage=0.5", replace(DRAFTING, restored_tokens=400), 0.2),
        ("restored-damage=0.5", replace(DRAFTING, restored_tokens=800), 0.4),
        ("restored-damage=0.5", DRAFTING, 0),
        ("broken-tool-calls=0.2", replace(DRAFTING, is_tool_call=True), 0.2),
        ("broken-tool-calls", DRAFTING, 0),
        ("corrupt-json=8", DRAFTING, 0),
    ],
)
def test_content_faults_change_their_share_of_answers(fault: str, at: AnswerCircumstances, share: float) -> None:
    assert changed_share(fault, at=at) == pytest.approx(share, abs=0.06 if share else 0)


@pytest.mark.parametrize("schema", [{"properties": {"a": {"type": "array"}, "b": {"enum": [1, 2]}}}, {"enum": [5]}, {}])
def test_corrupt_json_is_no_json_from_its_number_of_requests_on(schema: Any) -> None:
    """Some documents end in their middle and others begin again there; without a drafter all are correct."""
    at = replace(DRAFTING, is_document=True)
    for one in answers("corrupt-json=8", at=at, schema=schema):
        with pytest.raises(json.JSONDecodeError):
            json.loads(" ".join(one.words))
    assert changed_share("corrupt-json=9", at=at, schema=schema) == 0
    assert changed_share("corrupt-json=8", at=replace(at, draft_tokens=0), schema=schema) == 0


def test_corrupt_json_cuts_or_doubles() -> None:
    schema = {"properties": {"a": {"type": "array", "minItems": 9}}}
    at = replace(DRAFTING, is_document=True)
    pairs = zip(answers(at=at, schema=schema), answers("corrupt-json=8", at=at, schema=schema), strict=True)
    doubled = [len(one.words) == len(other.words) for one, other in pairs]
    assert 0.4 < sum(doubled) / len(doubled) < 0.6


def test_loops_repeat_a_short_period_up_to_the_limit() -> None:
    for one in answers("loops"):
        assert (len(one.words), one.finish_reason) == (200, "length")
        tail = one.words[-64:]
        assert any(tail[period:] == tail[:-period] for period in range(1, 9))


def test_wrong_answers_have_another_number() -> None:
    for one, other in zip(
        answers(), answers("restored-damage=1000", at=replace(DRAFTING, restored_tokens=16)), strict=True
    ):
        assert one.words[-2] == other.words[-2] == "\n####"
        assert int(one.words[-1]) != int(other.words[-1])
        assert not set(zip(one.words[:-2], one.words[:-2], strict=True)) & set(zip(one.words, other.words, strict=True))


class BrokenClock:
    """Returns the time once, and then fails."""

    readings = 0

    def __call__(self) -> int:
        self.readings += 1
        if self.readings > 1:
            raise RuntimeError("no time")
        return 1


async def test_error_in_the_engine_loop_ends_the_process() -> None:
    """Clients must not wait forever for a dead loop."""
    config, exits = SimulatorConfig(time_scale=0), list[int]()
    engine = SimulatedEngine(config, clock=BrokenClock())
    server = SimulatorServer(engine, choose_dialect("vllm", config), None, exits.append)
    async with TestClient(ClosingTestServer(server.application())) as client, client.get("/health") as response:
        assert response.status == 500
    assert exits == [1]
