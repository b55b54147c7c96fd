"""Status is a cache: decisions are the same after it is lost or could not be written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.plan.expansion import restore
from specbench_api.plan.validation import REQUIRED, TERMS
from specbench_api.spec.conditions import ConditionType, GroupState
from specbench_api.spec.results import S3
from specbench_operator.state.run import StoredLaunch
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import NOON, OLDER_UID, operator_run


def required(nodes: int = 1) -> ClusterWorld:
    """A run whose engines must all be on one node (or on the same ones)."""
    placement = {"gpus": 2, "pinNode": "Require", **({"nodes": nodes} if nodes > 1 else {})}
    world = ClusterWorld(operator_run({"spec.placement": placement}))
    world.run["metadata"]["creationTimestamp"] = format_timestamp(NOON)
    world.settings = replace(world.settings, leader_worker_sets=nodes > 1)
    world.settle()
    return world


def pinned(manifest: Any) -> list[str]:
    """The nodes that one of its pods must be on."""
    template = manifest["spec"].get("template") or manifest["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    affinity = template["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(REQUIRED, {}).get(TERMS, [])
    return [field["values"][0] for term in terms for field in term["matchFields"]]


def next_engine(world: ClusterWorld, kind: str = "Job") -> Any:
    """The manifest of the next engine. Status is lost when nothing of the last one is left."""
    world.look()
    world.reap()
    world.lose_status()
    for _ in range(3):
        made = [row for row in world.look().apply if row["kind"] == kind and "engine" in str(row["metadata"]["labels"])]
        if made:
            return made[0]
    raise AssertionError("no engine was made")


def test_a_required_node_is_found_on_the_clients_job_when_status_is_lost() -> None:
    world = required()
    world.start_pod(world.engine(), ready=True, node="gpu-7")
    world.look()
    world.start_pod(world.client())
    world.finish_client()
    assert pinned(next_engine(world)) == ["gpu-7"]
    assert world.status.engine_nodes == ["gpu-7"], "and status knows it again"


def test_all_nodes_of_an_engine_on_several_are_found_again() -> None:
    world = required(nodes=2)
    for worker, node in enumerate(("gpu-1", "gpu-2")):
        world.start_pod(world.engine(), ready=True, node=node, worker=worker)
    world.look()
    world.start_pod(world.client())
    world.finish_client()
    assert pinned(next_engine(world, "LeaderWorkerSet")) == ["gpu-1", "gpu-2"]


def test_a_required_node_is_found_in_the_results_where_the_cluster_has_forgotten_it() -> None:
    world = required()
    world.start_pod(world.engine(), ready=True, node="gpu-7")
    world.look()
    world.start_pod(world.client())
    world.finish_client()
    world.look()
    world.lose_job(world.client())
    world.last_launch = StoredLaunch("gpu-7", NOON + timedelta(seconds=30))
    assert pinned(next_engine(world)) == ["gpu-7"]


def test_a_node_of_the_run_whose_results_are_carried_on_draws_nobody() -> None:
    world = required()
    plan = world.plan.model_copy(update={"uid": OLDER_UID})
    world = ClusterWorld(operator_run({"spec": restore(plan, S3(bucket="results")).spec.to_dict()}))
    world.run["metadata"]["creationTimestamp"] = format_timestamp(NOON)
    world.plan_there = plan.to_json()
    world.measured = {point.hash for point in plan.groups[0].points}
    world.last_launch = StoredLaunch("another-clusters", NOON - timedelta(days=1))
    made = [row for row in world.look().apply if row["metadata"]["name"] == world.engine(1) and row["kind"] == "Job"]
    assert [pinned(row) for row in made] == [[]]


def suspended(world: ClusterWorld, *, suspend: bool = True) -> None:
    """Somebody suspends the run, or lets it go on, and what follows is done."""
    world.run["spec"]["suspend"] = suspend
    world.settle()


def test_launches_that_were_given_back_are_no_losses_when_status_is_lost() -> None:
    world = ClusterWorld()
    world.settle()
    for attempt in range(2):
        world.serve(0, attempt)
        suspended(world)
        suspended(world, suspend=False)
    world.serve(0, 2)
    world.look()
    world.lose_status()
    world.lose_pods(world.engine(0, 2))
    world.settle()
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 3, 2)


@pytest.mark.parametrize("status", ["kept", "lost"])
def test_an_engine_that_ended_while_its_run_was_suspended_was_given_back(status: str) -> None:
    world = ClusterWorld()
    world.settle()
    world.serve()
    world.run["spec"]["suspend"] = True
    world.lose_pods(world.engine())
    world.fail_job(world.engine())
    world.settle()
    if status == "lost":
        world.lose_status()
    suspended(world, suspend=False)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 1, 1)


def test_a_loss_stays_a_loss_also_where_its_run_is_suspended_later() -> None:
    world = ClusterWorld()
    world.settle()
    world.serve()
    world.lose_pods(world.engine())
    world.settle()
    world.lose_job(world.engine(0, 1))
    world.lose_status()
    suspended(world)
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 0)


def test_a_preemption_counts_though_its_status_was_refused_and_an_older_job_is_gone() -> None:
    """A Job was told of the launches before it, so none of those need be there."""
    world = ClusterWorld(operator_run({"spec.placement": {"gpus": 2, "preemptionBudget": 2}}))
    world.settle()
    world.serve()
    preempt(world, 0)
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (1, 1)
    world.lose_job(world.engine(0, 0))
    world.serve(0, 1)
    world.look()
    preempt(world, 1)
    for _ in range(3):
        world.look_in_vain()
        world.reap()
    assert world.engine(0, 2) in world.jobs
    assert world.group(0).preemptions == 1, "as it was said last"
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (2, 2)


def test_every_preemption_counts_when_status_is_lost_and_no_older_job_is_left() -> None:
    world = ClusterWorld()
    world.settle()
    for attempt in range(3):
        world.serve(0, attempt)
        preempt(world, attempt)
        world.settle()
        world.lose_job(world.engine(0, attempt))
    world.lose_status()
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (3, 3)


def preempt(world: ClusterWorld, attempt: int) -> None:
    """The scheduler takes an engine's pod away."""
    world.change_pod(world.engine(0, attempt), phase="Failed", ready=False, disrupted="preempted by a release")
    world.fail_job(world.engine(0, attempt), "PodFailurePolicy")


def test_a_progress_of_the_lost_run_does_not_say_that_this_ones_engine_answers() -> None:
    older = ClusterWorld()
    plan = older.plan.model_copy(update={"uid": OLDER_UID})
    world = ClusterWorld(operator_run({"spec": restore(plan, S3(bucket="results")).spec.to_dict()}))
    world.plan_there = plan.to_json()
    world.answering, world.answered_at = (0, 0), NOON - timedelta(hours=1)
    world.settle()
    world.serve()
    world.settle()
    assert world.said(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    world.answered_at = NOON
    world.settle()
    assert world.said(ConditionType.ENGINE_READY) == ("True", "Serving")
