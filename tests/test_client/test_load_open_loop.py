"""The open loop of one worker: conversations start on schedule, independent of others."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

from specbench_client.chat import RequestStart
from specbench_client.cooperative_tasks import CooperativeTask
from specbench_client.load.conversation_runner import REFUSED_PAUSE_NS, ThinkingUsers
from specbench_client.load.conversations import is_filler
from specbench_client.load.loops import sleep_until
from specbench_client.load.turns import Turn, TurnClient, TurnResult
from specbench_client.load.worker_shares import OpenLoopShare, open_loop_load
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpExchange, HttpRequest, UnparsedExchange
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.conversation_turns import failure, result_of, row
from specbench_testing.load_loops import LoopDriver

MS = 1_000_000


class Engine(TurnClient):
    """Answers when `free` is set."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.sent_ns: list[int] = []
        self.taken: list[Turn] = []
        self.free = asyncio.Event()
        self.news = asyncio.Condition()
        self.failing: dict[str, ErrorClass] = {}
        self.ended_ns: dict[str, int] = {}
        self.open = self.most_open = 0
        self.driver = LoopDriver(self)

    def build_request(self, turn: Turn) -> HttpRequest:
        return HttpRequest(f"{turn.conversation.id}/{turn.number}", b"")

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        self.sent_ns.append(time.monotonic_ns())
        self.sent.append(request.url)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        async with self.news:
            self.news.notify_all()
        await self.free.wait()
        await asyncio.sleep(0)
        self.open -= 1
        self.ended_ns[request.url] = time.monotonic_ns()
        return failure(self.ended_ns[request.url], self.failing.get(request.url))

    async def has_sent(self, number: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: len(self.sent) >= number)

    def read_result(self, turn: Turn, pending_response: UnparsedExchange) -> CooperativeTask[TurnResult]:
        assert isinstance(pending_response, HttpExchange)
        self.taken.append(turn)
        yield
        reply = None if pending_response.error_class else "so"
        return result_of(turn, pending_response.ended_ns, reply, pending_response.error_class)


def rows(number: int) -> list[Prompt]:
    return [row(f"p{index}") for index in range(number)]


async def test_conversations_start_on_time_although_none_is_answered() -> None:
    engine = Engine()
    offsets = [0, 0, 1 * MS, 3 * MS, 3 * MS]
    task = asyncio.create_task(engine.driver.open(rows(2), offsets))
    await engine.has_sent(len(offsets))
    engine.free.set()
    timeline = await task
    assert engine.sent == ["p0#0/0", "p1#0/0", "p0#1/0", "p1#1/0", "p0#2/0"]
    assert [turn.intended_ns - timeline.started_ns for turn in engine.taken] == offsets
    sent_after = [sent - timeline.started_ns for sent in engine.sent_ns]
    assert all(sent >= intended for sent, intended in zip(sent_after, offsets, strict=True))
    assert [turn.stream_index for turn in engine.taken] == [0, 1, 2, 3, 4]


async def test_overdue_conversation_is_sent_at_once_with_its_intended_time() -> None:
    engine = Engine()
    engine.free.set()
    timeline = await engine.driver.open(rows(3), [-50 * MS, -20 * MS, 0])
    assert [turn.intended_ns - timeline.started_ns for turn in engine.taken] == [-50 * MS, -20 * MS, 0]


async def test_conversations_above_the_limit_wait_in_order_and_keep_their_intended_times() -> None:
    """All of them are due at once."""
    engine = Engine()
    offsets = [-3 * MS, -2 * MS, -1 * MS, 0, 0]
    task = asyncio.create_task(engine.driver.open(rows(5), offsets, slots=2))
    await engine.has_sent(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert engine.sent == ["p0#0/0", "p1#0/0"]
    engine.free.set()
    timeline = await task
    assert engine.sent == [f"p{index}#0/0" for index in range(5)]
    assert [turn.intended_ns - timeline.started_ns for turn in engine.taken] == offsets
    assert engine.most_open == 2


@pytest.mark.parametrize(("slots", "workers", "expected"), [(5, 2, [3, 2]), (1, 4, [1]), (None, 2, [None, None])])
def test_limit_is_divided_among_the_workers_like_the_arrivals(
    slots: int | None, workers: int, expected: list[int | None]
) -> None:
    times = np.arange(6) * MS
    load = open_loop_load(times, workers, slots=slots)
    shares = [share for share in load.shares if isinstance(share, OpenLoopShare)]
    assert [share.slots for share in shares] == expected
    assert load.has_slots is (slots is not None)
    assert sorted(offset for share in shares for offset in share.offsets_ns) == times.tolist()


async def test_later_turn_is_intended_at_the_end_of_the_previous_answer() -> None:
    engine = Engine()
    engine.free.set()
    await engine.driver.open([row("a", "1", "2", "3")], [0])
    ends = engine.driver.timeline.logs[0].ended if engine.driver.timeline else []
    assert [turn.intended_ns for turn in engine.taken[1:]] == list(ends[:-1])


@pytest.mark.parametrize("loop", ["open", "closed"])
async def test_later_turn_is_sent_and_intended_when_the_user_has_thought(loop: str) -> None:
    engine = Engine()
    engine.free.set()
    thought = {("a#0", 1): 30 * MS, ("a#0", 2): 10 * MS}
    engine.driver.users = ThinkingUsers(lambda name, turn: thought[name, turn], sleep_until)
    prompts = [row("a", "1", "2", "3")]
    timeline = await (engine.driver.open(prompts, [0]) if loop == "open" else engine.driver.closed(prompts, 1))
    ends = timeline.logs[0].ended
    assert [turn.intended_ns for turn in engine.taken[1:]] == [ends[0] + 30 * MS, ends[1] + 10 * MS]
    assert all(sent >= turn.intended_ns for sent, turn in zip(engine.sent_ns, engine.taken, strict=True))


@pytest.mark.parametrize("recorded", [False, True])
async def test_fillers_wait_as_much_as_the_turns_of_the_workload_on_average(*, recorded: bool) -> None:
    engine, waited = Engine(), []
    engine.free.set()
    engine.driver.users = ThinkingUsers(lambda *_: 0 if recorded else 4 * MS, sleep_until)
    starts = (RequestStart(), *(RequestStart((number,), 0.004) for number in range(3))) if recorded else ()
    fills = [replace(row(name, "1", "2", "3", "4"), starts=starts) for name in "ab"]
    await engine.driver.closed(fills, 2, filled=True)
    of_stream = sorted((turn.stream_index, turn.intended_ns, turn.conversation.prompt.id) for turn in engine.taken)
    for (stream, before_ns, filler), (other, after_ns, _) in itertools.pairwise(of_stream):
        if stream == other and is_filler(filler):
            waited.append(after_ns - before_ns)
    assert waited
    assert min(waited) >= 3 * MS, "three of four turns are later ones"


STARTS = (
    RequestStart(),
    RequestStart((), 0.005),
    RequestStart((0,), 0.01),
    RequestStart((0,), None),
    RequestStart((2, 3), 0.0),
)
SESSION = replace(row("s", "1", "2", "3", "4", "5"), starts=STARTS)


@pytest.mark.parametrize("loop", ["open", "closed"])
async def test_requests_of_a_recorded_session_keep_their_waits_overlaps_and_dependencies(loop: str) -> None:
    engine = Engine()
    engine.driver.users = ThinkingUsers(lambda *_: 7 * MS, sleep_until)
    running = engine.driver.open([SESSION], [0]) if loop == "open" else engine.driver.closed([SESSION], 1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running)
        async with asyncio.timeout(30):
            await engine.has_sent(2)
        assert engine.sent == ["s#0/0", "s#0/1"], "only these need no answer"
        engine.free.set()
    ended = [engine.ended_ns[f"s#0/{number}"] for number in range(5)]
    turns = sorted(engine.taken, key=lambda turn: turn.number)
    begun = turns[0].intended_ns
    expected = [begun, begun + 5 * MS, ended[0] + 10 * MS, ended[0] + 7 * MS, max(ended[2], ended[3])]
    assert [turn.intended_ns for turn in turns] == expected
    assert [turn.messages[0].content for turn in turns] == list("12345"), "no answer of the model is in the history"
    assert engine.most_open == 2


async def test_failed_request_of_a_recorded_session_stops_no_other_and_a_refused_one_delays_them() -> None:
    engine = Engine()
    engine.driver.users = ThinkingUsers(lambda *_: 0, sleep_until)
    engine.free.set()
    engine.failing = {"s#0/0": ErrorClass.RESET, "s#0/3": ErrorClass.REFUSED}
    await engine.driver.open([SESSION], [0])
    outcomes = sorted((record.turn, record.error_class) for record in engine.driver.records)
    assert outcomes == [(0, "reset"), (1, None), (2, None), (3, "refused"), (4, None)]
    last = next(turn for turn in engine.taken if turn.number == 4)
    assert last.intended_ns >= engine.ended_ns["s#0/3"] + REFUSED_PAUSE_NS


async def test_steady_state_ends_at_the_last_scheduled_start() -> None:
    engine = Engine()
    task = asyncio.create_task(engine.driver.open(rows(3), [0, 1 * MS, 2 * MS]))
    await engine.has_sent(3)
    engine.free.set()
    timeline = await task
    assert {record.phase for record in engine.driver.records} == {
        "ramp"
    }  # no request ended before, so the load was never steady
    assert timeline.steady_bounds.steady_end_ns == timeline.started_ns + 2 * MS
    assert timeline.steady is None


async def test_cancelling_abandons_open_requests_and_starts_no_more() -> None:
    engine = Engine()
    task = asyncio.create_task(engine.driver.open(rows(3), [0, 0, 10**12]))
    await engine.has_sent(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.driver.records == []
    assert len(asyncio.all_tasks()) == 1


async def test_internal_error_ends_the_loop() -> None:
    engine = Engine()

    async def broken(request: HttpRequest) -> UnparsedExchange:
        raise ZeroDivisionError(request.url)

    engine.exchange = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await engine.driver.open(rows(3), [0, 0, 10**12])
