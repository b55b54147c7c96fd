"""The closed loop of one worker: order and times of requests, and their phases."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.documents.record import RecordPhase
from specbench_client.load import loops
from specbench_client.load.conversation_runner import ThinkingUsers
from specbench_client.load.conversations import is_filler
from specbench_client.load.loops import sleep_until
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpRequest, UnparsedExchange
from specbench_testing.conversation_turns import row
from specbench_testing.fake_endpoint import Exchange, FakeEndpoint, rows


async def test_every_conversation_is_sent_once_and_recorded() -> None:
    endpoint = FakeEndpoint()
    timeline = await endpoint.driver.closed(rows(10), 3)
    assert endpoint.sent == [f"p{index}#0" for index in range(10)]
    records = endpoint.driver.records
    assert Counter(record.prompt_id for record in records) == Counter(f"p{index}" for index in range(10))
    assert {record.stream_index for record in records} == {0, 1, 2}
    assert timeline.ended_ns == max(turn.intended_ns for turn in endpoint.taken) or timeline.ended_ns > 0


async def test_requests_in_flight_reach_but_never_exceed_the_streams() -> None:
    in_flight, most = 0, 0

    async def counted(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        pending_response = await exchange(request)
        in_flight -= 1
        return pending_response

    endpoint = FakeEndpoint(counted)
    await endpoint.driver.closed(rows(20), 4)
    assert most == 4


async def test_two_runs_send_identical_requests() -> None:
    first, second = FakeEndpoint(), FakeEndpoint()
    for endpoint in (first, second):
        await endpoint.driver.closed([row("a", "1", "2"), *rows(5)], 3, count=11)
    assert first.taken == second.taken
    assert first.driver.records == second.driver.records


async def test_next_request_is_prepared_before_its_stream_is_free() -> None:
    endpoint = FakeEndpoint()
    await endpoint.driver.closed(rows(6), 1)
    assert [turn.conversation.id for turn in endpoint.prepared] == [f"p{index}#0" for index in range(6)]
    ahead = []

    async def watched(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        pending_response = await exchange(request)
        for _ in range(10):
            await asyncio.sleep(0)
        ahead.append(len(endpoint.prepared) - len(endpoint.sent))
        return pending_response

    endpoint = FakeEndpoint(watched)
    await endpoint.driver.closed(rows(6), 1)
    assert all(ahead[:-1])


@pytest.mark.parametrize(("filled", "think_ns"), [(False, 0), (True, 0), (True, 100)])
async def test_request_that_was_sent_ahead_is_the_streams_next(filled: bool, think_ns: int) -> None:
    """A server that keeps connections gets it as soon as an answer has ended, but not while a user reads or thinks."""
    ahead, sent = list[HttpRequest](), list[HttpRequest]()
    after = Counter[str]()

    async def keeping(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        sent.append(request)
        pending_response = await exchange(request)
        following = request.follow() if request.follow is not None else None
        if following is not None:
            ahead.append(following)
            after["filler" if is_filler(request.url) else request.url] += 1
        return pending_response

    endpoint = FakeEndpoint(keeping)
    endpoint.driver.users = ThinkingUsers(lambda *_: think_ns, sleep_until)
    await endpoint.driver.closed([row("a", "1", "2"), *rows(5)], 2, count=12, filled=filled)
    measured = [request.url for request in sent if not is_filler(request.url)]
    assert Counter(measured) == Counter(
        {"a#0": 2, "a#1": 2} | {f"p{index}#{lap}": 1 for index in range(5) for lap in (0, 1)}
    )
    assert [request for request in sent if request in ahead] == ahead
    assert after.keys() <= {"filler", *(f"p{index}#{lap}" for index in range(5) for lap in (0, 1))}
    assert len(ahead) >= 6
    assert after["filler"] == (2 if filled and not think_ns else 0)


async def test_nothing_follows_a_request_that_its_stream_has_not_taken_yet() -> None:
    """The answer to a request that was sent ahead ends while the stream still waits, as for the parsing of others."""

    async def keeping(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        pending_response = await exchange(request)
        following = request.follow() if request.follow is not None else None
        if following is not None and following.follow is not None:
            assert following.follow() is None
        return pending_response

    endpoint = FakeEndpoint(keeping)
    await endpoint.driver.closed(rows(10), 2)
    assert sorted(record.prompt_id for record in endpoint.driver.records) == [f"p{index}" for index in range(10)]


async def test_later_turns_contain_the_models_replies() -> None:
    endpoint = FakeEndpoint()
    await endpoint.driver.closed([row("a", "one", "two")], 1)
    first, second = endpoint.taken
    assert first.messages == (ChatMessage("user", "one"),)
    assert second.messages == (
        ChatMessage("user", "one"),
        ChatMessage("assistant", "re: a#0"),
        ChatMessage("user", "two"),
    )
    assert (first.number, second.number) == (0, 1)


async def test_request_is_intended_for_the_time_its_stream_became_free() -> None:
    ends = []

    async def slow(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        pending_response = await exchange(request)
        ends.append(pending_response.ended_ns)
        endpoint.clock()  # time that the client spends between two requests
        return pending_response

    endpoint = FakeEndpoint(slow)
    timeline = await endpoint.driver.closed([row("a", "1", "2"), *rows(2)], 1)
    assert sorted(turn.intended_ns for turn in endpoint.taken) == [timeline.started_ns, *ends[:-1]]


async def test_failed_turn_skips_the_rest_of_its_conversation() -> None:
    endpoint = FakeEndpoint()
    endpoint.failing = {1: ErrorClass.TIMEOUT}
    await endpoint.driver.closed([row("a", "1", "2", "3", "4"), row("b")], 1)
    outcomes = [(record.prompt_id, record.turn, record.error_class) for record in endpoint.driver.records]
    skipped = "skipped_after_error"
    assert outcomes == [("a", 0, None), ("a", 1, "timeout"), ("a", 2, skipped), ("a", 3, skipped), ("b", 0, None)]
    assert len({record.request_id for record in endpoint.driver.records}) == 5


async def test_pause_after_a_refused_connection_does_not_count_as_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "REFUSED_PAUSE_NS", 0)
    endpoint = FakeEndpoint()
    endpoint.failing = {0: ErrorClass.REFUSED}
    await endpoint.driver.closed(rows(2), 1)
    first, after = endpoint.taken
    assert after.intended_ns > first.intended_ns + 2  # its end and a clock reading after the pause are in between


async def test_phases_are_ramp_then_steady_then_drain() -> None:
    endpoint = FakeEndpoint()
    await endpoint.driver.closed(rows(9), 3)
    assert [endpoint.phases()[f"p{index}"] for index in range(9)] == ["ramp"] * 2 + ["steady"] * 5 + ["drain"] * 2


async def test_single_stream_is_steady_from_its_first_to_its_last_request() -> None:
    endpoint = FakeEndpoint()
    timeline = await endpoint.driver.closed(rows(3), 1)
    assert set(endpoint.phases().values()) == {"steady"}
    assert timeline.steady is not None
    assert timeline.steady.start_ns == min(timeline.logs[0].opened)
    assert timeline.steady.end_ns == timeline.ended_ns


async def test_fewer_conversations_than_streams_are_never_steady() -> None:
    endpoint = FakeEndpoint()
    timeline = await endpoint.driver.closed(rows(2), 4)
    assert set(endpoint.phases().values()) == {"ramp"}
    assert (timeline.mean_in_flight, timeline.steady_share) == (None, 0.0)


async def test_warm_up_requests_are_always_in_phase_warmup() -> None:
    endpoint = FakeEndpoint()
    endpoint.driver.phase = RecordPhase.WARMUP
    await endpoint.driver.closed(rows(5), 2)
    assert set(endpoint.phases().values()) == {"warmup"}


async def test_no_conversation_starts_after_the_duration_and_started_ones_finish() -> None:
    endpoint = FakeEndpoint()
    timeline = await endpoint.driver.closed([row("a", "1", "2", "3")], 2, count=1000, duration_s=20e-9)
    assert 2 < len(endpoint.driver.records) < 50
    assert len(endpoint.driver.records) % 3 == 0
    assert all(began < timeline.started_ns + 22 for began in timeline.logs[0].began)


async def test_closed_conversation_counter_ends_the_loop_after_open_conversations() -> None:

    async def closing(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        if len(endpoint.sent) == 4:
            endpoint.driver.shared.conversation_counter.close()
        return await exchange(request)

    endpoint = FakeEndpoint(closing)
    await endpoint.driver.closed(rows(3), 1, count=100_000)
    assert len(endpoint.driver.records) == 5


async def test_cancelling_keeps_records_and_abandons_open_requests() -> None:
    abandoned, stuck = [], asyncio.Event()

    async def hanging(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        if request.url in ("p0#0", "p1#0", "p2#0"):
            return await exchange(request)
        if request.url == "p4#0":
            stuck.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            abandoned.append(request.url)
            raise

    endpoint = FakeEndpoint(hanging)
    task = asyncio.create_task(endpoint.driver.closed(rows(9), 2))
    await stuck.wait()
    while len(endpoint.driver.records) < 3:  # noqa: ASYNC110 -- answers that have ended are read when no other ends
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.prompt_id for record in endpoint.driver.records] == ["p0", "p1", "p2"]
    assert sorted(abandoned) == ["p3#0", "p4#0"]
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_internal_error_is_raised_and_ends_all_streams() -> None:

    async def broken(request: HttpRequest, exchange: Exchange) -> UnparsedExchange:
        if request.url == "p1#0":
            raise ZeroDivisionError
        return await asyncio.Future()

    endpoint = FakeEndpoint(broken)
    with pytest.raises(ZeroDivisionError):
        await endpoint.driver.closed(rows(5), 3)
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
