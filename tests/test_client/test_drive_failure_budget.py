"""Failure budget: when failures end a load."""

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
        self.health_checks = 0

    async def alive(self) -> bool:
        self.health_checks += 1
        return self.is_alive


def record(error_class: str | None = None) -> Record:
    return replace(blank_record(), error_class=error_class, error=error_class and "words")


async def count_until_failure(count: FailureCounter, *error_classes: str | None) -> int:
    """Return how many records were added before the load failed."""
    for number, error_class in enumerate(error_classes, start=1):
        try:
            await count.add(record(error_class))
        except EngineFailed:
            return number
    return len(error_classes)


async def test_too_many_failures_end_the_load_with_the_last_error() -> None:
    count = FailureCounter(FailureBudget(), Engine().alive)
    for _ in range(7):
        await count.add(record("http_5xx"))
    with pytest.raises(EngineFailed, match="8 of 8 requests failed; the last one: http_5xx: words") as failed:
        await count.add(record("http_5xx"))
    assert failed.value.reason == "EngineLost"


async def test_few_failures_do_not_end_the_load() -> None:
    count = FailureCounter(FailureBudget(), Engine().alive)
    assert await count_until_failure(count, *[None] * 9, "http_5xx", *[None] * 10) == 20


@pytest.mark.parametrize("is_alive", [True, False])
async def test_consecutive_connection_failures_end_the_load_only_if_the_engine_is_dead(is_alive: bool) -> None:
    engine = Engine(is_alive=is_alive)
    error_classes = [None, None, *["refused"] * 4, "reset", "refused"]
    assert await count_until_failure(FailureCounter(TOLERANT, engine.alive), *error_classes) == (8 if is_alive else 7)
    assert engine.health_checks == 1


async def test_skipped_requests_do_not_count_and_do_not_interrupt_a_sequence() -> None:
    count = FailureCounter(TOLERANT, Engine(is_alive=False).alive)
    assert await count_until_failure(count, *["refused", "skipped_after_error"] * 5) == 9
