"""Launch numbers are never used twice, whatever is lost, because records, progress and pods are identified by them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, ROLE_ENGINE
from specbench_api.spec.conditions import GroupState, Phase
from specbench_operator.reconcile.launches.launch_state import SUSPENDED
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.operator_builders import operator_run

QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench", "preemptionBudget": 50}}


def suspend(world: ClusterWorld, *, suspended: bool = True) -> None:
    world.run["spec"]["suspend"] = suspended


def test_a_launch_that_status_forgot_keeps_its_number_though_the_run_is_suspended_and_no_status_is_written() -> None:
    world = ClusterWorld()
    world.settle()
    world.start_pod(world.engine())
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.look_in_vain()
        world.reap()
    assert [pod for pod in world.pods.values() if pod.alive] == [], "its GPUs are given back all the same"
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 1)
    assert world.jobs[world.engine(0, 0)].verdict.reason == SUSPENDED  # type: ignore[union-attr]


def test_no_other_engine_is_launched_before_the_stopped_job_has_ended() -> None:
    """It was made a moment ago: its controller may yet give it a pod, before it sees the deadline."""
    world = ClusterWorld()
    world.settle()
    world.lose_status()
    suspend(world)
    world.look()
    stopped = world.jobs[world.engine()]
    assert stopped.verdict is not None
    world.jobs[world.engine()] = replace(stopped, failure=None)
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0)]
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_launch_whose_first_status_was_refused_keeps_its_number() -> None:
    """The row that was written last has this very number: of a launch that was still to be made."""
    world = ClusterWorld()
    suspend(world)
    world.settle()
    suspend(world, suspended=False)
    world.look_in_vain()
    assert (world.group(0).attempt, world.group(0).state) == (0, GroupState.WAITING)
    suspend(world)
    world.look_in_vain()
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_launch_that_waits_in_a_queue_leaves_it_once_status_tells_of_it() -> None:
    world = ClusterWorld(operator_run(QUEUED))
    world.settle()
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.look_in_vain()
    world.look()
    assert world.engine() in world.jobs, "this look tells of it"
    world.look()
    assert world.engine() not in world.jobs
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize("s3_was_away", [False, True])
def test_where_status_and_jobs_are_lost_the_results_tell_the_number(s3_was_away: bool) -> None:
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
        assert world.group(0).attempt == 0, "nobody can know it yet"
        world.trouble = None
    world.settle()
    assert world.launched[-1] == world.engine(0, 5)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 5, 5), "none of them counts as lost"
    assert world.jobs[world.engine(0, 5)].prior_launches.suspensions == 5
    world.measure(0, 5)
    assert world.launched[-1] == world.engine(1, 0), "each group counts for itself"


def test_an_older_job_that_is_left_does_not_hide_a_younger_launch() -> None:
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


def test_a_launch_of_a_run_that_is_refused_for_a_while_keeps_its_number() -> None:
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


def test_an_engine_that_is_at_work_out_of_turn_gives_its_number_up() -> None:
    world = ClusterWorld()
    world.settle()
    world.measure(0)
    world.serve(1)
    world.settle()
    world.measured.clear()
    world.settle()
    assert (world.group(1).state, world.group(1).attempt, world.group(1).suspensions) == (GroupState.WAITING, 1, 1)
    assert world.engine(1) not in world.jobs


FATES = (
    "start", "ready", "answer", "crash", "lose pods", "suspend", "resume", "status lost", "results deleted", "finish",
    "lose what answered", "s3 away", "s3 back", "admit", "take away", "reap",
)  # fmt: skip


@dataclass
class Numbered(ClusterWorld):
    """The world, with every launch that was ever asked for, by group."""

    numbers: dict[int, list[int]] = field(default_factory=dict)

    def follow(self, decision: RunDecision) -> None:
        """What Kubernetes makes of a decision; each launch is a new one."""
        for manifest in decision.apply:
            labels = manifest["metadata"]["labels"]
            if manifest["kind"] == "Job" and labels[LABEL_ROLE] == ROLE_ENGINE:
                self.note(int(labels[LABEL_GROUP]), int(labels[LABEL_ATTEMPT]))
        for again in decision.relaunch:
            self.note(self.jobs[again.ref.name].key.group or 0, again.relaunch.launch)
        super().follow(decision)

    def note(self, group: int, launch: int) -> None:
        """One more."""
        assert launch not in self.numbers.setdefault(group, []), f"launch {launch} of group {group} was there before"
        self.numbers[group].append(launch)

    def forget(self) -> None:
        """Launches that never answered and whose Jobs are gone have left nothing."""
        for group, numbers in self.numbers.items():
            jobs = [job.launch or 0 for job in self.jobs.values() if job.key.group == group]
            known = max([*jobs, self.launches_there.get(group, -1)], default=-1)
            self.numbers[group] = [number for number in numbers if number <= known]

    def befall(self, fate: str) -> None:
        """One thing that may happen; nothing where it cannot happen now."""
        at_work = [job for job in self.jobs.values() if job.key.role == ROLE_ENGINE and not job.ended]
        if fate in ("suspend", "resume"):
            suspend(self, suspended=fate == "suspend")
        elif fate in ("s3 away", "s3 back"):
            self.trouble = AWAY if fate == "s3 away" else None
        elif fate == "status lost":
            self.lose_status()
            self.forget()
        elif fate == "results deleted":
            self.measured.clear()
        elif fate == "reap":
            self.reap()
        for job in at_work:
            self.befall_engine(fate, job.ref.name, job.key.group or 0, job.launch or 0)

    def befall_engine(self, fate: str, name: str, group: int, launch: int) -> None:
        """The same of an engine at work."""
        alive = [pod for pod in self.pods.values() if pod.job == name and pod.alive and pod.deleted_at is None]
        suspended = self.jobs[name].suspended
        if fate == "admit" and suspended:
            self.admit(name)
        elif fate == "start" and not alive and not suspended:
            self.start_pod(name)
        elif fate == "ready" and alive:
            self.change_pod(name, ready=True)
        elif fate == "crash" and alive:
            self.crash(name)
        elif fate == "lose pods" and alive:
            self.lose_pods(name)
        elif fate == "take away" and alive and self.jobs[name].queue:
            self.hold_back(name)
        elif fate == "answer" and alive and self.client(group, launch) in self.jobs:
            self.launches_there[group] = launch
        elif fate == "finish" and self.launches_there.get(group) == launch:
            self.measured |= {point.hash for point in self.plan.groups[group].points}
        elif fate == "lose what answered" and self.launches_there.get(group) == launch:
            self.lose_job(name)
            self.jobs.pop(self.client(group, launch), None)


@pytest.mark.draws
@given(st.lists(st.tuples(st.sampled_from(FATES), st.booleans()), max_size=50), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_number_is_used_twice_whatever_is_lost_and_refused(fates: list[tuple[str, bool]], queued: bool) -> None:
    world = Numbered(operator_run(QUEUED if queued else {"spec.placement": {"gpus": 2, "preemptionBudget": 50}}))
    world.look()
    for fate, refused in fates:
        world.befall(fate)
        if refused:
            world.look_in_vain()
        else:
            world.look()
