"""Status is a cache: after its loss, decisions are the same, and no launch number is used twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.plan.expansion import restore
from specbench_api.plan.validation import REQUIRED, TERMS
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_api.spec.results import S3
from specbench_operator.run.decide import decide_run
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.run.status import TERMINAL_PHASES
from specbench_operator.state.run import StoredLaunch, StoredResults, StoreFailure
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.cluster_world import AWAY, ClusterWorld, launched
from specbench_testing.operator_builders import NOON, OLDER_UID, operator_run


def required(nodes: int = 1) -> ClusterWorld:
    """A run whose engines must all run on the same node, or the same nodes."""
    placement = {"gpus": 2, "pinNode": "Require", **({"nodes": nodes} if nodes > 1 else {})}
    world = ClusterWorld(operator_run({"spec.placement": placement}))
    world.run["metadata"]["creationTimestamp"] = format_timestamp(NOON)
    world.settings = replace(world.settings, leader_worker_sets=nodes > 1)
    world.settle()
    return world


def pinned(manifest: Any) -> list[str]:
    """The nodes on which the pod of this manifest must run."""
    template = manifest["spec"].get("template") or manifest["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    affinity = template["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(REQUIRED, {}).get(TERMS, [])
    return [field["values"][0] for term in terms for field in term["matchFields"]]


def next_engine(world: ClusterWorld, kind: str = "Job") -> Any:
    """The manifest of the next engine; status is lost after the last engine is gone."""
    world.reconcile()
    world.reap()
    world.lose_status()
    for _ in range(3):
        made = [
            row for row in world.reconcile().apply if row["kind"] == kind and "engine" in str(row["metadata"]["labels"])
        ]
        if made:
            return made[0]
    raise AssertionError("no engine is launched")


@pytest.mark.parametrize(
    ("nodes", "kind"), [(["gpu-7"], "Job"), (["gpu-1", "gpu-2"], "LeaderWorkerSet")], ids=["one", "several"]
)
def test_lost_required_nodes_are_restored_from_the_clients_job(nodes: list[str], kind: str) -> None:
    world = required(len(nodes))
    for worker, node in enumerate(nodes):
        world.start_pod(world.engine(), ready=True, node=node, worker=worker if nodes[1:] else None)
    world.reconcile()
    world.start_pod(world.client())
    world.finish_client()
    assert pinned(next_engine(world, kind)) == nodes
    assert world.status.engine_nodes == nodes, "the status contains the nodes again"


def test_a_required_node_is_restored_from_the_results_without_a_client_job() -> None:
    world = required()
    world.start_pod(world.engine(), ready=True, node="gpu-7")
    world.reconcile()
    world.start_pod(world.client())
    world.finish_client()
    world.reconcile()
    world.lose_job(world.client())
    world.last_launch = StoredLaunch("gpu-7", NOON + timedelta(seconds=30))
    assert pinned(next_engine(world)) == ["gpu-7"]


def test_the_node_of_an_adopted_run_is_not_required() -> None:
    world = required()
    plan = world.plan.model_copy(update={"uid": OLDER_UID})
    world = ClusterWorld(operator_run({"spec": restore(plan, S3(bucket="results")).spec.to_dict()}))
    world.run["metadata"]["creationTimestamp"] = format_timestamp(NOON)
    world.plan_there = plan.to_json()
    world.measured = {point.hash for point in plan.groups[0].points}
    world.last_launch = StoredLaunch("another-clusters", NOON - timedelta(days=1))
    made = [
        row for row in world.reconcile().apply if row["metadata"]["name"] == world.engine(1) and row["kind"] == "Job"
    ]
    assert [pinned(row) for row in made] == [[]]


def test_suspended_launches_are_not_losses_when_status_is_lost(world: ClusterWorld) -> None:
    for attempt in range(2):
        world.serve(0, attempt)
        world.suspend()
        world.suspend(suspend=False)
    world.serve(0, 2)
    world.reconcile()
    world.lose_status()
    world.lose_pods(world.engine(0, 2))
    world.settle()
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 3, 2)


@pytest.mark.parametrize("status", ["kept", "lost"])
def test_an_engine_that_ended_while_suspended_counts_as_suspended(world: ClusterWorld, status: str) -> None:
    world.serve()
    world.run["spec"]["suspend"] = True
    world.lose_pods(world.engine())
    world.fail_job(world.engine())
    world.settle()
    if status == "lost":
        world.lose_status()
    world.suspend(suspend=False)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 1, 1)


def test_a_loss_stays_a_loss_when_the_run_is_suspended_later(world: ClusterWorld) -> None:
    world.serve()
    world.lose_pods(world.engine())
    world.settle()
    world.lose_job(world.engine(0, 1))
    world.lose_status()
    world.suspend()
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 0)


def test_a_preemption_counts_without_its_status_write_and_the_older_job() -> None:
    """Each Job records earlier totals, so older Jobs may already be deleted."""
    world = launched(operator_run({"spec.placement": {"gpus": 2, "preemptionBudget": 2}}))
    world.serve()
    preempt(world, 0)
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (1, 1)
    world.lose_job(world.engine(0, 0))
    world.serve(0, 1)
    world.reconcile()
    preempt(world, 1)
    for _ in range(3):
        world.reconcile_without_status_write()
        world.reap()
    assert world.engine(0, 2) in world.jobs
    assert world.group(0).preemptions == 1, "the last written status"
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (2, 2)


@pytest.mark.parametrize("state", list(GroupState))
def test_wrong_group_rows_in_status_launch_no_second_engine(world: ClusterWorld, state: GroupState) -> None:
    for row in world.run["status"]["groups"]:
        row |= {"state": state, "attempt": 2}
    world.reconcile()
    assert len(world.launched) == 1


counts = st.integers(-1, 3)
group_rows = st.fixed_dictionaries(
    {"index": st.integers(0, 1), "arm": st.just("none"), "state": st.sampled_from(list(GroupState))},
    optional=dict.fromkeys(("points", "measured", "attempt", "suspensions", "preemptions"), counts)
    | {"reason": st.sampled_from([SUSPENDED, "Crashed", "x"]), "endsRun": st.booleans()},
)


@pytest.mark.draws
@settings(deadline=None, max_examples=200)
@given(
    situation=st.sampled_from([ClusterWorld, launched]),
    groups=group_rows.map(lambda row: [row | {"index": 0}, row | {"index": 1}]) | st.lists(group_rows, max_size=2),
    phase=st.sampled_from([each for each in Phase if each not in TERMINAL_PHASES]),
    stored=st.sampled_from([None, AWAY, StoredResults()]),
)
def test_whatever_group_rows_status_has_a_decision_is_made(
    situation: Callable[[], ClusterWorld], groups: list[Any], phase: Phase, stored: StoredResults | StoreFailure | None
) -> None:
    world = situation()
    world.run["status"] = {"phase": phase, "groups": groups}
    decision = decide_run(replace(world.observed(), stored=stored), world.settings, world.now)
    assert decision.status.phase not in (None, Phase.SUCCEEDED)
    assert isinstance(stored, StoredResults) or {item["kind"] for item in decision.apply} <= {"ConfigMap"}


def preempt(world: ClusterWorld, attempt: int) -> None:
    """The scheduler preempts an engine's pod."""
    world.change_pod(world.engine(0, attempt), phase="Failed", ready=False, disrupted="preempted by a release")
    world.fail_job(world.engine(0, attempt), "PodFailurePolicy")


def test_progress_of_the_adopted_run_does_not_make_a_new_engine_ready() -> None:
    older = ClusterWorld()
    plan = older.plan.model_copy(update={"uid": OLDER_UID})
    world = ClusterWorld(operator_run({"spec": restore(plan, S3(bucket="results")).spec.to_dict()}))
    world.plan_there = plan.to_json()
    world.answering, world.answered_at = (0, 0), NOON - timedelta(hours=1)
    world.settle()
    world.serve()
    world.settle()
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    world.answered_at = NOON
    world.settle()
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("True", "Serving")


# Launch numbers.


QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench", "preemptionBudget": 50}}


def test_a_launch_missing_from_status_keeps_its_number_when_status_writes_fail(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.lose_status()
    world.run["spec"]["suspend"] = True
    for _ in range(3):
        world.reconcile_without_status_write()
        world.reap()
    assert [pod for pod in world.pods.values() if pod.alive] == [], "its GPUs are released"
    world.suspend(suspend=False)
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 1)
    assert world.jobs[world.engine(0, 0)].verdict.reason == SUSPENDED  # type: ignore[union-attr]


def test_no_engine_is_launched_before_the_stopped_job_has_ended(world: ClusterWorld) -> None:
    """The Job is new: its controller may still create a pod before it sees the deadline."""
    world.lose_status()
    world.run["spec"]["suspend"] = True
    world.reconcile()
    stopped = world.jobs[world.engine()]
    assert stopped.verdict is not None
    world.jobs[world.engine()] = replace(stopped, failure=None)
    world.suspend(suspend=False)
    assert world.launched == [world.engine(0, 0)]
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_launch_whose_first_status_write_fails_keeps_its_number() -> None:
    """The last written row has the same number, for a launch that was not made yet."""
    world = ClusterWorld()
    world.suspend()
    world.run["spec"]["suspend"] = False
    world.reconcile_without_status_write()
    assert (world.group(0).attempt, world.group(0).state) == (0, GroupState.WAITING)
    world.run["spec"]["suspend"] = True
    world.reconcile_without_status_write()
    world.suspend(suspend=False)
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_queued_launch_leaves_its_queue_once_it_is_in_status() -> None:
    world = launched(operator_run(QUEUED))
    world.lose_status()
    world.run["spec"]["suspend"] = True
    for _ in range(3):
        world.reconcile_without_status_write()
    world.reconcile()
    assert world.engine() in world.jobs, "this reconcile writes it to the status"
    world.reconcile()
    assert world.engine() not in world.jobs
    world.suspend(suspend=False)
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize("s3_was_away", [False, True])
def test_results_restore_the_launch_number_when_status_and_jobs_are_lost(
    world: ClusterWorld, s3_was_away: bool
) -> None:
    for attempt in range(4):
        world.serve(0, attempt)
        world.suspend()
        world.suspend(suspend=False)
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


def test_an_older_remaining_job_does_not_hide_a_newer_launch(world: ClusterWorld) -> None:
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


def test_a_launch_of_a_temporarily_invalid_run_keeps_its_number(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.lose_status()
    world.run["spec"]["placement"]["nodes"] = 2
    world.settle()
    assert world.status.phase is Phase.INVALID
    assert [pod for pod in world.pods.values() if pod.alive] == []
    world.run["spec"]["placement"].pop("nodes")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_an_engine_launched_out_of_order_is_stopped_and_its_number_retired(world: ClusterWorld) -> None:
    world.measure(0)
    world.serve(1)
    world.settle()
    world.measured.clear()
    assert {stop.ref.name for stop in world.reconcile().stop} <= {world.engine(1)}
    world.settle()
    assert (world.group(1).state, world.group(1).attempt, world.group(1).suspensions) == (GroupState.WAITING, 1, 1)
    assert world.engine(1) not in world.jobs
