"""The engine of one launch: a Job and a Service, and for an engine on several nodes also a LeaderWorkerSet.

The Job has `backoffLimit: 0` and `restartPolicy: Never`, because a restarted engine has cold caches and must not be
measured as if it were the same launch. `activeDeadlineSeconds` releases the GPUs even if the operator is down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench_api.plan.names import ROLE_ENGINE, engine_name, nodes_name
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.engine_pod import engine_launch, engine_pod_template, worker_pod_template
from specbench_operator.render.job_annotations import ANNOTATION_QUEUE
from specbench_operator.render.shared_fields import (
    RESTRICTED_SECURITY,
    Manifest,
    metadata,
    selector,
    shared_pod_fields,
)
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ChildKey, Job


def _metadata(run: SpecBenchRun, group: EngineGroup, attempt: int) -> Manifest:
    key = ChildKey(ROLE_ENGINE, group.index, attempt)
    return metadata(run, engine_name(run.metadata.name, group.index, attempt), key, group.arm)


def _job(run: SpecBenchRun, meta: Manifest, template: Manifest, *, start: Manifest, end: Manifest) -> Manifest:
    """A Job that is never retried and that Kubernetes ends at the run's deadline.

    `start` and `end`: fields of its spec about how it starts and how it ends.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            **start,
            "backoffLimit": 0,
            "activeDeadlineSeconds": run.spec.active_deadline_seconds,
            **end,
            "template": template,
        },
    }


# An engine on several nodes is a LeaderWorkerSet with one group, owned by a Job without pods.
#
# A LeaderWorkerSet has no deadline, and neither have the StatefulSets that it consists of. The Job provides one:
# `parallelism: 0` creates no pod, `activeDeadlineSeconds` ends the Job anyway, `ttlSecondsAfterFinished` deletes it,
# and the garbage collector deletes the LeaderWorkerSet that it owns. So GPUs are released even if the operator is
# down. As on one node, the Job represents the launch: it has the verdict, and it is what the operator stops.
#
# The LeaderWorkerSet has `restartPolicy: None`. Recreating the whole group whenever a container ends would lose the
# reason. The operator ends the launch when it observes a restarted container or a pod that is newer than the client.
#
# With a queue, Kueue manages the LeaderWorkerSet and not the Job. Its pods have Kueue's scheduling gate from the start,
# so that no pod is scheduled unless Kueue admits it, even if Kueue is missing or does not manage LeaderWorkerSets. The
# Job is created suspended, because its deadline must not count while they wait. The operator resumes it when they are
# admitted. If it is down then, Kueue ends the launch by the limit in a label of the LeaderWorkerSet.

LWS_KIND = "LeaderWorkerSet"
LABEL_LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_SELECTOR: Mapping[str, str] = {LABEL_LWS_WORKER: "0"}
"""Label of the leader's pod, which serves the engine's API."""
DEADLINE_JOB_TTL_S = 60
"""Time from the deadline until the Job is deleted with what it owns, in seconds: time to record the reason."""


def leader_worker_set_job(run: SpecBenchRun, group: EngineGroup, attempt: int, settings: OperatorSettings) -> Manifest:
    """The Job that owns the LeaderWorkerSet of a launch. A Job needs a container, but this one is never started."""
    container = {"name": "none", "image": settings.client_image, "securityContext": dict(RESTRICTED_SECURITY)}
    meta, queue = _metadata(run, group, attempt), run.spec.placement.queue_name
    return _job(
        run,
        {**meta, "annotations": {ANNOTATION_QUEUE: queue}} if queue else meta,
        {"spec": {**shared_pod_fields(run, ours=True, grace_s=0), "containers": [container]}},
        start={"parallelism": 0, "completions": 1, **({"suspend": True} if queue else {})},
        end={"ttlSecondsAfterFinished": DEADLINE_JOB_TTL_S},
    )


def leader_worker_set(  # noqa: PLR0917 -- the same parameters as engine_job, with the Job as the last
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    owner: Job,
    settings: OperatorSettings,
    preferred_nodes: Sequence[str] = (),
) -> Manifest:
    """The LeaderWorkerSet of the launch whose Job is `owner`. `preferred_nodes`: nodes of the last ready engine."""
    attempt = owner.key.attempt or 0
    key = ChildKey(ROLE_ENGINE, group.index, attempt)
    meta = metadata(run, nodes_name(run.metadata.name, group.index, attempt), key, group.arm)
    owner_reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner.ref.name, "uid": owner.ref.uid}
    queue = kueue_labels(run)
    if queue:
        queue[LABEL_KUEUE_MAX_SECONDS] = str(QUEUED_DEADLINES * run.spec.active_deadline_seconds)
    leader, worker = (
        _group_template(template(run, plan, group, attempt, settings, preferred_nodes), gated=bool(queue))
        for template in (engine_pod_template, worker_pod_template)
    )
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": LWS_KIND,
        "metadata": {
            **meta,
            "labels": {**meta["labels"], **queue},
            "ownerReferences": [{**owner_reference, "controller": True, "blockOwnerDeletion": True}],
        },
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


def _group_template(template: Manifest, *, gated: bool) -> Manifest:
    """The pod template for a LeaderWorkerSet, whose StatefulSets accept no other restartPolicy."""
    gates = {"schedulingGates": [{"name": KUEUE_GATE}]} if gated else {}
    return {**template, "spec": {**template["spec"], "restartPolicy": "Always", **gates}}


# An engine's Job with a queue is created suspended, and only Kueue resumes it, so that it has no pod and holds no GPUs
# before it is admitted. Clients are not queued, because they request no GPUs and are created for an admitted engine.

LABEL_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
LABEL_KUEUE_MAX_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a LeaderWorkerSet: how long after admission Kueue takes its quota back and deletes its pods."""
QUEUED_DEADLINES = 2
"""That limit, in deadlines of the Job: an engine has a whole one if the operator was down for one after admission."""
KUEUE_GATE = "kueue.x-k8s.io/admission"
"""The scheduling gate that Kueue removes from a pod when it admits it."""


def kueue_labels(run: SpecBenchRun) -> dict[str, str]:
    """The labels by which Kueue manages the engine's Job or LeaderWorkerSet; empty if the run names no queue."""
    placement = run.spec.placement
    if placement.queue_name is None:
        return {}
    priority = placement.queue_priority_class
    return {LABEL_KUEUE_QUEUE: placement.queue_name, **({LABEL_KUEUE_PRIORITY: priority} if priority else {})}


FAIL_ON_DISRUPTION = {
    "action": "FailJob",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""A rule of podFailurePolicy. The Job would fail anyway; by this rule, its condition still has the reason later."""


def engine_job(  # noqa: PLR0917 -- the rule is five, and each is a property of the launch
    run: SpecBenchRun,
    plan: Plan,
    group: EngineGroup,
    attempt: int,
    settings: OperatorSettings,
    preferred_nodes: Sequence[str] = (),
) -> Manifest:
    """The Job of one launch of an engine on one node. If the run names a queue, the queue starts it.

    `preferred_nodes`: nodes of the run's last ready engine.
    """
    meta, queue = _metadata(run, group, attempt), kueue_labels(run)
    return _job(
        run,
        {**meta, "labels": {**meta["labels"], **queue}},
        engine_pod_template(run, plan, group, attempt, settings, preferred_nodes),
        start={"suspend": True} if queue else {},
        end={"podFailurePolicy": {"rules": [FAIL_ON_DISRUPTION]}},
    )


def engine_service(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int, job: int | None = None) -> Manifest:
    """The Service of one launch, so that a client can never reach another launch.

    `job`: the attempt in the labels of the engine's Job, if the Job continues as another launch. Its labels stay the
    same, but the Service of the new launch has another name, which a client of the previous launch does not use.
    """
    port = engine_launch(plan, group.arm).port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(run, group, attempt),
        "spec": {
            "selector": {
                **selector(run, ChildKey(ROLE_ENGINE, group.index, attempt if job is None else job)),
                **(LEADER_SELECTOR if run.spec.placement.nodes > 1 else {}),
            },
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
            # A saturated engine answers its health route late. Without this, its Service would then refuse the
            # client's connections, and the client would report a lost engine.
            "publishNotReadyAddresses": True,
        },
    }


def endpoint(run: SpecBenchRun, plan: Plan, group: EngineGroup, attempt: int) -> str:
    """The URL of one launch's Service, for its client; of a server that is already running, its own URL."""
    running = plan.arm(group.arm).endpoint
    if running is not None:
        return running.address
    name = engine_name(run.metadata.name, group.index, attempt)
    return f"http://{name}.{run.metadata.namespace}.svc:{engine_launch(plan, group.arm).port}"
