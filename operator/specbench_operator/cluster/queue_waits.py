"""Explains why a queue does not admit a Job, from Kueue's Workload or from events.

Only messages depend on it: whether a Job waits is in its own `spec.suspend`. So the operator works the same where it
may not read Workloads, or where the cluster has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specbench_operator.cluster.api import EVENT, WORKLOADS, Forbidden, NotFound, Reader
from specbench_operator.state.objects import Job, QueueWait, RawObject

LABEL_KUEUE_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: UID of its Job."""
NO_KUEUE = "this cluster has no Kueue (it serves no kueue.x-k8s.io): install it, or remove spec.placement.queueName"
NO_WORKLOAD = (
    "Kueue has not created a Workload for the Job yet: if this does not change, check that Kueue runs and manages"
    " this namespace"
)


class KueueReader:
    """Reads Workloads and events of suspended Jobs."""

    def __init__(self, api: Reader) -> None:
        self._api = api

    def wait_of(self, namespace: str, job: Job) -> QueueWait | None:
        """Why the queue of a suspended Job does not admit it; None if unknown. Raises Retry."""
        if not job.queue:
            return None
        try:
            workloads = self._workloads(namespace, job.ref.uid)
        except Forbidden:
            return self._by_events(namespace, job)
        return QueueWait(NO_KUEUE, inadmissible=True) if workloads is None else workload_wait(workloads)

    def _workloads(self, namespace: str, uid: str) -> list[dict[str, Any]] | None:
        """The Workloads of a Job; None if the cluster serves no supported version of the kind."""
        for kind in WORKLOADS:
            try:
                return self._api.list(kind, namespace, labels=f"{LABEL_KUEUE_JOB_UID}={uid}")
            except NotFound:
                continue
        return None

    def _by_events(self, namespace: str, job: Job) -> QueueWait | None:
        """The message of the latest event of the Job or of its Workload."""
        try:
            events = [
                *self._api.list(EVENT, namespace, fields=f"involvedObject.uid={job.ref.uid}"),
                *self._api.list(EVENT, namespace, fields="involvedObject.kind=Workload"),
            ]
        except Forbidden:
            return None
        return latest_event_wait(events, job)


def workload_wait(workloads: Sequence[RawObject]) -> QueueWait:
    """Why the newest of a Job's Workloads is not admitted."""
    if not workloads:
        return QueueWait(NO_WORKLOAD)
    workload = max(workloads, key=lambda raw: str(raw["metadata"].get("creationTimestamp", "")))
    rows = {row["type"]: row for row in workload.get("status", {}).get("conditions", [])}
    reserved, evicted = rows.get("QuotaReserved", {}), rows.get("Evicted", {})
    if workload.get("spec", {}).get("active") is False:
        why = str(evicted.get("message", "")) or "its spec.active is false"
        message = f"Kueue has deactivated the Workload {workload['metadata']['name']}: {why}"
        return QueueWait(message, inadmissible=True)
    if reserved.get("status") == "True":
        checks = str(rows.get("Admitted", {}).get("message", ""))
        return QueueWait(checks or "its quota is reserved; waiting for its admission checks")
    message = str(reserved.get("message", "")) or "waiting for Kueue to evaluate it"
    return QueueWait(message, inadmissible=reserved.get("reason") == "Inadmissible")


def latest_event_wait(events: Sequence[RawObject], job: Job) -> QueueWait | None:
    """The message of the latest event about a Job or its Workload, which Kueue names `job-NAME-HASH`."""
    prefix = f"job-{job.ref.name}-"
    about = [event for event in events if _is_about(event.get("involvedObject", {}), job.ref.uid, prefix)]
    latest = max(about, key=event_time, default=None)
    return QueueWait(str(latest.get("message", ""))) if latest else None


def event_time(event: RawObject) -> str:
    """When an event occurred last, as text that sorts by time."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _is_about(target: RawObject, uid: str, prefix: str) -> bool:
    if target.get("uid") == uid:
        return True
    name = str(target.get("name", ""))
    return target.get("kind") == "Workload" and name.startswith(prefix) and "-" not in name.removeprefix(prefix)
