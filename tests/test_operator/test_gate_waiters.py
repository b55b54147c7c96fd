"""Runs whose gate waits for another run are reconciled again when that run ends, and at no other time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_operator.cluster.api import RUN
from specbench_operator.handlers.reconcilers import GateWaiters, ReconcileResult, Workers
from specbench_operator.handlers.work_queue import ResourceKey, WorkQueue

MAIN, WAITER, ELSEWHERE = (
    ResourceKey(RUN, "bench", "main"),
    ResourceKey(RUN, "bench", "branch"),
    ResourceKey(RUN, "other", "main"),
)
ENDED: dict[str, Any] = {"status": {"completionTime": "2026-01-02T12:00:00Z"}}


@pytest.mark.parametrize(
    ("changed", "run", "woken"),
    [
        (MAIN, ENDED, [WAITER]),
        (MAIN, {"status": {"phase": "Running"}}, []),
        (MAIN, {}, []),
        (ELSEWHERE, ENDED, []),
        (WAITER, ENDED, []),
    ],
    ids=["ended", "at work", "just created", "of another namespace", "itself"],
)
def test_only_the_end_of_the_awaited_run_wakes_its_waiters(
    changed: ResourceKey, run: dict[str, Any], woken: list[ResourceKey]
) -> None:
    gate_waiters = GateWaiters()
    gate_waiters.update(WAITER, frozenset({"main", "older"}))
    assert gate_waiters.waiters_of(changed, run) == woken


@given(st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from("xyz")))))
def test_the_last_update_of_each_waiter_counts(updates: list[tuple[str, frozenset[str]]]) -> None:
    gate_waiters, last = GateWaiters(), dict[str, frozenset[str]]()
    for waiter, names in updates:
        gate_waiters.update(ResourceKey(RUN, "bench", waiter), names)
        last[waiter] = names
    for name in "xyz":
        woken = [key.name for key in gate_waiters.waiters_of(ResourceKey(RUN, "bench", name), ENDED)]
        assert woken == sorted(waiter for waiter, names in last.items() if name in names)


class GateReconciler:
    """Reports that the run waits for another run, in the first reconcile only."""

    def __init__(self) -> None:
        self.outcomes = [ReconcileResult(900, "1", frozenset({"main"})), ReconcileResult()]

    def reconcile(self, _key: ResourceKey) -> ReconcileResult:
        return self.outcomes.pop(0)


async def test_a_reconcile_result_is_remembered_until_the_next_one() -> None:
    queue = WorkQueue()
    workers = Workers(queue, {RUN: GateReconciler()}, lambda _namespace: True)
    queue.add(WAITER)
    await workers.work_once()
    assert workers.rests(WAITER, "1"), "the resync skips it"
    assert workers.gate_waiters.waiters_of(MAIN, ENDED) == [WAITER]
    queue.add(WAITER)
    await asyncio.wait_for(workers.work_once(), 5)
    assert workers.gate_waiters.waiters_of(MAIN, ENDED) == []
