"""What lies ready, in which order, and how far ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from specbench_client.load.conversation_runner import PreparedConversation, RequestBuffer
from specbench_client.load.conversations import conversation_at
from specbench_client.transport.exchange import HttpRequest
from specbench_testing.conversation_turns import row, turn


class Kitchen:
    """Makes openings and counts them."""

    def __init__(self, count: int) -> None:
        self.made = 0
        self.count = count

    def __iter__(self) -> Iterator[PreparedConversation]:
        for number in range(self.count):
            self.made += 1
            yield PreparedConversation(conversation_at([row("a")], number), turn(), HttpRequest("u", b""))


def taken(buffer: RequestBuffer) -> list[int]:
    found = []
    while (opening := buffer.take()) is not None:
        found.append(opening.conversation.index)
    return found


async def test_everything_is_taken_once_and_in_order_with_or_without_filling() -> None:
    for filled in (0, 2, 9):
        buffer = RequestBuffer(iter(Kitchen(5)), ahead=2)
        buffer.fill(filled)
        assert taken(buffer) == [0, 1, 2, 3, 4]
        assert buffer.take() is None


async def test_what_was_taken_is_laid_out_again_but_no_more_than_that() -> None:
    kitchen = Kitchen(100)
    buffer = RequestBuffer(iter(kitchen), ahead=3)
    buffer.fill(3)
    filling = asyncio.create_task(buffer.keep_filled())
    await asyncio.sleep(0)
    assert kitchen.made == 3
    buffer.take()
    for _ in range(20):
        await asyncio.sleep(0)
    assert kitchen.made == 4
    filling.cancel()


async def test_filling_ends_when_there_is_nothing_left() -> None:
    buffer = RequestBuffer(iter(Kitchen(2)), ahead=3)
    filling = asyncio.create_task(buffer.keep_filled())
    await asyncio.sleep(0)
    buffer.take()
    await filling
    assert taken(buffer) == [1]
