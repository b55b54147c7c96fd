"""The buffer of prepared requests: order and how far it is filled ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from specbench_client.load.conversation_runner import PreparedConversation, RequestBuffer
from specbench_client.load.conversations import conversation_at
from specbench_client.load.turns import Turn
from specbench_client.transport.exchange import HttpRequest
from specbench_testing.conversation_turns import row


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
