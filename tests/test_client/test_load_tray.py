"""What lies ready, in which order, and how far ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from specbench_client.load.conversations import conversation_at
from specbench_client.load.tray import Opening, Tray
from specbench_client.transport.exchange import HttpRequest
from specbench_testing.turns import row, turn


class Kitchen:
    """Makes openings and counts them."""

    def __init__(self, count: int) -> None:
        self.made = 0
        self.count = count

    def __iter__(self) -> Iterator[Opening]:
        for number in range(self.count):
            self.made += 1
            yield Opening(conversation_at([row("a")], number), turn(), HttpRequest("u", b""))


def taken(tray: Tray) -> list[int]:
    found = []
    while (opening := tray.take()) is not None:
        found.append(opening.conversation.index)
    return found


async def test_everything_is_taken_once_and_in_order_with_or_without_filling() -> None:
    for filled in (0, 2, 9):
        tray = Tray(iter(Kitchen(5)), ahead=2)
        tray.fill(filled)
        assert taken(tray) == [0, 1, 2, 3, 4]
        assert tray.take() is None


async def test_what_was_taken_is_laid_out_again_but_no_more_than_that() -> None:
    kitchen = Kitchen(100)
    tray = Tray(iter(kitchen), ahead=3)
    tray.fill(3)
    filling = asyncio.create_task(tray.keep_filled())
    await asyncio.sleep(0)
    assert kitchen.made == 3
    tray.take()
    for _ in range(20):
        await asyncio.sleep(0)
    assert kitchen.made == 4
    filling.cancel()


async def test_filling_ends_when_there_is_nothing_left() -> None:
    tray = Tray(iter(Kitchen(2)), ahead=3)
    filling = asyncio.create_task(tray.keep_filled())
    await asyncio.sleep(0)
    tray.take()
    await filling
    assert taken(tray) == [1]
