"""Converts raw Kubernetes objects to the values of `state`. Fields that Kubernetes omits get their defaults here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.utils import parse_quantity

from specbench_api.campaign.names import ANNOTATION_COMBINATION
from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, LABEL_RUN_UID
from specbench_operator.render.engine_job import KUEUE_GATE, LABEL_KUEUE_QUEUE, LABEL_LWS_WORKER
from specbench_operator.render.engine_pod import PROBE_CONTAINER
from specbench_operator.render.job_annotations import (
    ANNOTATION_ENGINE_POD,
    ANNOTATION_QUEUE,
    parse_engine_nodes,
    parse_prior_launches,
    parse_relaunch,
    parse_verdict,
)
from specbench_operator.state.objects import (
    REPAIRED_KINDS,
    ChildKey,
    ChildObject,
    ContainerTerminated,
    ContainerWaiting,
    Job,
    JobFailure,
    Node,
    ObjectRef,
    Pod,
    RawObject,
)
from specbench_operator.state.run import NamespaceRun
from specbench_operator.state.timestamps import api_timestamp, optional_api_timestamp

LABEL_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
"""Label of the pods of a LeaderWorkerSet. Their controllers are StatefulSets that the LeaderWorkerSet creates."""
LABEL_KUEUE_WORKLOAD = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label of the pods of a LeaderWorkerSet that Kueue manages: name of the Workload by which it admits them."""


_parse_quantity: Any = parse_quantity  # the library is only partly typed
_KEPT_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("labels", "annotations", "ownerReferences"),
)
_UNREAD_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KEPT_STATUS_OF_POD = (
    *("phase", "reason", "message", "conditions"),
    *("containerStatuses", "initContainerStatuses"),
)


def kept_fields(kind: str, raw: RawObject) -> RawObject:
    """The fields of an object that this module and the decisions read; the cache keeps only these."""
    meta = _only(raw["metadata"], _KEPT_METADATA)
    if _UNREAD_ANNOTATION in (meta.get("annotations") or {}):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != _UNREAD_ANNOTATION}
    kept = {**_only(raw, ("apiVersion", "kind")), "metadata": meta}
    match kind:
        case "SpecBenchRun" | "SpecBenchCampaign":
            return {**kept, **_only(raw, ("spec", "status"))}
        case "Job":
            return {**kept, "spec": _only(raw["spec"], ("suspend",)), **_only(raw, ("status",))}
        case "Pod":
            containers = [_only(row, ("name", "image", "command", "args")) for row in raw["spec"]["containers"][:1]]
            spec = {**_only(raw["spec"], ("nodeName", "schedulingGates")), "containers": containers}
            return {**kept, "spec": spec, "status": _only(raw.get("status") or {}, _KEPT_STATUS_OF_POD)}
        case "Service" | "NetworkPolicy":
            return {**kept, **_only(raw, ("spec",))}
        case "ConfigMap":
            return {**kept, **_only(raw, ("data",))}
    return kept


def _only(raw: RawObject, names: Sequence[str]) -> dict[str, Any]:
    return {name: raw[name] for name in names if name in raw}


def parse_job(raw: RawObject, warning: str = "") -> Job:
    """Convert a Job."""
    meta, status = raw["metadata"], raw.get("status", {})
    annotations = meta.get("annotations", {})
    conditions = {row["type"]: row for row in status.get("conditions", []) if row.get("status") == "True"}
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    return Job(
        ref=_ref("Job", meta),
        owner=controller_uid(raw),
        key=parse_child_key(meta),
        created_at=api_timestamp(meta["creationTimestamp"]),
        started_at=optional_api_timestamp(status.get("startTime")),
        suspended=bool(raw.get("spec", {}).get("suspend", False)),
        complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
        failure=_failure(failed, meta) if failed else None,
        deleting="deletionTimestamp" in meta,
        verdict=parse_verdict(meta),
        warning=warning,
        queue=meta.get("labels", {}).get(LABEL_KUEUE_QUEUE) or annotations.get(ANNOTATION_QUEUE, ""),
        relaunch=parse_relaunch(meta),
        engine_pod=annotations.get(ANNOTATION_ENGINE_POD, ""),
        engine_nodes=parse_engine_nodes(meta),
        prior_launches=parse_prior_launches(meta),
        unlisted_pods=int(status.get("active", 0)) + int(status.get("terminating") or 0),
    )


def parse_pod(raw: RawObject, groups: Mapping[str, tuple[str, str]] | None = None) -> Pod:
    """Convert a pod. Only the first container is used: specbench's pods have one, and injected sidecars come after it.

    `groups`: LeaderWorkerSet's name → (name, UID) of the Job that owns it, which counts as the controller of its pods.
    """
    meta, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    conditions = {row["type"]: row for row in status.get("conditions", [])}
    first: RawObject = next(iter(spec.get("containers", [])), {})
    container = _named(status.get("containerStatuses", []), first.get("name"))
    probe = _named(status.get("initContainerStatuses", []), PROBE_CONTAINER)
    scheduled = conditions.get("PodScheduled", {})
    labels, restarts = meta.get("labels", {}), int(container.get("restartCount", 0))
    owner = _controller(raw)
    job, job_uid = (groups or {}).get(labels.get(LABEL_LWS_NAME, ""), (owner.get("name", ""), owner.get("uid", "")))
    last = container.get("lastState", {}).get("terminated") if restarts else None
    return Pod(
        ref=_ref("Pod", meta),
        run_uid=labels.get(LABEL_RUN_UID, ""),
        key=parse_child_key(meta),
        job=job,
        job_uid=job_uid,
        phase=status.get("phase", "Pending"),
        created_at=api_timestamp(meta["creationTimestamp"]),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        disrupted=_message_if_true(conditions.get("DisruptionTarget"))
        or _message_if_true(conditions.get("TerminationTarget")),
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else None,
        scheduled_at=optional_api_timestamp(scheduled.get("lastTransitionTime"))
        if scheduled.get("status") == "True"
        else None,
        deleted_at=optional_api_timestamp(meta.get("deletionTimestamp")),
        waiting=_waiting(container.get("state", {}).get("waiting")),
        terminated=_terminated(container.get("state", {}).get("terminated") or last),
        probe=_terminated(probe.get("state", {}).get("terminated")),
        node=spec.get("nodeName", ""),
        command=(*first.get("command", ()), *first.get("args", ())),
        image=first.get("image", ""),
        image_id=container.get("imageID", ""),
        started_at=optional_api_timestamp(container.get("state", {}).get("running", {}).get("startedAt")),
        worker=whole_number(labels.get(LABEL_LWS_WORKER)),
        restarts=restarts,
        gated=any(gate["name"] == KUEUE_GATE for gate in spec.get("schedulingGates", ())),
        workload=labels.get(LABEL_KUEUE_WORKLOAD, ""),
    )


def leader_worker_set_owners(raws: Sequence[RawObject]) -> dict[str, tuple[str, str]]:
    """LeaderWorkerSet's name → (name, UID) of the Job that owns it."""
    owners = {raw["metadata"]["name"]: _controller(raw) for raw in raws}
    return {name: (owner["name"], owner["uid"]) for name, owner in owners.items() if owner}


def parse_node(raw: RawObject) -> Node:
    """Convert a node. A capacity in an unknown format becomes None."""
    meta, status = raw["metadata"], raw.get("status", {})
    info, capacity = status.get("nodeInfo", {}), status.get("capacity", {})
    return Node(
        name=meta["name"],
        labels=meta.get("labels", {}),
        kernel=info.get("kernelVersion", ""),
        kubelet=info.get("kubeletVersion", ""),
        cores=whole_number(capacity.get("cpu")),
        memory_bytes=_bytes(capacity.get("memory", "")),
    )


def parse_child_object(kind: str, raw: RawObject) -> ChildObject:
    """Convert a Service, a ConfigMap, a NetworkPolicy or a LeaderWorkerSet."""
    meta = raw["metadata"]
    run_uid = meta.get("labels", {}).get(LABEL_RUN_UID, "")
    return ChildObject(
        _ref(kind, meta),
        controller_uid(raw),
        parse_child_key(meta),
        "deletionTimestamp" in meta,
        run_uid,
        raw["spec"] if kind in REPAIRED_KINDS else None,
    )


def parse_namespace_run(raw: RawObject) -> NamespaceRun:
    """Convert a run of the namespace. Missing values are tolerated, because anybody may have written it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    reasons = (row.get("reason", "") for row in status.get("conditions", []) if row.get("type") == "Reconciling")
    return NamespaceRun(
        name=meta["name"],
        uid=meta["uid"],
        created=meta.get("creationTimestamp", ""),
        phase=status.get("phase", ""),
        uri=(status.get("results") or {}).get("uri", ""),
        combination=meta.get("annotations", {}).get(ANNOTATION_COMBINATION, ""),
        reason=next(reasons, ""),
        suspended=bool((raw.get("spec") or {}).get("suspend", False)),
        deleting="deletionTimestamp" in meta,
        ended=bool(status.get("completionTime")),
    )


def parse_child_key(meta: RawObject) -> ChildKey:
    """The role, group and attempt from an object's labels."""
    labels = meta.get("labels", {})
    return ChildKey(
        labels.get(LABEL_ROLE, ""), whole_number(labels.get(LABEL_GROUP)), whole_number(labels.get(LABEL_ATTEMPT))
    )


def controller_uid(raw: RawObject) -> str | None:
    """UID of the object's controller; None if it has none."""
    return _controller(raw).get("uid")


def whole_number(text: str | None) -> int | None:
    """The number in a label; None if it is missing or not a whole number."""
    return int(text) if text is not None and text.isdecimal() else None


def _ref(kind: str, meta: RawObject) -> ObjectRef:
    return ObjectRef(kind, meta["name"], meta["uid"])


def _controller(raw: RawObject) -> RawObject:
    owners: Sequence[RawObject] = raw["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), {})


def _bytes(quantity: str) -> int | None:
    """Bytes of a node's memory quantity; None for what is no quantity."""
    try:
        return int(_parse_quantity(quantity))
    except ValueError:
        return None


def _failure(condition: RawObject, meta: RawObject) -> JobFailure:
    at = optional_api_timestamp(condition.get("lastTransitionTime")) or api_timestamp(meta["creationTimestamp"])
    return JobFailure(condition.get("reason", ""), condition.get("message", ""), at)


def _named(statuses: Sequence[RawObject], name: str | None) -> RawObject:
    return next((row for row in statuses if row["name"] == name), {})


def _message_if_true(condition: RawObject | None) -> str | None:
    if condition is None or condition.get("status") != "True":
        return None
    return str(condition.get("message") or condition.get("reason") or "disrupted")


def _waiting(state: RawObject | None) -> ContainerWaiting | None:
    return ContainerWaiting(state.get("reason", ""), state.get("message", "")) if state is not None else None


def _terminated(state: RawObject | None) -> ContainerTerminated | None:
    if state is None:
        return None
    return ContainerTerminated(
        exit_code=int(state["exitCode"]),
        reason=state.get("reason", ""),
        message=state.get("message", ""),
        started_at=optional_api_timestamp(state.get("startedAt")),
        finished_at=optional_api_timestamp(state.get("finishedAt")),
    )
