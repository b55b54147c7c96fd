"""Raw Jobs, Pods, Services and ConfigMaps → the words of `state`. What Kubernetes leaves out becomes a default here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from specbench_api import GROUP
from specbench_api.campaign.names import ANNOTATION_CELL
from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, LABEL_RUN_UID
from specbench_operator.render.client_job import ENGINE_POD
from specbench_operator.render.engine_group import LWS_WORKER
from specbench_operator.render.probe import PROBE
from specbench_operator.render.queue import QUEUE
from specbench_operator.render.told import before_of, nodes_of
from specbench_operator.state.child import Place, Ref
from specbench_operator.state.jobs import Failure, Job, Relaunch, Scope, Thing, Verdict, Waits
from specbench_operator.state.nodes import Node
from specbench_operator.state.observed import EarlierRun
from specbench_operator.state.pods import Pod, Terminated, Waiting

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
"""Label of the pods of a LeaderWorkerSet, whose controllers are StatefulSets that it makes."""
VERDICT = f"{GROUP}/verdict"
"""Annotation of an engine's Job: why its launch is over."""
RELAUNCH = f"{GROUP}/relaunch"
"""Annotation of an engine's Job: which launch it serves since it started over."""

_FACTORS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_QUANTITY = re.compile(r"(\d+)(|Ki|Mi|Gi)")

Raw = Mapping[str, Any]


def job_of(raw: Raw, trouble: str = "", waits: Waits | None = None) -> Job:
    """A Job."""
    meta, status = raw["metadata"], raw.get("status", {})
    conditions = _true_conditions(status)
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    return Job(
        ref=_ref("Job", meta),
        owner=owner_of(raw),
        place=place_of(meta),
        created_at=_needed(meta["creationTimestamp"]),
        started_at=moment(status.get("startTime")),
        suspended=bool(raw.get("spec", {}).get("suspend", False)),
        complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
        failure=_failure(failed, meta) if failed else None,
        deleting="deletionTimestamp" in meta,
        verdict=verdict_of(meta),
        trouble=trouble,
        queue=meta.get("labels", {}).get(QUEUE, ""),
        waits=waits,
        relaunch=relaunch_of(meta),
        engine_pod=meta.get("annotations", {}).get(ENGINE_POD, ""),
        engine_nodes=nodes_of(meta),
        before=before_of(meta),
    )


def pod_of(raw: Raw, groups: Mapping[str, tuple[str, str]] | None = None) -> Pod:
    """A pod. Only its first container matters: ours have one, and injected ones are not what is measured.

    `groups`: by the name of each LeaderWorkerSet, name and UID of the Job that owns it, and so its pods.
    """
    meta, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    conditions = {row["type"]: row for row in status.get("conditions", [])}
    first: Raw = next(iter(spec.get("containers", [])), {})
    container = _named(status.get("containerStatuses", []), first.get("name"))
    probe = _named(status.get("initContainerStatuses", []), PROBE)
    scheduled = conditions.get("PodScheduled", {})
    labels, restarts = meta.get("labels", {}), int(container.get("restartCount", 0))
    by = _controller(raw)
    job, job_uid = (groups or {}).get(labels.get(LWS_NAME, ""), (by.get("name", ""), by.get("uid", "")))
    last = container.get("lastState", {}).get("terminated") if restarts else None
    return Pod(
        ref=_ref("Pod", meta),
        run_uid=labels.get(LABEL_RUN_UID, ""),
        place=place_of(meta),
        job=job,
        job_uid=job_uid,
        phase=status.get("phase", "Pending"),
        created_at=_needed(meta["creationTimestamp"]),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        disrupted=_message_if_true(conditions.get("DisruptionTarget")),
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else None,
        scheduled_at=moment(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        deleted_at=moment(meta.get("deletionTimestamp")),
        waiting=_waiting(container.get("state", {}).get("waiting")),
        terminated=_terminated(container.get("state", {}).get("terminated") or last),
        probe=_terminated(probe.get("state", {}).get("terminated")),
        node=spec.get("nodeName", ""),
        command=(*first.get("command", ()), *first.get("args", ())),
        image=first.get("image", ""),
        image_id=container.get("imageID", ""),
        started_at=moment(container.get("state", {}).get("running", {}).get("startedAt")),
        worker=_number(labels.get(LWS_WORKER)),
        restarts=restarts,
    )


def groups_of(raws: Sequence[Raw]) -> dict[str, tuple[str, str]]:
    """By the name of each LeaderWorkerSet, name and UID of the Job that owns it."""
    owners = {raw["metadata"]["name"]: _controller(raw) for raw in raws}
    return {name: (owner["name"], owner["uid"]) for name, owner in owners.items() if owner}


def node_of(raw: Raw) -> Node:
    """A node. A capacity that cannot be read is not known."""
    meta, status = raw["metadata"], raw.get("status", {})
    info, capacity = status.get("nodeInfo", {}), status.get("capacity", {})
    return Node(
        name=meta["name"],
        labels=meta.get("labels", {}),
        kernel=info.get("kernelVersion", ""),
        kubelet=info.get("kubeletVersion", ""),
        cores=_number(capacity.get("cpu")),
        memory_bytes=_bytes(capacity.get("memory", "")),
    )


def thing_of(kind: str, raw: Raw) -> Thing:
    """A Service, a ConfigMap or a LeaderWorkerSet."""
    meta = raw["metadata"]
    run_uid = meta.get("labels", {}).get(LABEL_RUN_UID, "")
    return Thing(_ref(kind, meta), owner_of(raw), place_of(meta), "deletionTimestamp" in meta, run_uid)


def earlier_of(raw: Raw) -> EarlierRun:
    """A run as far as a gate may compare with it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return EarlierRun(
        name=meta["name"],
        uid=meta["uid"],
        created=meta.get("creationTimestamp", ""),
        phase=status.get("phase", ""),
        uri=(status.get("results") or {}).get("uri", ""),
        cell=meta.get("annotations", {}).get(ANNOTATION_CELL, ""),
    )


def place_of(meta: Raw) -> Place:
    """The part that its labels give it."""
    labels = meta.get("labels", {})
    return Place(labels.get(LABEL_ROLE, ""), _number(labels.get(LABEL_GROUP)), _number(labels.get(LABEL_ATTEMPT)))


def owner_of(raw: Raw) -> str | None:
    """UID of the controller."""
    return _controller(raw).get("uid")


def verdict_of(meta: Raw) -> Verdict | None:
    """The verdict on a launch. One that cannot be read ends the launch all the same: somebody wrote it for a reason."""
    text = meta.get("annotations", {}).get(VERDICT)
    if text is None:
        return None
    try:
        data = json.loads(text)
        return Verdict(Scope(data["scope"]), str(data["reason"]), str(data["message"]), _needed(data["at"]))
    except (ValueError, KeyError, TypeError):
        return Verdict(Scope.GROUP, "Stopped", str(text), _needed(meta["creationTimestamp"]))


def verdict_text(verdict: Verdict) -> str:
    """As the annotation has it."""
    data = {
        "scope": verdict.scope,
        "reason": verdict.reason,
        "message": verdict.message,
        "at": verdict.at.isoformat(timespec="seconds"),
    }
    return json.dumps(data)


def relaunch_of(meta: Raw) -> Relaunch | None:
    """Which launch a Job serves; one that cannot be read says nothing, and the Job's own labels count."""
    try:
        data = json.loads(meta.get("annotations", {}).get(RELAUNCH, ""))
        return Relaunch(int(data["launch"]), int(data["preemptions"]), str(data["pastPod"]))
    except (ValueError, KeyError, TypeError):
        return None


def relaunch_text(relaunch: Relaunch) -> str:
    """As the annotation has it."""
    data = {"launch": relaunch.launch, "preemptions": relaunch.preemptions, "pastPod": relaunch.past_pod}
    return json.dumps(data)


def moment(text: str | None) -> datetime | None:
    """RFC 3339 → aware datetime."""
    return datetime.fromisoformat(text) if text else None


def _needed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ref(kind: str, meta: Raw) -> Ref:
    return Ref(kind, meta["name"], meta["uid"])


def _controller(raw: Raw) -> Raw:
    owners: Sequence[Raw] = raw["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), {})


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _bytes(quantity: str) -> int | None:
    """As nodes write their memory: a whole number, mostly of KiB."""
    match = _QUANTITY.fullmatch(quantity)
    return int(match[1]) * _FACTORS[match[2]] if match else None


def _true_conditions(status: Raw) -> dict[str, Raw]:
    return {row["type"]: row for row in status.get("conditions", []) if row.get("status") == "True"}


def _failure(condition: Raw, meta: Raw) -> Failure:
    at = moment(condition.get("lastTransitionTime")) or _needed(meta["creationTimestamp"])
    return Failure(condition.get("reason", ""), condition.get("message", ""), at)


def _named(statuses: Sequence[Raw], name: str | None) -> Raw:
    return next((row for row in statuses if row["name"] == name), {})


def _message_if_true(condition: Raw | None) -> str | None:
    if condition is None or condition.get("status") != "True":
        return None
    return str(condition.get("message") or condition.get("reason") or "disrupted")


def _waiting(state: Raw | None) -> Waiting | None:
    return Waiting(state.get("reason", ""), state.get("message", "")) if state is not None else None


def _terminated(state: Raw | None) -> Terminated | None:
    if state is None:
        return None
    return Terminated(
        exit_code=int(state["exitCode"]),
        reason=state.get("reason", ""),
        message=state.get("message", ""),
        started_at=moment(state.get("startedAt")),
        finished_at=moment(state.get("finishedAt")),
    )
