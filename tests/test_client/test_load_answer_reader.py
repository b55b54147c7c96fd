"""Reading between the sockets' turns: in order, one slice a round, bounded, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import replace

import pytest

from specbench_client.cooperative import run_to_completion
from specbench_client.load.answer_reader import AnswerReader
from specbench_client.load.turns import TurnResult
from specbench_testing.conversation_turns import NOT_RECORDED, CannedTransport, context, turn


def taken(reply: str) -> TurnResult:
    return replace(run_to_completion(context(CannedTransport()).read_result(turn(), NOT_RECORDED)), reply_text=reply)


def slow(log: list[str], name: str, slices: int = 3) -> Generator[None, None, TurnResult]:
    for _ in range(slices):
        log.append(name)
        yield
    return taken(name)


async def test_answers_are_read_in_the_order_in_which_they_came() -> None:
    log: list[str] = []
    read: list[TurnResult] = []
    async with AnswerReader() as reader:
        for name in "abc":
            await reader.submit(slow(log, name), read.append)
        await reader.drained()
    assert log == [*"aaabbbccc"]
    assert [one.reply_text for one in read] == ["a", "b", "c"]


async def test_an_answer_for_which_a_turn_waits_goes_before_those_that_were_submitted() -> None:
    log: list[str] = []
    async with AnswerReader() as reader:
        for name in "ab":
            await reader.submit(slow(log, name), lambda _: None)
        assert (await reader.read(slow(log, "urgent"))).reply_text == "urgent"
        assert "b" not in log


async def test_between_two_slices_others_have_their_turn() -> None:
    log: list[str] = []

    async def beat() -> None:
        for _ in range(3):
            log.append("beat")
            await asyncio.sleep(0)

    async with AnswerReader() as reader:
        await asyncio.gather(reader.read(slow(log, "slice")), beat())
    assert log.count("slice") == 3
    assert log != sorted(log)
    assert log != sorted(log, reverse=True)


async def test_who_submits_too_much_waits() -> None:
    held = asyncio.Event()
    read: list[TurnResult] = []

    def stuck() -> Generator[None, None, TurnResult]:
        while not held.is_set():
            yield
        return taken("stuck")

    async with AnswerReader(limit=2) as reader:
        for _ in range(2):
            await reader.submit(stuck(), read.append)
        third = asyncio.create_task(reader.submit(slow([], "c"), read.append))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(third), 0.05)
        held.set()
        await third
        await reader.drained()
    assert len(read) == 3


async def test_a_fault_of_ours_while_reading_reaches_whoever_waits() -> None:
    def broken() -> Generator[None, None, TurnResult]:
        yield
        raise ZeroDivisionError

    async with AnswerReader() as reader:
        await reader.submit(broken(), lambda _: None)
        with pytest.raises(ZeroDivisionError):
            await reader.drained()
        with pytest.raises(ZeroDivisionError):
            await reader.read(slow([], "x"))


async def test_who_waits_for_a_reading_may_give_up() -> None:
    async with AnswerReader() as reader:
        waiting = asyncio.create_task(reader.read(slow([], "a", slices=5)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await reader.read(slow([], "b"))).reply_text == "b"
