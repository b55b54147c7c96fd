"""The answer reader: in order, one slice per round, bounded, without loss."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import replace

import pytest

from specbench_client.load.conversation_runner import ParsingQueue
from specbench_client.load.turns import TurnResult
from specbench_client.sliced_tasks import run_to_completion
from specbench_testing.conversation_turns import NOT_RECORDED, CannedTransport, context, turn


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
