"""The closed loop: who asks what when, which phase it belongs to, and when a point is given up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from itertools import count

import pytest

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.chat import Message
from specbench_client.errors import EngineFailed
from specbench_client.load.budget import FailureBudget
from specbench_client.load.closed_loop import AskTurn, ClosedLoop, closed_loop
from specbench_client.load.conversations import conversations
from specbench_client.load.flight import Flight
from specbench_client.load.turns import Turn, TurnResult
from specbench_testing.turns import Row, result_of, row

TOLERANT = FailureBudget(share=1)


class Desk:
    """Answers turns one clock tick after the other, in turn; keeps what was asked and what was recorded."""

    def __init__(self) -> None:
        self.asked: list[Turn] = []
        self.records: list[Record] = []
        self.ticks = count(1)
        self.failing: dict[int, str] = {}  # the n-th turn asked → its error class
        self.is_alive = True
        self.health_checks = 0

    def clock(self) -> int:
        return next(self.ticks)

    async def ask(self, turn: Turn) -> TurnResult:
        number = len(self.asked)
        self.asked.append(turn)
        await asyncio.sleep(0)
        error_class = self.failing.get(number)
        return await result_of(turn, self.clock(), None if error_class else f"reply {number}", error_class)

    async def alive(self) -> bool:
        self.health_checks += 1
        return self.is_alive

    def loop(self, concurrency: int, ask: AskTurn | None = None, **given: object) -> ClosedLoop:
        return ClosedLoop(
            concurrency, ask or self.ask, self.records.append, self.alive, clock=self.clock, **given  # type: ignore[arg-type]
        )  # fmt: skip


def rows(number: int) -> list[Row]:
    return [row(f"p{index}") for index in range(number)]


async def test_every_conversation_is_asked_once_and_recorded() -> None:
    desk = Desk()
    flight = await closed_loop(desk.loop(3), conversations(rows(10)))
    assert [turn.conversation_id for turn in desk.asked] == [f"p{index}#0" for index in range(10)]
    assert Counter(record.prompt_id for record in desk.records) == Counter(f"p{index}" for index in range(10))
    assert {record.stream for record in desk.records} == {0, 1, 2}
    assert flight.ended_ns is not None


async def test_never_more_than_the_concurrency_is_in_flight_and_it_is_reached() -> None:
    desk, open_now, most = Desk(), 0, 0

    async def ask(turn: Turn) -> TurnResult:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        result = await desk.ask(turn)
        open_now -= 1
        return result

    await closed_loop(desk.loop(4, ask), conversations(rows(20)))
    assert most == 4


async def test_a_second_run_asks_exactly_the_same() -> None:
    first, second = Desk(), Desk()
    for desk in (first, second):
        await closed_loop(desk.loop(3), conversations([row("a", "1", "2"), *rows(5)], 11))
    assert first.asked == second.asked
    assert first.records == second.records


async def test_turns_follow_each_other_with_the_models_own_replies() -> None:
    desk = Desk()
    await closed_loop(desk.loop(1), conversations([row("a", "one", "two")]))
    first, second = desk.asked
    assert first.messages == (Message("user", "one"),)
    assert second.messages == (Message("user", "one"), Message("assistant", "reply 0"), Message("user", "two"))
    assert (first.turn, second.turn) == (0, 1)


async def test_a_request_is_intended_for_the_moment_its_stream_was_free() -> None:
    desk, ends = Desk(), []

    async def ask(turn: Turn) -> TurnResult:
        result = await desk.ask(turn)
        ends.append(result.ended_ns)
        desk.clock()  # what the client wastes between two requests
        return result

    flight = await closed_loop(desk.loop(1, ask), conversations([row("a", "1", "2"), *rows(2)]))
    assert [turn.intended_ns for turn in desk.asked] == [flight.started_ns, *ends[:-1]]


async def test_a_failed_turn_ends_its_conversation_and_the_rest_is_said_to_be_skipped() -> None:
    desk = Desk()
    desk.failing = {1: "timeout"}
    await closed_loop(desk.loop(1, budget=TOLERANT), conversations([row("a", "1", "2", "3", "4"), row("b")]))
    told = [(record.prompt_id, record.turn, record.error_class) for record in desk.records]
    skipped = "skipped_after_error"
    assert told == [("a", 0, None), ("a", 1, "timeout"), ("a", 2, skipped), ("a", 3, skipped), ("b", 0, None)]
    assert len({record.request_id for record in desk.records}) == 5


async def test_phases_are_ramp_until_all_streams_are_busy_and_drain_once_one_has_no_work() -> None:
    desk = Desk()
    await closed_loop(desk.loop(3), conversations(rows(9)))
    phases = {record.prompt_id: record.phase for record in desk.records}
    assert [phases[f"p{index}"] for index in range(9)] == ["ramp"] * 2 + ["steady"] * 5 + ["drain"] * 2


async def test_one_stream_alone_is_steady_from_the_first_request_to_the_last() -> None:
    desk = Desk()
    flight = await closed_loop(desk.loop(1), conversations(rows(3)))
    assert {record.phase for record in desk.records} == {"steady"}
    assert (flight.full_ns, flight.dry_ns, flight.ended_ns) == (2, 8, 9)


async def test_fewer_conversations_than_streams_are_never_steady() -> None:
    desk = Desk()
    flight = await closed_loop(desk.loop(4), conversations(rows(2)))
    assert {record.phase for record in desk.records} == {"ramp"}
    assert (flight.mean_in_flight, flight.steady_share) == (None, 0.0)


async def test_warm_up_is_warm_up_whatever_was_in_flight() -> None:
    desk = Desk()
    await closed_loop(desk.loop(2, phase=RecordPhase.WARMUP), conversations(rows(5)))
    assert {record.phase for record in desk.records} == {"warmup"}


async def test_no_conversations_are_a_loop_that_ends_at_once() -> None:
    desk = Desk()
    await closed_loop(desk.loop(2), conversations([]))
    assert desk.records == []


async def test_cancelling_keeps_what_was_recorded_and_abandons_what_is_open() -> None:
    desk, abandoned, stuck = Desk(), [], asyncio.Event()

    async def ask(turn: Turn) -> TurnResult:
        if turn.conversation_index < 3:
            return await desk.ask(turn)
        if turn.conversation_index == 4:
            stuck.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            abandoned.append(turn.conversation_index)
            raise

    task = asyncio.create_task(closed_loop(desk.loop(2, ask), conversations(rows(9))))
    await stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.prompt_id for record in desk.records] == ["p0", "p1", "p2"]
    assert sorted(abandoned) == [3, 4]
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_too_many_failures_end_the_point_with_the_engines_words() -> None:
    desk = Desk()
    desk.failing = {3: "http_4xx", 7: "http_5xx"}
    with pytest.raises(EngineFailed, match="2 of 8 requests failed; the last one: http_5xx: words") as caught:
        await closed_loop(desk.loop(1), conversations(rows(9)))
    assert caught.value.reason == "EngineLost"
    assert len(desk.records) == 8


async def test_few_failures_are_records_and_the_point_goes_on() -> None:
    desk = Desk()
    desk.failing = {9: "http_5xx"}
    await closed_loop(desk.loop(1), conversations(rows(12)))
    assert len(desk.records) == 12


@pytest.mark.parametrize("is_alive", [True, False])
async def test_connections_that_fail_in_a_row_end_the_point_only_when_the_engine_is_dead(is_alive: bool) -> None:
    desk = Desk()
    desk.failing = dict.fromkeys(range(2, 9), "refused")
    desk.is_alive = is_alive
    run: Awaitable[Flight] = closed_loop(desk.loop(1, budget=TOLERANT), conversations(rows(12)))
    if is_alive:
        await run
    else:
        with pytest.raises(EngineFailed, match="the engine is not healthy"):
            await run
    assert desk.health_checks == 1
    assert len(desk.records) == (12 if is_alive else 7)


async def test_an_error_of_ours_is_not_swallowed_and_leaves_no_stream_behind() -> None:
    async def ask(turn: Turn) -> TurnResult:
        if turn.stream == 1:
            raise ZeroDivisionError
        return await asyncio.Future()

    with pytest.raises(ZeroDivisionError):
        await closed_loop(Desk().loop(3, ask), conversations(rows(5)))
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
