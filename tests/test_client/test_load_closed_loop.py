"""The closed loop of one worker: who asks what when, and which phase it belongs to."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from specbench_api.outcome.record import RecordPhase
from specbench_client.chat import ChatMessage
from specbench_client.load import closed_loop
from specbench_client.transport.exchange import ErrorClass, HttpRequest, UnparsedExchange
from specbench_testing.conversation_turns import row
from specbench_testing.fake_endpoint import FakeEndpoint, rows


async def test_every_conversation_is_asked_once_and_recorded() -> None:
    desk = FakeEndpoint()
    timeline = await desk.driver.closed(rows(10), 3)
    assert desk.sent == [f"p{index}#0" for index in range(10)]
    records = desk.driver.records
    assert Counter(record.prompt_id for record in records) == Counter(f"p{index}" for index in range(10))
    assert {record.stream_index for record in records} == {0, 1, 2}
    assert timeline.ended_ns == max(turn.intended_ns for turn in desk.taken) or timeline.ended_ns > 0


async def test_never_more_than_the_streams_are_in_flight_and_all_of_them_are() -> None:
    desk, open_now, most = FakeEndpoint(), 0, 0
    exchange = desk.exchange

    async def counted(request: HttpRequest) -> UnparsedExchange:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        unread = await exchange(request)
        open_now -= 1
        return unread

    desk.exchange = counted  # type: ignore[method-assign]
    await desk.driver.closed(rows(20), 4)
    assert most == 4


async def test_a_second_run_asks_exactly_the_same() -> None:
    first, second = FakeEndpoint(), FakeEndpoint()
    for desk in (first, second):
        await desk.driver.closed([row("a", "1", "2"), *rows(5)], 3, count=11)
    assert first.taken == second.taken
    assert first.driver.records == second.driver.records


async def test_a_request_is_written_out_before_its_stream_is_free() -> None:
    desk = FakeEndpoint()
    await desk.driver.closed(rows(6), 1)
    assert [turn.conversation_id for turn in desk.prepared] == [f"p{index}#0" for index in range(6)]
    desk = FakeEndpoint()
    exchange = desk.exchange
    ahead = []

    async def watched(request: HttpRequest) -> UnparsedExchange:
        unread = await exchange(request)
        for _ in range(10):
            await asyncio.sleep(0)
        ahead.append(len(desk.prepared) - len(desk.sent))
        return unread

    desk.exchange = watched  # type: ignore[method-assign]
    await desk.driver.closed(rows(6), 1)
    assert all(ahead[:-1])


async def test_turns_follow_each_other_with_the_models_own_replies() -> None:
    desk = FakeEndpoint()
    await desk.driver.closed([row("a", "one", "two")], 1)
    first, second = desk.taken
    assert first.messages == (ChatMessage("user", "one"),)
    assert second.messages == (
        ChatMessage("user", "one"),
        ChatMessage("assistant", "re: a#0"),
        ChatMessage("user", "two"),
    )
    assert (first.turn, second.turn) == (0, 1)


async def test_a_request_is_intended_for_the_moment_its_stream_was_free() -> None:
    desk, ends = FakeEndpoint(), []
    exchange = desk.exchange

    async def slow(request: HttpRequest) -> UnparsedExchange:
        unread = await exchange(request)
        ends.append(unread.ended_ns)
        desk.clock()  # what the client wastes between two requests
        return unread

    desk.exchange = slow  # type: ignore[method-assign]
    timeline = await desk.driver.closed([row("a", "1", "2"), *rows(2)], 1)
    assert sorted(turn.intended_ns for turn in desk.taken) == [timeline.started_ns, *ends[:-1]]


async def test_a_failed_turn_ends_its_conversation_and_the_rest_is_said_to_be_skipped() -> None:
    desk = FakeEndpoint()
    desk.failing = {1: ErrorClass.TIMEOUT}
    await desk.driver.closed([row("a", "1", "2", "3", "4"), row("b")], 1)
    told = [(record.prompt_id, record.turn, record.error_class) for record in desk.driver.records]
    skipped = "skipped_after_error"
    assert told == [("a", 0, None), ("a", 1, "timeout"), ("a", 2, skipped), ("a", 3, skipped), ("b", 0, None)]
    assert len({record.request_id for record in desk.driver.records}) == 5


async def test_a_stream_that_finds_no_connection_pauses_and_its_pause_is_no_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_loop, "RECONNECT_PAUSE_S", 0)
    desk = FakeEndpoint()
    desk.failing = {0: ErrorClass.REFUSED}
    await desk.driver.closed(rows(2), 1)
    refused, after = desk.taken
    assert after.intended_ns > refused.intended_ns + 2  # its end and a look at the clock after the pause lie between


async def test_phases_are_ramp_until_all_streams_are_busy_and_drain_once_one_has_no_work() -> None:
    desk = FakeEndpoint()
    await desk.driver.closed(rows(9), 3)
    assert [desk.phases()[f"p{index}"] for index in range(9)] == ["ramp"] * 2 + ["steady"] * 5 + ["drain"] * 2


async def test_one_stream_alone_is_steady_from_the_first_request_to_the_last() -> None:
    desk = FakeEndpoint()
    timeline = await desk.driver.closed(rows(3), 1)
    assert set(desk.phases().values()) == {"steady"}
    assert timeline.steady is not None
    assert timeline.steady.start_ns == min(timeline.logs[0].opened)
    assert timeline.steady.end_ns == timeline.ended_ns


async def test_fewer_conversations_than_streams_are_never_steady() -> None:
    desk = FakeEndpoint()
    timeline = await desk.driver.closed(rows(2), 4)
    assert set(desk.phases().values()) == {"ramp"}
    assert (timeline.mean_in_flight, timeline.steady_share) == (None, 0.0)


async def test_warm_up_is_warm_up_whatever_was_in_flight() -> None:
    desk = FakeEndpoint()
    desk.driver.phase = RecordPhase.WARMUP
    await desk.driver.closed(rows(5), 2)
    assert set(desk.phases().values()) == {"warmup"}


async def test_no_conversations_are_a_loop_that_ends_at_once() -> None:
    desk = FakeEndpoint()
    await desk.driver.closed(rows(1), 2, count=0)
    assert desk.driver.records == []


async def test_no_conversation_begins_after_the_duration_and_those_that_began_are_ended() -> None:
    desk = FakeEndpoint()
    timeline = await desk.driver.closed([row("a", "1", "2", "3")], 2, count=1000, duration_s=20e-9)
    assert 2 < len(desk.driver.records) < 50
    assert len(desk.driver.records) % 3 == 0
    assert all(began < timeline.started_ns + 22 for began in timeline.logs[0].began)


async def test_a_turnstile_that_closes_ends_the_loop_with_what_is_open() -> None:
    desk = FakeEndpoint()
    exchange = desk.exchange

    async def closing(request: HttpRequest) -> UnparsedExchange:
        if len(desk.sent) == 4:
            desk.driver.shared.conversation_counter.close()
        return await exchange(request)

    desk.exchange = closing  # type: ignore[method-assign]
    await desk.driver.closed(rows(3), 1, count=100_000)
    assert 5 <= len(desk.driver.records) < 400


async def test_cancelling_keeps_what_was_recorded_and_abandons_what_is_open() -> None:
    desk, abandoned, stuck = FakeEndpoint(), [], asyncio.Event()
    exchange = desk.exchange

    async def hanging(request: HttpRequest) -> UnparsedExchange:
        if request.url in ("p0#0", "p1#0", "p2#0"):
            return await exchange(request)
        if request.url == "p4#0":
            stuck.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            abandoned.append(request.url)
            raise

    desk.exchange = hanging  # type: ignore[method-assign]
    task = asyncio.create_task(desk.driver.closed(rows(9), 2))
    await stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.prompt_id for record in desk.driver.records] == ["p0", "p1", "p2"]
    assert sorted(abandoned) == ["p3#0", "p4#0"]
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_an_error_of_ours_is_not_swallowed_and_leaves_no_stream_behind() -> None:
    desk = FakeEndpoint()

    async def broken(request: HttpRequest) -> UnparsedExchange:
        if request.url == "p1#0":
            raise ZeroDivisionError
        return await asyncio.Future()

    desk.exchange = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await desk.driver.closed(rows(5), 3)
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
