"""Runs whose gate waits for another run are looked at again when that one ends, and for nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_operator.cluster.kinds import RUN
from specbench_operator.handlers.awaiting import Awaiting
from specbench_operator.handlers.queue import Key, WorkQueue
from specbench_operator.handlers.reconciler import Outcome, Workers
from specbench_operator.telemetry import Telemetry

MAIN, WAITER, ELSEWHERE = Key(RUN, "bench", "main"), Key(RUN, "bench", "branch"), Key(RUN, "other", "main")
ENDED: dict[str, Any] = {"status": {"completionTime": "2026-01-02T12:00:00Z"}}


@pytest.mark.parametrize(
    ("heard", "run", "woken"),
    [
        (MAIN, ENDED, [WAITER]),
        (MAIN, {"status": {"phase": "Running"}}, []),
        (MAIN, {}, []),
        (ELSEWHERE, ENDED, []),
        (WAITER, ENDED, []),
    ],
    ids=["ended", "at work", "just created", "of another namespace", "itself"],
)
def test_the_end_of_what_is_awaited_wakes_and_nothing_else_does(
    heard: Key, run: dict[str, Any], woken: list[Key]
) -> None:
    awaiting = Awaiting()
    awaiting.told(WAITER, frozenset({"main", "older"}))
    assert awaiting.ended(heard, run) == woken


@given(st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from("xyz")))))
def test_the_last_word_of_each_run_counts(told: list[tuple[str, frozenset[str]]]) -> None:
    awaiting, last = Awaiting(), dict[str, frozenset[str]]()
    for waiter, names in told:
        awaiting.told(Key(RUN, "bench", waiter), names)
        last[waiter] = names
    for name in "xyz":
        woken = [key.name for key in awaiting.ended(Key(RUN, "bench", name), ENDED)]
        assert woken == sorted(waiter for waiter, names in last.items() if name in names)


class Gate:
    """A run that waits for another one, until it does not."""

    def __init__(self) -> None:
        self.outcomes = [Outcome(900, "1", frozenset({"main"})), Outcome()]

    def reconcile(self, _key: Key) -> Outcome:
        return self.outcomes.pop(0)


async def test_what_a_look_came_to_is_remembered_until_the_next_one() -> None:
    queue = WorkQueue()
    workers = Workers(queue, {RUN: Gate()}, Telemetry())
    queue.add(WAITER)
    await workers.work_once()
    assert workers.rests(WAITER, "1"), "the relist passes it over"
    assert workers.awaiting.ended(MAIN, ENDED) == [WAITER]
    queue.add(WAITER)
    await asyncio.wait_for(workers.work_once(), 5)
    assert workers.awaiting.ended(MAIN, ENDED) == []
