"""When a load is given up because of its failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench_api.outcome.record import Record
from specbench_client.drive.failure_budget import FailureBudget, FailureCounter
from specbench_client.errors import EngineFailed
from specbench_testing.conversation_turns import blank_record

TOLERANT = FailureBudget(share=1)


class Engine:
    def __init__(self, *, is_alive: bool = True) -> None:
        self.is_alive = is_alive
        self.asked = 0

    async def alive(self) -> bool:
        self.asked += 1
        return self.is_alive


def record(error_class: str | None = None) -> Record:
    return replace(blank_record(), error_class=error_class, error=error_class and "words")


async def counted(count: FailureCounter, *error_classes: str | None) -> int:
    """How many were counted before it was given up."""
    for number, error_class in enumerate(error_classes, start=1):
        try:
            await count.add(record(error_class))
        except EngineFailed:
            return number
    return len(error_classes)


async def test_many_failures_end_the_load_with_the_last_ones_words() -> None:
    count = FailureCounter(FailureBudget(), Engine().alive)
    for _ in range(7):
        await count.add(record("http_5xx"))
    with pytest.raises(EngineFailed, match="8 of 8 requests failed; the last one: http_5xx: words") as failed:
        await count.add(record("http_5xx"))
    assert failed.value.reason == "EngineLost"


async def test_few_failures_are_records_and_the_load_goes_on() -> None:
    count = FailureCounter(FailureBudget(), Engine().alive)
    assert await counted(count, *[None] * 9, "http_5xx", *[None] * 10) == 20


@pytest.mark.parametrize("is_alive", [True, False])
async def test_connections_that_fail_in_a_row_end_it_only_when_the_engine_is_dead(is_alive: bool) -> None:
    engine = Engine(is_alive=is_alive)
    told = [None, None, *["refused"] * 4, "reset", "refused"]
    assert await counted(FailureCounter(TOLERANT, engine.alive), *told) == (8 if is_alive else 7)
    assert engine.asked == 1


async def test_what_was_never_sent_neither_failed_nor_breaks_a_row() -> None:
    count = FailureCounter(TOLERANT, Engine(is_alive=False).alive)
    assert await counted(count, *["refused", "skipped_after_error"] * 5) == 9
