"""Runs that are resumed together do not all begin: the limit of their namespace counts those that just began."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specbench_api.fence.model import Fence
from specbench_operator.handlers.reconcilers import BEGUN_S, BegunRuns
from specbench_operator.run.decide import decide_run
from specbench_operator.state.run import NamespaceRun, RunDecision
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import SETTINGS, operator_run

STORES = [{"endpoint": "*", "bucket": "*", "operatorIdentity": True}]
NAMES = ("a", "b", "c", "d", "e")


def listed(at: int, *, suspended: bool = True) -> NamespaceRun:
    """A run as it was listed before it was resumed."""
    created = f"2026-01-02T00:00:{at:02}Z"
    return NamespaceRun(NAMES[at], f"uid-{at}", created, "Suspended", "Suspended", suspended=suspended)


def decide(begun: BegunRuns, at: int, runs: int) -> RunDecision:
    """Decide about the run of this number, whose observation was made before the others were resumed."""
    limits = {"limits": {"runs": runs}, "stores": STORES, "secretsOptIn": False, "nodeLabels": ["*"]}
    resource = operator_run()
    resource["metadata"].update(name=NAMES[at], uid=f"uid-{at}", creationTimestamp=listed(at).created)
    others = tuple(listed(number) for number in range(len(NAMES)))
    settings = replace(SETTINGS, fence=Fence.from_json(json.dumps({**limits, "gpuResources": ["*"]})))
    world = ClusterWorld(resource, settings=settings)
    observed = replace(world.observed(), namespace_runs=others)
    with begun.deciding(observed) as current:
        decision = decide_run(current, settings, world.now)
        begun.note(current, decision)
    return decision


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_only_as_many_runs_begin_as_the_limit_allows(runs: int) -> None:
    begun = BegunRuns()
    decisions = [decide(begun, at, runs) for at in reversed(range(len(NAMES)))]
    assert [bool(decision.apply) for decision in decisions] == [True] * runs + [False] * (len(NAMES) - runs)


def test_a_run_is_forgotten_when_lists_show_what_became_of_it() -> None:
    now = [0.0]
    begun = BegunRuns(lambda: now[0])
    assert decide(begun, 0, 1).apply
    assert not decide(begun, 1, 1).apply
    now[0] = BEGUN_S
    assert decide(begun, 1, 1).apply
