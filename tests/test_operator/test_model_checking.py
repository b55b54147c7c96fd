"""The decisions about runs and campaigns, explored by a model checker: every order of events up to a number of faults.

`make test-model` explores a million states; here are the first thousands, and bugs that the checker must find.
"""

from __future__ import annotations

from typing import Any

import pytest

from specbench_operator.campaign import decide
from specbench_operator.campaign.view import CampaignView
from specbench_operator.run import view as run_view
from specbench_testing.campaign_model import MODELS, CampaignModel
from specbench_testing.model_checker import Exploration, Model, explore, replay
from specbench_testing.run_model import RunModel


def explored(model: str, states: int, faults: int) -> Exploration:
    """Explore a model; fails with a test of the shortest trace to a violation."""
    found = explore(MODELS[model](), states_max=states, faults_max=faults)
    if found.violation:
        pytest.fail(f"{found.violation.message}\n\n{found.violation.as_test(model)}", pytrace=False)
    return found


@pytest.mark.parametrize("model", [name for name in MODELS if "stale" not in name])
def test_every_order_of_steps_without_a_fault_keeps_the_invariants(model: str) -> None:
    assert explored(model, 100_000, 0).faults == 0


@pytest.mark.draws
@pytest.mark.parametrize("model", MODELS)
def test_faults_keep_the_invariants(model: str) -> None:
    assert explored(model, 4_000, 3).states == 4_000


def violation(model: Model[Any], states: int = 100_000, faults: int = 1) -> str:
    """The violation that the checker finds, which must also follow from its trace alone."""
    found = explore(model, states_max=states, faults_max=faults).violation
    assert found is not None, "the bug is not found"
    assert replay(model, found.actions) == found.message
    return found.message


def without_pods(children: Any, settings: Any, now: Any) -> bool:
    return any(job.deleting or not job.ended for job in children.launch_jobs)


def is_always_free(view: CampaignView) -> int:
    return 1 + len(view.existing)


@pytest.mark.draws
def test_the_checker_finds_a_decision_that_ignores_a_live_engine_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_view, "holds_gpus", without_pods)
    assert "two engines may hold GPUs at once" in violation(RunModel())


OUTDATED_PODS = (
    "operator decides",
    "operator writes: create ConfigMap demo-plan",
    "operator writes: create Service demo-g0-0",
    "operator writes: create Job demo-g0-0",
    "cache of pods lags behind",
    "Job demo-g0-0#1 creates its pod",
    "user deletes Job demo-g0-0#1",
    "operator writes: status",
    "operator decides",
    "operator writes: delete Service demo-g0-0",
    "operator writes: create Service demo-g0-1",
    "operator writes: create Job demo-g0-1",
)
"""The shortest trace to two engines if the operator acts on its caches alone, as the checker printed it."""


def test_the_second_look_prevents_two_engines_if_the_cache_has_older_pods_than_jobs() -> None:
    assert "two engines may hold GPUs at once" in replay(RunModel(stale=True, confirms=False), OUTDATED_PODS)
    with pytest.raises(ValueError, match="'operator writes: create Service demo-g0-1' is not possible here"):
        replay(RunModel(stale=True), OUTDATED_PODS)


def test_the_checker_finds_a_campaign_that_exceeds_its_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "free_places", is_always_free)
    assert "more than parallelism" in violation(CampaignModel())
