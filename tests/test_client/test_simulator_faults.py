"""Faults of the simulator: each has its documented effect, and the truth file stays correct."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient

from specbench_client.simulator import (
    FAULTS,
    Fault,
    SimulatedEngine,
    SimulatedMethod,
    SimulatorConfig,
    SimulatorServer,
    TruthFile,
    choose_dialect,
    make_drafter,
    parse_faults,
)
from specbench_client.simulator.faults import AnswerCircumstances
from specbench_client.simulator.generated_text import GeneratedText, TextRequest, generate_text
from specbench_client.simulator.prescribed_answers import AnswerForm, prescribe
from specbench_testing.closing_servers import ClosingTestServer

PATH = "/v1/chat/completions"
BODY = {
    "temperature": 0,
    "max_tokens": 24,
    "ignore_eos": True,
    "messages": [{"role": "user", "content": "Say a long hello to every one"}],
}
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
EAGLE = make_drafter(SimulatedMethod.EAGLE3, 3)


class Clock:
    """A monotonic clock that advances only when a test sets it."""

    now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


class FaultyServer:
    """A running server with faults, and a client."""

    def __init__(self, client: TestClient[Any, Any], truth: Path, exits: list[int]) -> None:
        self.client = client
        self.exits = exits
        self._truth = truth

    async def stream(self) -> list[dict[str, Any]]:
        async with self.client.post(PATH, json=STREAM) as response:
            events = (await response.text()).split("\n\n")
        return [json.loads(one.removeprefix("data: ")) for one in events[:-2]]

    async def whole(self) -> Any:
        async with self.client.post(PATH, json=BODY) as response:
            return await response.json()

    async def status(self, path: str = "/health") -> int:
        async with self.client.get(path) as response:
            return response.status

    async def counter(self, name: str) -> float:
        async with self.client.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"vllm:{name}_total{{", f"vllm:{name}{{"))
        )

    def truth(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self._truth.read_text().splitlines()[-1])
        assert line["output_tokens"] == 1 + sum(accepted + 1 for accepted in line["step_accepted"])
        return line


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    return tmp_path / "truth.jsonl"


@asynccontextmanager
async def faulty(truth: Path, *faults: str, clock: Clock | None = None) -> AsyncIterator[FaultyServer]:
    config = SimulatorConfig(time_scale=0, drafter=EAGLE, faults=parse_faults(faults))
    engine = SimulatedEngine(config, clock=clock) if clock else SimulatedEngine(config)
    exits: list[int] = []
    server = SimulatorServer(engine, choose_dialect("vllm", config), TruthFile(truth), exits.append)
    async with TestClient(ClosingTestServer(server.application())) as client:
        yield FaultyServer(client, truth, exits)


def texts(chunks: list[dict[str, Any]]) -> list[str]:
    contents = [chunk["choices"][0]["delta"]["content"] for chunk in chunks if chunk["choices"]]
    return [content for content in contents if content]


async def test_merge_chunks_combines_steps_in_one_chunk(truth: Path) -> None:
    """A chunk has more than k+1 tokens; the steps are unchanged."""
    async with faulty(truth, "merge-chunks=4") as bench:
        merged = texts(await bench.stream())
    assert max(len(text.split()) for text in merged) > 4
    line = bench.truth()
    assert len(merged) == len(line["sent_ns"]) < line["steps"]
    assert len("".join(merged).split()) == 24


async def test_truncate_shortens_the_answer_with_reason_stop(truth: Path) -> None:
    """Half of the tokens are sent, with finish reason stop."""
    async with faulty(truth, "truncate") as bench:
        answer = await bench.whole()
    assert answer["usage"]["completion_tokens"] == bench.truth()["output_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_miscount_reports_more_tokens_than_were_sent(truth: Path) -> None:
    """Usage is three too high; the truth file is correct."""
    async with faulty(truth, "miscount") as bench:
        *chunks, usage = await bench.stream()
    assert usage["usage"]["completion_tokens"] == 27
    assert len("".join(texts(chunks)).split()) == bench.truth()["output_tokens"] == 24


async def test_diverge_changes_greedy_text_under_speculation(truth: Path) -> None:
    """The first half equals the unmodified answer, the second half differs."""
    async with faulty(truth) as unmodified, faulty(truth, "diverge") as diverging:
        original, changed = [
            (await bench.whole())["choices"][0]["message"]["content"].split() for bench in (unmodified, diverging)
        ]
    assert original[:12] == changed[:12]
    assert all(one != other for one, other in zip(original[12:], changed[12:], strict=True))


async def test_never_draft_starts_and_never_speculates(truth: Path) -> None:
    """The counters exist and stay 0; the response reports no steps; every step emits one token."""
    async with faulty(truth, "never-draft") as bench:
        block = (await bench.whole())["metrics"]["speculative_decoding"]
        assert await bench.counter("spec_decode_num_drafts") == 0
    assert (block["num_spec_steps"], block["mean_acceptance_length"], block["num_spec_tokens"]) == (0, None, 3)
    assert (bench.truth()["steps"], bench.truth()["drafted_tokens"]) == (23, 0)


async def test_prompt_cache_reports_hits(truth: Path) -> None:
    """Usage and counters report cached tokens."""
    async with faulty(truth, "prompt-cache=0.5") as bench:
        details = (await bench.whole())["usage"]["prompt_tokens_details"]
        assert await bench.counter("prefix_cache_hits") == await bench.counter("prompt_tokens_cached") == 3
    assert details["cached_tokens"] == 3


async def test_slow_start_is_unready_until_its_delay_has_passed(truth: Path) -> None:
    """All endpoints return 503 before, and 200 after."""
    clock = Clock()
    async with faulty(truth, "slow-start=30", clock=clock) as bench:
        clock.now_ns += 29 * 10**9
        assert [await bench.status(), await bench.status("/v1/models")] == [503, 503]
        assert (await bench.whole())["error"]["code"] == 503
        clock.now_ns += 10**9
        assert await bench.status() == 200
        assert "choices" in await bench.whole()


async def test_never_ready_is_never_ready(truth: Path) -> None:
    """It is not ready even after a day."""
    clock = Clock()
    async with faulty(truth, "never-ready", clock=clock) as bench:
        clock.now_ns += 86_400 * 10**9
        assert await bench.status() == 503


async def test_crash_after_exits_after_the_given_number_of_answers(truth: Path) -> None:
    """The N-th answer is still sent completely."""
    async with faulty(truth, "crash-after=2") as bench:
        await bench.whole()
        assert bench.exits == []
        assert (await bench.stream())[-1]["usage"]["completion_tokens"] == 24
        assert await bench.status() == 200
        assert bench.exits == [1]


async def test_oom_exits_at_the_next_request(truth: Path) -> None:
    """A real process would exit before the second request is read."""
    async with faulty(truth, "oom=1") as bench:
        await bench.whole()
        assert bench.exits == []
        await bench.whole()
        assert bench.exits == [137]


async def test_reset_closes_the_connection_after_the_given_chunks(truth: Path) -> None:
    """Three content chunks arrive before the reset; the truth file contains only those."""
    async with faulty(truth, "reset-after=3") as bench:
        with pytest.raises(aiohttp.ClientError):
            await bench.stream()
        with pytest.raises(aiohttp.ClientError):
            await bench.whole()
        assert await bench.counter("num_requests_running") == 0
    assert (bench.truth()["finish_reason"], len(bench.truth()["sent_ns"])) == ("abort", 3)


async def test_stall_stops_sending_and_keeps_the_connection_open(truth: Path) -> None:
    """After three chunks nothing is sent although the engine has finished; health stays 200."""
    async with faulty(truth, "stall=3") as bench, bench.client.post(PATH, json=STREAM) as response:
        for _ in range(4):  # the role and three chunks
            await response.content.readuntil(b"\n\n")
        while not await bench.counter("request_success"):
            pass
        assert await bench.status() == 200
        assert not response.content.at_eof()
        response.close()
    assert (bench.truth()["finish_reason"], len(bench.truth()["sent_ns"])) == ("abort", 3)


async def test_http_500_has_its_probability(truth: Path) -> None:
    """Every request fails at 1; at 0.5 some fail, reproducibly."""
    async with faulty(truth, "http-500") as bench:
        assert (await bench.whole())["error"]["type"] == "InternalServerError"
    faults = parse_faults(("http-500=0.5",))
    rejections = [faults.refuses(0, index) for index in range(1000)]
    assert 400 < sum(rejections) < 600
    assert rejections == [faults.refuses(0, index) for index in range(1000)]


async def test_malformed_sse_breaks_one_chunk(truth: Path) -> None:
    """The second content chunk is invalid JSON; later chunks are valid."""
    async with faulty(truth, "malformed-sse=2") as bench, bench.client.post(PATH, json=STREAM) as response:
        events = (await response.text()).split("\n\n")
    broken = []
    for index, one in enumerate(events[:-2]):
        try:
            json.loads(one.removeprefix("data: "))
        except json.JSONDecodeError:
            broken.append(index)
    assert broken == [2]  # the role chunk is number 0


async def test_restart_counters_resets_the_totals_once(truth: Path) -> None:
    """Totals fall to 0 once and increase from there."""
    async with faulty(truth, "restart-counters=2") as bench:
        seen = []
        for _ in range(3):
            await bench.whole()
            seen.append(await bench.counter("generation_tokens"))
    assert seen == [24, 0, 24]


def test_throttle_slows_steps_with_engine_time() -> None:
    """The slow-down is a fifth per second, up to tenfold."""
    faults = parse_faults(("throttle=0.2",))
    assert [faults.slowdown(seconds) for seconds in (0, 5, 1000)] == [1, 2, 10]


def test_cold_steps_become_faster_with_engine_time() -> None:
    """Steps are three times as slow at first and nearly normal after a minute."""
    faults = parse_faults(("cold=3",))
    assert [round(faults.slowdown(seconds), 2) for seconds in (0, 20, 60)] == [3.0, 1.74, 1.1]


async def test_own_limit_truncates_answers_with_reason_length(truth: Path) -> None:
    """The request does not set this limit."""
    async with faulty(truth, "own-limit=5") as bench:
        answer = await bench.whole()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (5, "length")


async def test_temperature_overrides_the_requested_one(truth: Path) -> None:
    """The request is greedy, but repeated requests get different answers."""
    async with faulty(truth, "temperature=1") as bench:
        first, second = [(await bench.whole())["choices"][0]["message"]["content"] for _ in range(2)]
    assert first != second


async def test_drafter_memory_accepts_repeated_prompts(truth: Path) -> None:
    """The second answer accepts every draft: 23 tokens after the first, in six steps of four."""
    async with faulty(truth, "drafter-memory=1") as bench:
        steps = []
        for _ in range(2):
            await bench.whole()
            steps.append(bench.truth()["steps"])
    assert steps[0] > steps[1] == 6


@pytest.mark.parametrize(
    ("faults", "reused"), [((), 64), (("reuse-last-block",), 48), (("reuse-lost=0.25",), 48), (("reuse-lost",), 0)]
)
def test_reuse_faults_lose_cache_hits_only_with_a_drafter(faults: tuple[str, ...], reused: int) -> None:
    """A hit of four blocks keeps three, three quarters, or nothing."""
    parsed = parse_faults(faults)
    assert (parsed.reused_tokens(64, speculates=True), parsed.reused_tokens(64, speculates=False)) == (reused, 64)
    assert parsed.reused_tokens(0, speculates=True) == 0


@pytest.mark.parametrize(
    ("fault", "caches", "left"),
    [("acceptance-decay=0.4", False, 0.8), ("acceptance-decay-cached=0.4", True, 0.8),
     ("acceptance-decay-cached=0.4", False, 1.0)],
)  # fmt: skip
def test_acceptance_decay_lowers_the_accepted_tokens_by_its_share(fault: str, caches: bool, left: float) -> None:
    """After six hours half of the share is gone, at every draft length."""
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
    """The line with the number is still there."""
    for one, other in zip(
        answers(), answers("restored-damage=1000", at=replace(DRAFTING, restored_tokens=16)), strict=True
    ):
        assert one.words[-2] == other.words[-2] == "\n####"
        assert int(one.words[-1]) != int(other.words[-1])
        assert not set(zip(one.words[:-2], one.words[:-2], strict=True)) & set(zip(one.words, other.words, strict=True))


async def test_truth_file_names_the_faults_of_an_answer(truth: Path) -> None:
    async with faulty(truth, "empty=1") as bench:
        answer = await bench.whole()
        line = bench.truth()
    assert (answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]) == ("", 1)
    assert line["text_faults"] == ["empty"]


class BrokenClock(Clock):
    """Returns the time once, and then fails."""

    def __call__(self) -> int:
        if self.now_ns > 1:
            raise RuntimeError("no time")
        self.now_ns += 1
        return self.now_ns


async def test_error_in_the_engine_loop_ends_the_process(truth: Path) -> None:
    """Clients must not wait forever for a dead loop."""
    async with faulty(truth, clock=BrokenClock()) as bench:
        assert await bench.status() == 500
        assert bench.exits == [1]


def test_every_fault_has_a_test_and_help() -> None:
    """This test fails when a new fault has neither."""
    source = Path(__file__).read_text()
    assert set(FAULTS) == set(Fault)
    assert [fault for fault in Fault if f'"{fault}' not in source] == []
