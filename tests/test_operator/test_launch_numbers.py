"""Launch numbers are never used twice, whatever is lost, because records, progress and pods are identified by them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, ROLE_ENGINE
from specbench_api.spec.conditions import GroupState, Phase
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.operator_builders import operator_run

QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench", "preemptionBudget": 50}}


def suspend(world: ClusterWorld, *, suspended: bool = True) -> None:
    world.run["spec"]["suspend"] = suspended


def test_a_launch_missing_from_status_keeps_its_number_when_status_writes_fail() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine())
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.reconcile_without_status_write()
        world.reap()
    assert [pod for pod in world.pods.values() if pod.alive] == [], "its GPUs are released"
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 1)
    assert world.jobs[world.engine(0, 0)].verdict.reason == SUSPENDED  # type: ignore[union-attr]


def test_no_engine_is_launched_before_the_stopped_job_has_ended() -> None:
    """The Job is new: its controller may still create a pod before it sees the deadline."""
    world = ClusterWorld()
    world.settle()
    world.lose_status()
    suspend(world)
    world.reconcile()
    stopped = world.jobs[world.engine()]
    assert stopped.verdict is not None
    world.jobs[world.engine()] = replace(stopped, failure=None)
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0)]
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_launch_whose_first_status_write_fails_keeps_its_number() -> None:
    """The last written row has the same number, for a launch that was not made yet."""
    world = ClusterWorld()
    suspend(world)
    world.settle()
    suspend(world, suspended=False)
    world.reconcile_without_status_write()
    assert (world.group(0).attempt, world.group(0).state) == (0, GroupState.WAITING)
    suspend(world)
    world.reconcile_without_status_write()
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_queued_launch_leaves_its_queue_once_it_is_in_status() -> None:
    world = ClusterWorld(operator_run(QUEUED))
    world.settle()
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.reconcile_without_status_write()
    world.reconcile()
    assert world.engine() in world.jobs, "this reconcile writes it to the status"
    world.reconcile()
    assert world.engine() not in world.jobs
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize("s3_was_away", [False, True])
def test_results_restore_the_launch_number_when_status_and_jobs_are_lost(s3_was_away: bool) -> None:
    world = ClusterWorld()
    world.settle()
    for attempt in range(4):
        world.serve(0, attempt)
        suspend(world)
        world.settle()
        suspend(world, suspended=False)
        world.settle()
    world.launches_there = {0: 4}
    world.jobs.clear()
    world.pods.clear()
    world.lose_status()
    if s3_was_away:
        world.trouble = AWAY
        world.settle()
        assert world.group(0).attempt == 0, "the number is not known yet"
        world.trouble = None
    world.settle()
    assert world.launched[-1] == world.engine(0, 5)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 5, 5), "none of them counts as lost"
    assert world.jobs[world.engine(0, 5)].prior_launches.suspensions == 5
    world.measure(0, 5)
    assert world.launched[-1] == world.engine(1, 0), "each group has its own numbers"


def test_an_older_remaining_job_does_not_hide_a_newer_launch() -> None:
    world = ClusterWorld()
    world.settle()
    world.serve()
    world.lose_pods(world.engine())
    world.settle()
    world.serve(0, 1)
    world.launches_there = {0: 1}
    world.lose_job(world.engine(0, 1))
    world.lose_job(world.client(0, 1))
    world.lose_status()
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2)]


def test_a_launch_of_a_temporarily_invalid_run_keeps_its_number() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine())
    world.lose_status()
    world.run["spec"]["placement"]["nodes"] = 2
    world.settle()
    assert world.status.phase is Phase.INVALID
    assert [pod for pod in world.pods.values() if pod.alive] == []
    world.run["spec"]["placement"].pop("nodes")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_an_engine_launched_out_of_order_is_stopped_and_its_number_retired() -> None:
    world = ClusterWorld()
    world.settle()
    world.measure(0)
    world.serve(1)
    world.settle()
    world.measured.clear()
    assert {stop.ref.name for stop in world.reconcile().stop} <= {world.engine(1)}
    world.settle()
    assert (world.group(1).state, world.group(1).attempt, world.group(1).suspensions) == (GroupState.WAITING, 1, 1)
    assert world.engine(1) not in world.jobs


EVENTS = (
    "start", "ready", "answer", "crash", "lose pods", "suspend", "resume", "status lost", "results deleted", "finish",
    "lose what answered", "s3 away", "s3 back", "admit", "take away", "reap",
)  # fmt: skip


@dataclass
class LaunchRecordingWorld(ClusterWorld):
    """A ClusterWorld that records every launch number by group."""

    numbers: dict[int, list[int]] = field(default_factory=dict)

    def follow(self, decision: RunDecision) -> None:
        """Apply a decision and record each new launch."""
        for manifest in decision.apply:
            labels = manifest["metadata"]["labels"]
            if manifest["kind"] == "Job" and labels[LABEL_ROLE] == ROLE_ENGINE:
                self.note(int(labels[LABEL_GROUP]), int(labels[LABEL_ATTEMPT]))
        for again in decision.relaunch:
            self.note(self.jobs[again.ref.name].key.group or 0, again.relaunch.launch)
        super().follow(decision)

    def note(self, group: int, launch: int) -> None:
        """Record a launch; fail if its number was used before."""
        assert launch not in self.numbers.setdefault(group, []), f"launch {launch} of group {group} was used before"
        self.numbers[group].append(launch)

    def forget(self) -> None:
        """Drop launches that never answered and whose Jobs are gone: they leave no record."""
        for group, numbers in self.numbers.items():
            jobs = [job.launch or 0 for job in self.jobs.values() if job.key.group == group]
            known = max([*jobs, self.launches_there.get(group, -1)], default=-1)
            self.numbers[group] = [number for number in numbers if number <= known]

    def apply_event(self, event: str) -> None:
        """Apply one event; does nothing if it cannot occur now."""
        active_jobs = [job for job in self.jobs.values() if job.key.role == ROLE_ENGINE and not job.ended]
        if event in ("suspend", "resume"):
            suspend(self, suspended=event == "suspend")
        elif event in ("s3 away", "s3 back"):
            self.trouble = AWAY if event == "s3 away" else None
        elif event == "status lost":
            self.lose_status()
            self.forget()
        elif event == "results deleted":
            self.measured.clear()
        elif event == "reap":
            self.reap()
        for job in active_jobs:
            self.apply_engine_event(event, job.ref.name, job.key.group or 0, job.launch or 0)

    def apply_engine_event(self, event: str, name: str, group: int, launch: int) -> None:
        """Apply one event to an active engine."""
        alive = [pod for pod in self.pods.values() if pod.job == name and pod.alive and pod.deleted_at is None]
        suspended = self.jobs[name].suspended
        if event == "admit" and suspended:
            self.admit(name)
        elif event == "start" and not alive and not suspended:
            self.start_pod(name)
        elif event == "ready" and alive:
            self.change_pod(name, ready=True)
        elif event == "crash" and alive:
            self.crash(name)
        elif event == "lose pods" and alive:
            self.lose_pods(name)
        elif event == "take away" and alive and self.jobs[name].queue:
            self.hold_back(name)
        elif event == "answer" and alive and self.client(group, launch) in self.jobs:
            self.launches_there[group] = launch
        elif event == "finish" and self.launches_there.get(group) == launch:
            self.measured |= {point.hash for point in self.plan.groups[group].points}
        elif event == "lose what answered" and self.launches_there.get(group) == launch:
            self.lose_job(name)
            self.jobs.pop(self.client(group, launch), None)


@pytest.mark.draws
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.booleans()), max_size=50), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_launch_number_is_used_twice_after_any_loss_or_failed_write(
    events: list[tuple[str, bool]], queued: bool
) -> None:
    world = LaunchRecordingWorld(
        operator_run(QUEUED if queued else {"spec.placement": {"gpus": 2, "preemptionBudget": 50}})
    )
    world.reconcile()
    for event, refused in events:
        world.apply_event(event)
        if refused:
            world.reconcile_without_status_write()
        else:
            world.reconcile()
