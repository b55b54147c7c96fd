"""Rounds of a campaign: started by a token or the schedule, after a restart of the operator, and the history limit."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase, CampaignRound
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.fake_api_store import OperatorKilled
from specbench_testing.operator_builders import NOON

NIGHTLY = {"spec.schedule": "0 3 * * *", "spec.timeZone": "Europe/Berlin"}
THREE = datetime(2026, 1, 3, 2, tzinfo=UTC)
"""The first firing after the noon at which these worlds begin."""


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld({"spec.parallelism": 6})


def round_of(world: CampaignWorld) -> CampaignRound:
    assert world.status.round is not None
    return world.status.round


def until(world: CampaignWorld, moment: datetime) -> None:
    world.pass_time((moment - world.now).total_seconds())


def test_a_new_token_begins_a_new_round_of_all_runs(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.rerun", "2026-01-03")
    world.finish_all()
    assert round_of(world).number == 2
    assert round_of(world).token == "2026-01-03"
    assert world.store.created == [*world.planned, *(f"{name}-2" for name in world.planned)]
    assert world.status.progress == "6/6"
    assert world.events.count("RoundStarted") == 2


def test_the_same_token_and_a_token_taken_away_ask_for_nothing(world: CampaignWorld) -> None:
    world.edit("spec.rerun", "a")
    world.finish_all()
    world.edit("spec.rerun", "")
    world.settle()
    world.edit("spec.rerun", "a")
    world.settle()
    assert round_of(world).number == 1


def test_a_token_waits_for_the_round_at_work(world: CampaignWorld) -> None:
    world.settle()
    world.edit("spec.rerun", "b")
    world.settle()
    assert round_of(world).number == 1
    world.finish_all()
    assert round_of(world).number == 2


def test_a_round_is_found_again_on_its_runs_when_status_is_lost(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.rerun", "b")
    world.settle()
    before = round_of(world)
    world.lose_status()
    world.settle()
    assert round_of(world).model_copy(update={"start_time": None}) == before.model_copy(update={"start_time": None})
    assert parse_timestamp(round_of(world).start_time) == world.now
    world.finish_all()
    assert len(world.store.created) == 12


@pytest.mark.parametrize("writes", range(8))
def test_an_operator_that_dies_while_it_begins_a_round_begins_it_once(world: CampaignWorld, writes: int) -> None:
    world.finish_all()
    world.edit("spec.rerun", "b")
    world.store.writes_left = writes
    with pytest.raises(OperatorKilled):
        world.settle()
    world.store.writes_left = None
    world.finish_all()
    assert round_of(world).number == 2
    assert world.store.created == [*world.planned, *(f"{name}-2" for name in world.planned)]


def test_a_token_that_was_followed_by_another_before_its_round_was_told_begins_two_rounds(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.rerun", "b")
    world.store.writes_left = 6
    with pytest.raises(OperatorKilled):
        world.look()
    world.store.writes_left = None
    assert round_of(world).number == 1, "its runs are there, and its status is not"
    world.edit("spec.rerun", "c")
    world.finish_all()
    assert (round_of(world).number, round_of(world).token) == (3, "c")


def test_an_operator_that_dies_while_a_firing_begins_a_round_does_not_call_it_left_out() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    until(world, THREE)
    world.store.writes_left = 6
    with pytest.raises(OperatorKilled):
        world.look()
    world.store.writes_left = None
    world.settle()
    assert parse_timestamp(round_of(world).fire_time) == THREE
    assert "FiringSkipped" not in world.events


def test_rounds_beyond_the_history_are_deleted_and_the_others_stay(world: CampaignWorld) -> None:
    world.edit("spec.runHistoryLimit", 2)
    for token in ("a", "b", "c"):
        world.edit("spec.rerun", token)
        world.finish_all()
    kept = {run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values()}
    assert round_of(world).number == 3
    assert kept == {"2", "3"}


@pytest.mark.parametrize("limit", [1, 2])
def test_what_the_gates_of_a_round_compare_with_stays_beyond_the_history(world: CampaignWorld, limit: int) -> None:
    """Of each cell the newest run with results, wherever it is; a renamed axis is the same axis."""
    world.edit("spec.template.spec.gate", {"baselineRef": {"campaign": NAME}})
    world.edit("spec.runHistoryLimit", limit)
    world.finish_all()
    first = set(world.planned)
    world.edit("spec.rerun", "a")
    world.settle()
    assert first < set(world.runs), "the second round is at work, and is compared with them"
    failing = next(name for name in world.mine if name not in first)
    world.fail(failing)
    world.finish_all()
    world.edit("spec.axes[0].name", "program")
    world.edit("spec.rerun", "b")
    world.finish_all()
    assert round_of(world).number == 3
    rounds = Counter(run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values())
    assert rounds == {"3": 6, "2": 5 if limit == 1 else 6, "1": 1}
    kept = next(name for name, run in world.runs.items() if run["metadata"]["labels"]["specbench.io/round"] == "1")
    assert failing.startswith(f"{kept}-"), "its cell had no results in the second round"


def test_a_gate_against_something_else_keeps_no_run(world: CampaignWorld) -> None:
    world.edit("spec.template.spec.gate", {"baselineRef": {"campaign": "another"}})
    world.edit("spec.runHistoryLimit", 1)
    world.finish_all()
    world.edit("spec.rerun", "a")
    world.finish_all()
    assert {run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values()} == {"2"}


def test_the_first_round_begins_with_the_campaign_and_the_second_with_the_schedule() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    assert world.status.phase is CampaignPhase.SCHEDULED
    assert parse_timestamp(world.status.next_schedule_time) == THREE
    assert world.requeue_after_s == (THREE - world.now).total_seconds()
    until(world, THREE - timedelta(seconds=1))
    world.settle()
    assert round_of(world).number == 1
    until(world, THREE)
    world.settle()
    assert round_of(world).number == 2
    assert parse_timestamp(round_of(world).fire_time) == THREE
    assert parse_timestamp(world.status.last_schedule_time) == THREE
    assert parse_timestamp(world.status.next_schedule_time) == THREE + timedelta(days=1)
    assert all(
        run["metadata"]["annotations"]["specbench.io/fire-time"] == "2026-01-03T02:00:00Z"
        for name, run in world.runs.items()
        if name.endswith("-2")
    )


def test_a_firing_that_falls_into_a_round_at_work_is_left_out_and_told() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.settle()
    until(world, THREE)
    world.settle()
    assert round_of(world).number == 1
    assert world.events.count("FiringSkipped") == 1
    world.finish_all()
    assert round_of(world).number == 1
    until(world, THREE + timedelta(days=1))
    world.settle()
    assert round_of(world).number == 2


def test_a_firing_of_a_suspended_campaign_is_left_out_and_not_made_up_for() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    world.edit("spec.suspend", True)
    world.settle()
    until(world, THREE + timedelta(hours=1))
    world.settle()
    world.edit("spec.suspend", False)
    world.settle()
    assert round_of(world).number == 1
    assert world.events.count("FiringSkipped") == 1


@pytest.mark.parametrize(("deadline", "number"), [(None, 2), (7 * 3600, 2), (3600, 1)])
def test_a_firing_that_nobody_was_there_for_begins_late_or_not_at_all(deadline: int | None, number: int) -> None:
    given = {"spec.startingDeadlineSeconds": deadline} if deadline else {}
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6, **given})
    world.finish_all()
    until(world, THREE + timedelta(days=3, hours=6))
    world.settle()
    assert round_of(world).number == number
    if number == 2:
        assert parse_timestamp(round_of(world).fire_time) == THREE + timedelta(days=3), (
            "the latest of those that were missed"
        )
    assert parse_timestamp(world.status.next_schedule_time) == THREE + timedelta(days=4)


def test_a_schedule_that_is_given_later_does_not_fire_for_the_past() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    world.finish_all()
    world.pass_time(30 * 86_400)
    world.edit("spec.schedule", "@hourly")
    world.settle()
    assert round_of(world).number == 1
    assert parse_timestamp(world.status.next_schedule_time) == NOON + timedelta(days=30, hours=1)


def test_another_schedule_forgets_the_firing_that_was_announced() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    until(world, THREE + timedelta(minutes=1))
    world.edit("spec.schedule", "30 5 * * *")
    world.settle()
    assert round_of(world).number == 1


def test_a_lost_status_leaves_a_firing_out_rather_than_fire_twice() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    until(world, THREE)
    world.finish_all()
    world.lose_status()
    world.settle()
    assert (round_of(world).number, parse_timestamp(round_of(world).fire_time)) == (2, THREE)
    assert len(world.store.created) == 12
    world.lose_status()
    until(world, THREE + timedelta(days=1))
    world.settle()
    assert round_of(world).number == 2
    until(world, THREE + timedelta(days=2))
    world.settle()
    assert round_of(world).number == 3


def test_a_schedule_begins_the_next_round_also_after_one_that_was_stopped() -> None:
    edits = {**NIGHTLY, "spec.failurePolicy": "Stop"}
    world = CampaignWorld(edits)
    world.settle()
    world.fail(world.planned[0])
    world.settle()
    assert world.said(Kind.STALLED) == (ConditionStatus.TRUE, "TooManyFailed")
    until(world, THREE)
    world.settle()
    assert round_of(world).number == 2
    assert world.said(Kind.STALLED)[0] is ConditionStatus.FALSE
