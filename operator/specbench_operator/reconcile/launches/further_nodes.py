"""What the further nodes of an engine on several say of a launch whose first node starts or serves.

Its pods come again by themselves when they go, and their containers when they end: with cold caches, and perhaps with
another node. So whatever is younger than the client was not what it began to measure, and ends the launch.
"""

from __future__ import annotations

from dataclasses import replace

from specbench_operator.reconcile.launches.engine_side import EVICTED, Patience, judge_engine
from specbench_operator.reconcile.launches.judgement import Judgement, Stage, joined, lost, preempted
from specbench_operator.state.jobs import Job
from specbench_operator.state.pods import Pod


def taken_from(pods: tuple[Pod, ...]) -> Judgement | None:
    """That a node of the group was taken away, as the pod itself says that goes or has ended; None where none says so.

    It is heard before anything else: that another pod came in its place, or that the first node's program then ended
    with an error, is what follows from it.
    """
    grouped = sorted((pod for pod in pods if pod.worker is not None), key=lambda pod: (pod.created_at, pod.ref.name))
    for pod in grouped:
        gone = pod.deleted_at is not None or not pod.alive or pod.terminated is not None
        if pod.disrupted and gone and pod.reason != EVICTED:
            return preempted(joined((f"node {pod.worker} of the group", f"pod {pod.ref.name}", pod.disrupted)))
    return None


def judge_further_nodes(
    by_leader: Judgement, engine: Job, pods: tuple[Pod, ...], patience: Patience, client: Job | None
) -> Judgement:
    """The judgement of the first node, unless another one says worse. An engine on one node has no others."""
    grouped = [pod for pod in pods if pod.worker is not None]
    if not grouped:
        return by_leader
    if client and (younger := [pod for pod in grouped if pod.created_at > client.created_at]):
        return lost(f"pod {younger[0].ref.name} came again: its engine had lost a node")
    workers = {pod.worker for pod in grouped if pod.worker}
    if client and len(workers) < patience.nodes - 1:
        return lost(f"of {patience.nodes - 1} further nodes, {len(workers)} are there")
    for worker in sorted(workers):
        alone = tuple(replace(pod, worker=0) for pod in grouped if pod.worker == worker)
        found = judge_engine(engine, alone, patience, client=client)
        if found.stage is Stage.FAILED or (found.hurts and not by_leader.hurts):
            return replace(found, message=joined((f"node {worker} of the group", found.message)))
    return by_leader
