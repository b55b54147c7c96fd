"""What a queue says of a Job that it holds back: Kueue's Workload, else events. It explains, and decides nothing.

Whether a Job waits stands in its own `suspend`. So an operator that may not read Workloads, and a cluster that has
none, cost words alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench_operator.cluster.api import Api, Missing
from specbench_operator.cluster.kinds import EVENT, WORKLOADS
from specbench_operator.errors import Retry
from specbench_operator.state.jobs import Job, Waits

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the Job that it stands for."""
NO_KUEUE = "this cluster has no Kueue (it serves no kueue.x-k8s.io): install it, or leave out placement.queueName"
NO_WORKLOAD = "Kueue has made no Workload of it yet: where that stays, Kueue is not running, or not for this namespace"

Raw = Mapping[str, Any]


class Queues:
    """Reads; changes nothing."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def words(self, namespace: str, job: Job) -> Waits | None:
        """Of a suspended Job; None where nothing is said. Raises Retry."""
        if not job.queue:
            return None
        try:
            workloads = self._workloads(namespace, job.ref.uid)
        except Retry as error:
            if error.reason != "Forbidden":
                raise
            return self._by_events(namespace, job)
        return Waits(NO_KUEUE, inadmissible=True) if workloads is None else waits_of(workloads)

    def _workloads(self, namespace: str, uid: str) -> list[dict[str, Any]] | None:
        """None where the cluster has no such kind in any version that we know."""
        for kind in WORKLOADS:
            try:
                return self._api.list(kind, namespace, labels=f"{JOB_UID}={uid}")
            except Missing:
                continue
        return None

    def _by_events(self, namespace: str, job: Job) -> Waits | None:
        """The latest event of the Job, or of a Workload that is named after it."""
        try:
            events = [
                *self._api.list(EVENT, namespace, fields=f"involvedObject.uid={job.ref.uid}"),
                *self._api.list(EVENT, namespace, fields="involvedObject.kind=Workload"),
            ]
        except Retry as error:
            if error.reason == "Forbidden":
                return None
            raise
        return said_in(events, job)


def waits_of(workloads: Sequence[Raw]) -> Waits:
    """What the youngest Workload of a Job says."""
    if not workloads:
        return Waits(NO_WORKLOAD)
    workload = max(workloads, key=lambda raw: str(raw["metadata"].get("creationTimestamp", "")))
    rows = {row["type"]: row for row in workload.get("status", {}).get("conditions", [])}
    reserved, evicted = rows.get("QuotaReserved", {}), rows.get("Evicted", {})
    if workload.get("spec", {}).get("active") is False:
        why = str(evicted.get("message", "")) or "somebody set its spec.active to false"
        return Waits(f"Kueue has given up its Workload {workload['metadata']['name']}: {why}", inadmissible=True)
    if reserved.get("status") == "True":
        checks = str(rows.get("Admitted", {}).get("message", ""))
        return Waits(checks or "its quota is reserved, and its admission checks are awaited")
    words = str(reserved.get("message", "")) or "Kueue has not looked at it yet"
    return Waits(words, inadmissible=reserved.get("reason") == "Inadmissible")


def said_in(events: Sequence[Raw], job: Job) -> Waits | None:
    """The latest that was said of a Job or of its Workload, which Kueue names `job-NAME-HASH`."""
    prefix = f"job-{job.ref.name}-"
    about = [event for event in events if _is_about(event.get("involvedObject", {}), job.ref.uid, prefix)]
    latest = max(about, key=said_at, default=None)
    return Waits(str(latest.get("message", ""))) if latest else None


def said_at(event: Raw) -> str:
    """When an event was said last."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _is_about(target: Raw, uid: str, prefix: str) -> bool:
    if target.get("uid") == uid:
        return True
    name = str(target.get("name", ""))
    return target.get("kind") == "Workload" and name.startswith(prefix) and "-" not in name.removeprefix(prefix)
