"""The conversation runner's buffer of prepared requests, and its queue of answers: in order, bounded, without loss."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from dataclasses import replace

import pytest

from specbench_client.cooperative_tasks import run_to_completion
from specbench_client.load.conversation_runner import ParsingQueue
from specbench_client.load.conversations import conversation_at
from specbench_client.load.request_buffer import PreparedConversation, RequestBuffer
from specbench_client.load.turns import Turn, TurnResult
from specbench_client.transport.exchange import HttpRequest
from specbench_testing.conversation_turns import NOT_RECORDED, CannedTransport, context, row, turn
from specbench_testing.present import present


class ConversationSource:
    """Prepares conversations and counts them."""

    def __init__(self, count: int) -> None:
        self.made = 0
        self.count = count

    def __iter__(self) -> Iterator[PreparedConversation]:
        for number in range(self.count):
            self.made += 1
            yield PreparedConversation(Turn(conversation_at([row("a")], number), 0, ()), HttpRequest("u", b""))


def take_all(buffer: RequestBuffer) -> list[int]:
    found = []
    while (opening := buffer.take()) is not None:
        found.append(opening.turn.conversation.index)
    return found


async def test_every_request_is_taken_once_in_order_with_or_without_filling() -> None:
    for filled in (0, 2, 9):
        buffer = RequestBuffer(iter(ConversationSource(5)), ahead=2)
        buffer.fill(filled)
        assert take_all(buffer) == [0, 1, 2, 3, 4]
        assert buffer.take() is None


def test_only_prepared_conversations_are_taken_where_none_may_be_prepared() -> None:
    source = ConversationSource(3)
    buffer = RequestBuffer(iter(source), ahead=2)
    assert (buffer.take_buffered(), source.made) == (None, 0)
    buffer.fill(1)
    assert present(buffer.take_buffered()).turn.conversation.index == 0
    assert (buffer.take_buffered(), source.made) == (None, 1)
    assert take_all(buffer) == [1, 2]


async def test_buffer_is_refilled_up_to_its_limit() -> None:
    source = ConversationSource(100)
    buffer = RequestBuffer(iter(source), ahead=3)
    buffer.fill(3)
    filling = asyncio.create_task(buffer.keep_filled())
    await asyncio.sleep(0)
    assert source.made == 3
    buffer.take()
    for _ in range(20):
        await asyncio.sleep(0)
    assert source.made == 4
    filling.cancel()


async def test_filling_ends_when_the_source_is_exhausted() -> None:
    buffer = RequestBuffer(iter(ConversationSource(2)), ahead=3)
    filling = asyncio.create_task(buffer.keep_filled())
    await asyncio.sleep(0)
    buffer.take()
    await filling
    assert take_all(buffer) == [1]


def turn_result(reply: str) -> TurnResult:
    return replace(run_to_completion(context(CannedTransport()).read_result(turn(), NOT_RECORDED)), reply_text=reply)


def slow(log: list[str], name: str, slices: int = 3) -> Generator[None, None, TurnResult]:
    for _ in range(slices):
        log.append(name)
        yield
    return turn_result(name)


async def test_answers_are_read_in_order_of_arrival() -> None:
    log: list[str] = []
    read: list[TurnResult] = []
    async with ParsingQueue() as parsing_queue:
        for name in "abc":
            await parsing_queue.submit(slow(log, name), read.append)
        await parsing_queue.drained()
    assert log == [*"aaabbbccc"]
    assert [one.reply_text for one in read] == ["a", "b", "c"]


async def test_no_answer_is_read_while_others_end_until_half_of_the_limit_waits() -> None:
    """Streams that end together send their next requests first."""
    log: list[str] = []
    async with ParsingQueue(limit=8) as parsing_queue:
        for name in "abcdef":
            await parsing_queue.submit(slow(log, name, 1), lambda _: None)
            await asyncio.sleep(0)
            assert log == (["a"] if name == "f" else [])
        await parsing_queue.drained()
    assert log == [*"abcdef"]


async def test_answer_that_a_turn_waits_for_is_read_while_others_end() -> None:
    log: list[str] = []
    async with ParsingQueue() as parsing_queue:
        reading = asyncio.create_task(parsing_queue.read(slow(log, "urgent", 1)))
        for name in "abcdef":
            await parsing_queue.submit(slow(log, name, 1), lambda _: None)
            await asyncio.sleep(0)
        assert log == ["a", "urgent"], "a was begun already"
        await reading


async def test_answer_that_a_turn_waits_for_is_read_before_submitted_ones() -> None:
    log: list[str] = []
    async with ParsingQueue() as parsing_queue:
        for name in "ab":
            await parsing_queue.submit(slow(log, name), lambda _: None)
        assert (await parsing_queue.read(slow(log, "urgent"))).reply_text == "urgent"
        assert "b" not in log


async def test_other_tasks_run_between_two_slices() -> None:
    log: list[str] = []

    async def beat() -> None:
        for _ in range(3):
            log.append("beat")
            await asyncio.sleep(0)

    async with ParsingQueue() as parsing_queue:
        await asyncio.gather(parsing_queue.read(slow(log, "slice")), beat())
    assert log.count("slice") == 3
    assert log != sorted(log)
    assert log != sorted(log, reverse=True)


async def test_submit_waits_when_the_limit_is_reached() -> None:
    held = asyncio.Event()
    read: list[TurnResult] = []

    def stuck() -> Generator[None, None, TurnResult]:
        while not held.is_set():
            yield
        return turn_result("stuck")

    async with ParsingQueue(limit=2) as parsing_queue:
        for _ in range(2):
            await parsing_queue.submit(stuck(), read.append)
        third = asyncio.create_task(parsing_queue.submit(slow([], "c"), read.append))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not third.done()
        held.set()
        await third
        await parsing_queue.drained()
    assert len(read) == 3


async def test_internal_error_while_reading_is_raised_to_the_waiter() -> None:
    def broken() -> Generator[None, None, TurnResult]:
        yield
        raise ZeroDivisionError

    async with ParsingQueue() as parsing_queue:
        await parsing_queue.submit(broken(), lambda _: None)
        with pytest.raises(ZeroDivisionError):
            await parsing_queue.drained()
        with pytest.raises(ZeroDivisionError):
            await parsing_queue.read(slow([], "x"))


async def test_waiter_can_be_cancelled() -> None:
    async with ParsingQueue() as parsing_queue:
        waiting = asyncio.create_task(parsing_queue.read(slow([], "a", slices=5)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await parsing_queue.read(slow([], "b"))).reply_text == "b"
