"""Complete and Failed of runs and campaigns, as a Job has them: `kubectl wait` ends for one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus, ConditionType
from specbench_api.spec.status import RunStatus
from specbench_operator.errors import Stop
from specbench_testing.campaign_world import CampaignWorld
from specbench_testing.cluster_world import launched
from specbench_testing.run_phases import RUNS

COMPLETE, FAILED = "Complete", "Failed"
ENDED = {
    "invalid": FAILED,
    "report failed": FAILED,
    "engines failed": FAILED,
    "trustworthy": COMPLETE,
    "untrustworthy": COMPLETE,
    "finished and suspended": COMPLETE,
}
"""The phases of a run in which one of the two conditions is True; in the others, none is."""


def true_ones(conditions: list[dict[str, Any]]) -> list[str]:
    return [row["type"] for row in conditions if row["type"] in (COMPLETE, FAILED) and row["status"] == "True"]


def ended_as(status: RunStatus | CampaignStatus) -> list[str]:
    return true_ones(status.to_dict()["conditions"])


@pytest.mark.parametrize("name", [name for name in RUNS if "vocabulary" not in name])
def test_a_run_that_has_ended_is_complete_or_failed(name: str) -> None:
    conditions = RUNS[name]()["status"].get("conditions", [])
    assert true_ones(conditions) == ([ENDED[name]] if name in ENDED else [])


def test_a_failed_run_has_the_reason_and_message_of_the_failure() -> None:
    rows = {row["type"]: row for row in RUNS["engines failed"]()["status"]["conditions"]}
    assert rows["Failed"]["reason"] == rows["Stalled"]["reason"] == "Crashed"
    assert "no CUDA device" in rows["Failed"]["message"]
    assert rows["Complete"] | {"reason": "Failed", "message": ""} == rows["Complete"]


def test_a_run_is_failed_only_when_its_gpus_are_released() -> None:
    world = launched()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
    world.reconcile()
    assert world.status_and_reason(ConditionType.STALLED)[0] == "True"
    assert ended_as(world.status) == []
    world.settle()
    assert ended_as(world.status) == [FAILED]


def in_progress(world: CampaignWorld) -> None:
    world.settle()


def all_succeeded(world: CampaignWorld) -> None:
    world.finish_all()


def one_untrustworthy(world: CampaignWorld) -> None:
    world.settle()
    world.finish(world.planned[0], trustworthy=False)
    world.finish_all()


def one_failed(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0])
    world.finish_all()


def suspended(world: CampaignWorld) -> None:
    world.settle()
    world.change("spec.suspend", True)


def refused(world: CampaignWorld) -> None:
    """A step that is rejected is tried again."""
    world.store.refuse[world.planned[0]] = Stop("ManifestRefused", "spec.x")
    with pytest.raises(Stop):
        world.reconcile()


def stopped(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0])
    world.settle()


def invalid(world: CampaignWorld) -> None:
    world.change("spec.axes[0].values", ["no-such-engine"])


@pytest.mark.parametrize(
    ("edits", "act", "expected"),
    [
        ({}, in_progress, []),
        ({}, suspended, []),
        ({}, refused, []),
        ({}, all_succeeded, [COMPLETE]),
        ({}, one_untrustworthy, [COMPLETE]),
        ({}, one_failed, [FAILED]),
        ({"spec.schedule": "@yearly"}, all_succeeded, [COMPLETE]),
        ({"spec.schedule": "@yearly"}, one_failed, [FAILED]),
        ({"spec.failurePolicy": "Stop"}, stopped, [FAILED]),
        ({}, invalid, [FAILED]),
    ],
)
def test_a_campaign_whose_round_has_ended_is_complete_or_failed(
    edits: dict[str, Any], act: Callable[[CampaignWorld], None], expected: list[str]
) -> None:
    world = CampaignWorld(edits)
    act(world)
    assert ended_as(world.status) == expected
    ready = world.status_and_reason(CampaignConditionType.READY)[0] is ConditionStatus.TRUE
    assert ready or COMPLETE not in expected


def test_a_new_round_of_a_campaign_is_neither_complete_nor_failed() -> None:
    world = CampaignWorld()
    one_failed(world)
    world.change("spec.rerun", "again")
    assert ended_as(world.status) == []
