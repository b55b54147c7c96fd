"""Properties that hold for any order of events: no run is created twice or beyond parallelism."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.campaign.campaign_view import FIGURE_AGE_MAX_S
from specbench_operator.errors import Changed
from specbench_testing.campaign_world import GPUS, CampaignWorld, has_ended, holds_gpus
from specbench_testing.fake_api_store import OperatorKilled
from specbench_testing.resources import resource

TRUE = ConditionStatus.TRUE
EVENTS = (
    "launch all", "finish", "finish badly", "fail", "stall", "queue", "delete", "obey", "hold by hand",
    "let go by hand", "suspend", "resume", "die early", "die late", "status lost", "half a minute", "an hour",
    "new value", "fewer values", "other template", "deadline", "rerun", "wider", "narrower", "stranger",
    "stranger gone", "run status lost",
)  # fmt: skip
EDITS: dict[str, tuple[str, Any]] = {
    "suspend": ("spec.suspend", True),
    "resume": ("spec.suspend", False),
    "new value": ("spec.axes[1].values", [0, 0.7, 1.0, 1.5]),
    "fewer values": ("spec.axes[1].values", [0.7]),
    "other template": ("spec.template.spec.load.repeats", 8),
    "deadline": ("spec.template.spec.activeDeadlineSeconds", 999),
    "wider": ("spec.parallelism", 4),
    "narrower": ("spec.parallelism", 1),
}
"""Events that edit a field of the campaign."""
QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class EventDrivenWorld(CampaignWorld):
    """A CampaignWorld with one method for each event."""

    def apply_event(self, event: str) -> None:
        if event in EDITS:
            self.edit(*EDITS[event])
        else:
            getattr(self, "_" + event.replace(" ", "_"))()

    def live(self) -> list[str]:
        return [name for name, run in self.owned_runs.items() if not has_ended(run) and not run["spec"]["suspend"]]

    def step(self) -> None:
        """Reconcile once and check the invariants."""
        active, foreign_before = set(self.live()), self.foreign_runs()
        try:
            self.reconcile()
        except (Changed, OperatorKilled):
            pass
        finally:
            self.store.writes_left = None
        begun = [name for name in self.live() if name not in active]
        places = self.resource["spec"].get("parallelism", 1)
        assert len(self.occupying()) <= max(places, len(active)), "more active runs than parallelism"
        assert not (begun and self.resource["spec"].get("suspend")), "a run started while the campaign is suspended"
        assert self.foreign_runs() == foreign_before, "a foreign run was modified"
        both = {row.type for row in self.status.conditions if row.status is TRUE}
        assert len(both & {Kind.READY, Kind.RECONCILING, Kind.STALLED}) <= 1

    def occupying(self) -> list[str]:
        """Active runs except stalled ones, which occupy no slot."""
        return [name for name in self.live() if not stalled(self.owned_runs[name])]

    def planned_now(self) -> list[str]:
        """Names of the current round's runs."""
        assert self.status.round is not None
        return [run.name for run in expand_campaign(parse_campaign(self.resource), self.status.round.number).runs]

    def foreign_runs(self) -> dict[str, object]:
        return {name: copy.deepcopy(run) for name, run in self.runs.items() if name not in self.owned_runs}

    def _launch_all(self) -> None:
        for name in self.live():
            if not holds_gpus(self.runs[name]):
                self.launch(name)

    def _finish(self) -> None:
        for name in self.live()[:1]:
            self.finish(name)

    def _finish_badly(self) -> None:
        for name in self.live()[-1:]:
            self.finish(name, trustworthy=False)

    def _fail(self) -> None:
        for name in self.live()[:1]:
            self.fail(name)

    def _stall(self) -> None:
        for name in [name for name in self.live() if "status" not in self.runs[name]][:1]:
            self.runs[name]["status"] = {"conditions": [{"type": "Stalled", "status": "True", "reason": "BadRequest"}]}

    def _queue(self) -> None:
        for name in [name for name in self.live() if "status" not in self.runs[name]][:1]:
            self.queue(name)

    def _delete(self) -> None:
        for name in list(self.owned_runs)[:1]:
            self.delete(name)

    def _obey(self) -> None:
        for name, run in self.owned_runs.items():
            if run["spec"]["suspend"] and holds_gpus(run):
                self.release(name)

    def _hold_by_hand(self) -> None:
        for name in self.live()[:1]:
            self.suspend_by_hand(name)

    def _let_go_by_hand(self) -> None:
        for name, run in self.owned_runs.items():
            if run["spec"]["suspend"] and "specbench.io/suspended-by-campaign" not in run["metadata"]["annotations"]:
                self.suspend_by_hand(name, suspend=False)

    def _die_early(self) -> None:
        self.store.writes_left = 0

    def _die_late(self) -> None:
        self.store.writes_left = 1

    def _status_lost(self) -> None:
        self.lose_status()

    def _run_status_lost(self) -> None:
        for name in [name for name in self.live() if not holds_gpus(self.runs[name])][:1]:
            self.runs[name].pop("status", None)

    def _half_a_minute(self) -> None:
        self.pass_time(30)

    def _an_hour(self) -> None:
        for _ in range(60):
            self.pass_time(60)

    def _rerun(self) -> None:
        self.edit("spec.rerun", f"token-{self.resource['metadata']['generation']}")

    def _stranger(self) -> None:
        for name in [name for name in self.planned if name not in self.runs][-1:]:
            self.store.put(resource(name=name))

    def _stranger_gone(self) -> None:
        for name in self.foreign_runs():
            self.delete(name)


def stalled(run: dict[str, object]) -> bool:
    status = run.get("status", {})
    assert isinstance(status, dict)
    return any((row["type"], row["status"]) == ("Stalled", "True") for row in status.get("conditions", []))


@pytest.mark.draws
@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.integers(1, 4))
@QUIET
def test_every_campaign_settles_and_ends_after_any_sequence_of_events(events: list[str], parallelism: int) -> None:
    """On the way, `step` checks the invariants. That no run is created twice is checked by the model of campaigns."""
    world = EventDrivenWorld({"spec.parallelism": parallelism})
    world.step()
    for event in events:
        world.apply_event(event)
        world.step()
    world.settle(20)
    version, objects = world.resource["metadata"]["resourceVersion"], copy.deepcopy(world.store.objects)
    world.store.now += timedelta(seconds=1)
    world.reconcile()
    assert world.resource["metadata"]["resourceVersion"] == version, "another reconcile changes nothing"
    assert world.store.objects == objects
    for event in ("resume", "stranger gone", "let go by hand"):
        world.apply_event(event)
    world.finish_all()
    assert world.status.phase in (CampaignPhase.SUCCEEDED, CampaignPhase.FAILED)
    assert world.status_and_reason(Kind.RECONCILING)[0] is not TRUE
    assert [name for name in world.planned_now() if name not in world.runs] == []


SPENDING = (
    "launch all", "finish", "fail", "obey", "suspend", "resume", "die early", "half a minute", "delete",
    "new value", "wider", "narrower", "deadline", "hold by hand", "let go by hand",
)  # fmt: skip


@pytest.mark.draws
@given(st.lists(st.sampled_from(SPENDING), max_size=20))
@QUIET
def test_a_round_overdraws_its_budget_by_no_more_than_documented(events: list[str]) -> None:
    """Reconciles every 30 s; the run controller suspends runs immediately."""
    world = EventDrivenWorld({"spec.parallelism": 3, "spec.budget.gpuHours": 0.1})
    for event in events:
        world.apply_event(event)
        world.step()
        world.apply_event("obey")
        world.pass_time(30)
        world.step()
        world.apply_event("obey")
    for _ in range(8):
        world.apply_event("launch all")
        world.pass_time(30)
        world.step()
        world.apply_event("obey")
    widest = 4
    assert sum(world.held.values()) <= 0.1 * 3600 + widest * GPUS * FIGURE_AGE_MAX_S
