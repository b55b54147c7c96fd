"""An engine on several nodes: a LeaderWorkerSet of one group, and a Job that has no pod and owns it.

A LeaderWorkerSet has no deadline, and Kubernetes takes none for the pods of StatefulSets, of which it is made. So its
life hangs on a Job: `parallelism: 0` makes no pod, `activeDeadlineSeconds` ends it all the same, then
`ttlSecondsAfterFinished` removes it, and the garbage collector takes what it owns. An operator that is dead cannot leak
a GPU for ever. That Job is the launch, as on one node: it carries the verdict, and it is what is stopped.

`restartPolicy: None` of the group: were it created anew whenever a container ends, nobody could say why that ended. The
operator sees a container that was started again, or a pod that is younger than the client, and ends the launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench_api.plan.names import ROLE_ENGINE, engine_name, nodes_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.child import OURS, STAY_PUT, Manifest, labels, metadata, same_for_all
from specbench_operator.render.engine_pod import engine_launch, engine_pod, worker_pod
from specbench_operator.settings import Settings
from specbench_operator.state.child import Place
from specbench_operator.state.jobs import Job

KIND = "LeaderWorkerSet"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LEADS: Mapping[str, str] = {LWS_WORKER: "0"}
"""Label of the pod that serves."""
REMOVED_AFTER_S = 60
"""From the deadline until the Job is removed, and what it owns with it: time in which a living operator says why."""


def group_deadline(run: SpecBenchRun, group: EngineGroup, attempt: int, settings: Settings) -> Manifest:
    """The Job. Its container is never started: no Job is without one."""
    place = Place(ROLE_ENGINE, group.index, attempt)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run, engine_name(run.metadata.name, group.index, attempt), place, group.arm),
        "spec": {
            "parallelism": 0,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": run.spec.active_deadline_seconds,
            "ttlSecondsAfterFinished": REMOVED_AFTER_S,
            "template": {
                "spec": {
                    **same_for_all(run, ours=True, grace_s=0),
                    "containers": [{"name": "none", "image": settings.client_image, "securityContext": dict(OURS)}],
                },
            },
        },
    }


def engine_group(  # noqa: PLR0917 -- as many as the Job of one node
    run: SpecBenchRun, plan: Plan, group: EngineGroup, owner: Job, settings: Settings, near: Sequence[str] = ()
) -> Manifest:
    """The LeaderWorkerSet of the launch whose Job is `owner`. `near`: nodes on which the run's last engine served."""
    attempt = owner.place.attempt or 0
    place = Place(ROLE_ENGINE, group.index, attempt)
    launch = engine_launch(plan, group.arm)
    meta = metadata(run, nodes_name(run.metadata.name, group.index, attempt), place, group.arm)
    by = {"apiVersion": "batch/v1", "kind": "Job", "name": owner.ref.name, "uid": owner.ref.uid}
    leader, worker = (
        {
            "metadata": {"labels": labels(run, place, group.arm), "annotations": dict(STAY_PUT)},
            "spec": {**make(run, launch, group.arm, settings, near), "restartPolicy": "Always"},
        }
        for make in (engine_pod, worker_pod)
    )
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": KIND,
        "metadata": {**meta, "ownerReferences": [{**by, "controller": True, "blockOwnerDeletion": True}]},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": run.spec.placement.nodes,
                "restartPolicy": "None",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }
