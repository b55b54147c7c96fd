"""Rounds of a campaign: started by a token or the schedule, after a restart of the operator, and the history limit."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase, CampaignRound
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.campaign.rounds import plan_round
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.fake_api import OperatorKilled
from specbench_testing.operator_builders import NOON
from specbench_testing.resources import campaign, edit

NIGHTLY = {"spec.schedule": "0 3 * * *", "spec.timeZone": "Europe/Berlin"}
THREE = datetime(2026, 1, 3, 2, tzinfo=UTC)
"""The first firing after noon, when these worlds start."""


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld({"spec.parallelism": 6})


@pytest.fixture
def nightly() -> CampaignWorld:
    """A scheduled campaign whose first round is over."""
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.finish_all()
    return world


def round_of(world: CampaignWorld) -> CampaignRound:
    assert world.status.round is not None
    return world.status.round


def until(world: CampaignWorld, moment: datetime) -> None:
    """Let the time pass, and settle."""
    world.pass_time((moment - world.now).total_seconds())
    world.settle()


def test_a_new_token_starts_a_new_round_of_all_runs(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.rerun", "2026-01-03")
    world.finish_all()
    assert round_of(world).number == 2
    assert round_of(world).token == "2026-01-03"
    assert world.store.created == [*world.planned, *(f"{name}-2" for name in world.planned)]
    assert world.status.progress == "6/6"
    assert world.events.count("RoundStarted") == 2


def test_a_repeated_or_removed_token_starts_no_round(world: CampaignWorld) -> None:
    world.edit("spec.rerun", "a")
    world.finish_all()
    world.change("spec.rerun", "")
    world.change("spec.rerun", "a")
    assert round_of(world).number == 1


def test_a_token_waits_until_the_active_round_ends(world: CampaignWorld) -> None:
    world.settle()
    world.change("spec.rerun", "b")
    assert round_of(world).number == 1
    world.finish_all()
    assert round_of(world).number == 2


def test_the_round_is_restored_from_its_runs_when_status_is_lost(world: CampaignWorld) -> None:
    world.finish_all()
    world.change("spec.rerun", "b")
    before = round_of(world)
    world.lose_status()
    world.settle()
    assert round_of(world).model_copy(update={"start_time": None}) == before.model_copy(update={"start_time": None})
    assert parse_timestamp(round_of(world).start_time) == world.now
    world.finish_all()
    assert len(world.store.created) == 12


@pytest.mark.parametrize("writes", range(8))
def test_an_operator_killed_while_starting_a_round_starts_it_once(world: CampaignWorld, writes: int) -> None:
    world.finish_all()
    world.edit("spec.rerun", "b")
    world.store.kill_after(writes)
    with pytest.raises(OperatorKilled):
        world.settle()
    world.store.restart()
    world.finish_all()
    assert round_of(world).number == 2
    assert world.store.created == [*world.planned, *(f"{name}-2" for name in world.planned)]


def test_replacing_a_token_before_its_round_is_in_status_starts_two_rounds(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.rerun", "b")
    world.store.kill_after(6)
    with pytest.raises(OperatorKilled):
        world.reconcile()
    world.store.restart()
    assert round_of(world).number == 1, "the runs exist, but the status is not written"
    world.edit("spec.rerun", "c")
    world.finish_all()
    assert (round_of(world).number, round_of(world).token) == (3, "c")


def test_a_firing_interrupted_by_a_kill_is_not_reported_as_skipped(nightly: CampaignWorld) -> None:
    nightly.store.kill_after(6)
    with pytest.raises(OperatorKilled):
        until(nightly, THREE)
    nightly.store.restart()
    nightly.settle()
    assert parse_timestamp(round_of(nightly).fire_time) == THREE
    assert "FiringSkipped" not in nightly.events


def test_rounds_beyond_the_history_limit_are_deleted(world: CampaignWorld) -> None:
    world.edit("spec.runHistoryLimit", 2)
    for token in ("a", "b", "c"):
        world.edit("spec.rerun", token)
        world.finish_all()
    kept = {run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values()}
    assert round_of(world).number == 3
    assert kept == {"2", "3"}


@pytest.mark.parametrize("limit", [1, 2])
def test_gate_baselines_are_kept_beyond_the_history_limit(world: CampaignWorld, limit: int) -> None:
    """Keeps the newest run with results for each combination; a renamed axis is the same axis."""
    world.edit("spec.template.spec.gate", {"baselineRef": {"campaign": NAME}})
    world.edit("spec.runHistoryLimit", limit)
    world.finish_all()
    first = set(world.planned)
    world.change("spec.rerun", "a")
    assert first < set(world.runs), "the active second round is compared with these runs"
    failing = next(name for name in world.owned_runs if name not in first)
    world.fail(failing)
    world.finish_all()
    world.edit("spec.axes[0].name", "program")
    world.edit("spec.rerun", "b")
    world.finish_all()
    assert round_of(world).number == 3
    rounds = Counter(run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values())
    assert rounds == {"3": 6, "2": 5 if limit == 1 else 6, "1": 1}
    kept = next(name for name, run in world.runs.items() if run["metadata"]["labels"]["specbench.io/round"] == "1")
    assert failing.startswith(f"{kept}-"), "its combination has no results in the second round"


def test_a_gate_against_another_campaign_keeps_no_old_runs(world: CampaignWorld) -> None:
    world.edit("spec.template.spec.gate", {"baselineRef": {"campaign": "another"}})
    world.edit("spec.runHistoryLimit", 1)
    world.finish_all()
    world.edit("spec.rerun", "a")
    world.finish_all()
    assert {run["metadata"]["labels"]["specbench.io/round"] for run in world.runs.values()} == {"2"}


def test_the_first_round_starts_at_creation_and_the_second_on_schedule(nightly: CampaignWorld) -> None:
    assert nightly.status.phase is CampaignPhase.SCHEDULED
    assert parse_timestamp(nightly.status.next_schedule_time) == THREE
    assert nightly.requeue_after_s == (THREE - nightly.now).total_seconds()
    until(nightly, THREE - timedelta(seconds=1))
    assert round_of(nightly).number == 1
    until(nightly, THREE)
    assert round_of(nightly).number == 2
    assert parse_timestamp(round_of(nightly).fire_time) == THREE
    assert parse_timestamp(nightly.status.last_schedule_time) == THREE
    assert parse_timestamp(nightly.status.next_schedule_time) == THREE + timedelta(days=1)
    assert all(
        run["metadata"]["annotations"]["specbench.io/fire-time"] == "2026-01-03T02:00:00Z"
        for name, run in nightly.runs.items()
        if name.endswith("-2")
    )


def test_a_firing_during_an_active_round_is_skipped_and_reported() -> None:
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6})
    world.settle()
    until(world, THREE)
    assert round_of(world).number == 1
    assert world.events.count("FiringSkipped") == 1
    world.finish_all()
    assert round_of(world).number == 1
    until(world, THREE + timedelta(days=1))
    assert round_of(world).number == 2


def test_a_firing_of_a_suspended_campaign_is_skipped_and_not_caught_up(nightly: CampaignWorld) -> None:
    nightly.change("spec.suspend", True)
    until(nightly, THREE + timedelta(hours=1))
    nightly.change("spec.suspend", False)
    assert round_of(nightly).number == 1
    assert nightly.events.count("FiringSkipped") == 1


@pytest.mark.parametrize(("deadline", "number"), [(None, 2), (7 * 3600, 2), (3600, 1)])
def test_a_missed_firing_starts_late_within_its_starting_deadline(deadline: int | None, number: int) -> None:
    given = {"spec.startingDeadlineSeconds": deadline} if deadline else {}
    world = CampaignWorld({**NIGHTLY, "spec.parallelism": 6, **given})
    world.finish_all()
    until(world, THREE + timedelta(days=3, hours=6))
    assert round_of(world).number == number
    if number == 2:
        assert parse_timestamp(round_of(world).fire_time) == THREE + timedelta(days=3), "the latest missed firing"
    assert parse_timestamp(world.status.next_schedule_time) == THREE + timedelta(days=4)


def test_a_schedule_added_later_does_not_fire_for_the_past() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    world.finish_all()
    world.pass_time(30 * 86_400)
    world.change("spec.schedule", "@hourly")
    assert round_of(world).number == 1
    assert parse_timestamp(world.status.next_schedule_time) == NOON + timedelta(days=30, hours=1)


def test_changing_the_schedule_cancels_the_announced_firing(nightly: CampaignWorld) -> None:
    nightly.pass_time((THREE - nightly.now).total_seconds() + 60)
    nightly.change("spec.schedule", "30 5 * * *")
    assert round_of(nightly).number == 1


def test_a_lost_status_skips_a_firing_instead_of_firing_twice(nightly: CampaignWorld) -> None:
    until(nightly, THREE)
    nightly.finish_all()
    nightly.lose_status()
    nightly.settle()
    assert (round_of(nightly).number, parse_timestamp(round_of(nightly).fire_time)) == (2, THREE)
    assert len(nightly.store.created) == 12
    nightly.lose_status()
    until(nightly, THREE + timedelta(days=1))
    assert round_of(nightly).number == 2
    until(nightly, THREE + timedelta(days=2))
    assert round_of(nightly).number == 3


def test_the_schedule_starts_the_next_round_after_a_stopped_one() -> None:
    edits = {**NIGHTLY, "spec.failurePolicy": "Stop"}
    world = CampaignWorld(edits)
    world.settle()
    world.fail(world.planned[0])
    world.settle()
    assert world.status_and_reason(Kind.STALLED) == (ConditionStatus.TRUE, "TooManyFailed")
    until(world, THREE)
    assert round_of(world).number == 2
    assert world.status_and_reason(Kind.STALLED)[0] is ConditionStatus.FALSE


@pytest.fixture
def expanded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the campaigns that `plan_round` has expanded."""
    found: list[str] = []

    def expand(each: SpecBenchCampaign, number: int) -> CampaignPlan:
        found.append(each.metadata.name)
        return expand_campaign(each, number)

    monkeypatch.setattr("specbench_operator.campaign.rounds.expand_campaign", expand)
    return found


def with_uid(name: str, edits: dict[str, Any] | None = None) -> Any:
    made = campaign(edits, name=name)
    made["metadata"]["uid"] = "u"
    return made


def test_a_refused_campaign_is_expanded_once_until_it_changes(expanded: list[str]) -> None:
    invalid = with_uid("refused", {"spec.axes": [{"path": "load.repeats", "values": [0, 1]}]})
    for _ in range(3):
        with pytest.raises(InvalidSpec):
            plan_round(invalid, 1)
    assert expanded == ["refused"]
    edit(invalid, "spec.axes[0].values", [1, 2])
    assert len(plan_round(invalid, 1).runs) == 2, "a corrected campaign is expanded at once"


@pytest.mark.parametrize("limit", ["PLANS_CACHED", "BYTES_CACHED"])
def test_the_cache_of_plans_is_bounded_by_their_size(
    limit: str, expanded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"specbench_operator.campaign.rounds.{limit}", 1)
    first, second = (with_uid(f"{name}-{limit[:4].lower()}") for name in ("first", "second"))
    for each in (first, first, second, second, first):
        plan_round(each, 1)
    names = [each["metadata"]["name"] for each in (first, second)]
    assert expanded == [*names, names[0]], "the last plan is kept, whatever its size"
