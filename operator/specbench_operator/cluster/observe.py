"""Everything about one run, read in one go: the run, its children, their pods, and last of all S3.

The order is what makes it safe without a lock: a client that is seen complete finished before S3 was listed, so a
manifest that is missing then is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER, ROLE_CLIENT, ROLE_ENGINE, ROLE_PLAN
from specbench_api.spec.reading import parse_run
from specbench_operator.cluster.api import Api, Missing, Raw
from specbench_operator.cluster.kinds import CONFIG_MAP, EVENT, JOB, LEADER_WORKER_SET, NODE, POD, RUN, SERVICE
from specbench_operator.cluster.results import Results
from specbench_operator.cluster.views import groups_of, job_of, node_of, owner_of, place_of, pod_of, thing_of
from specbench_operator.errors import Retry
from specbench_operator.state import Job, Node, NodeUnread, Observed, Place, Pod, Stored, StoreTrouble

SELECTOR = f"{LABEL_MANAGED}={MANAGER}"
"""Of every child, and of nothing else in the cluster: what is watched and listed."""


class Observer:
    """Reads; changes nothing."""

    def __init__(self, api: Api, results: Results, *, leader_worker_sets: bool = False) -> None:
        self._api = api
        self._results = results
        self._leader_worker_sets = leader_worker_sets

    def runs(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """All runs, for the relist."""
        return list(self._api.list(RUN, namespace))

    def observe(self, namespace: str, name: str) -> Observed | None:
        """One run, or None where there is none. Raises Retry."""
        resource = self._api.get(RUN, namespace, name)
        if resource is None:
            return None
        if resource["metadata"].get("deletionTimestamp"):
            return Observed(resource)
        selector = f"{SELECTOR},{LABEL_RUN}={name}"
        jobs = self._api.list(JOB, namespace, labels=selector)
        sets = self._sets(namespace, selector)
        groups = groups_of(sets)
        pods = tuple(pod_of(raw, groups) for raw in self._api.list(POD, namespace, labels=selector))
        services = self._api.list(SERVICE, namespace, labels=selector)
        plans = self._api.list(CONFIG_MAP, namespace, labels=selector)
        things = (
            *(thing_of(LEADER_WORKER_SET, raw) for raw in sets),
            *(thing_of(SERVICE, raw) for raw in services),
            *(thing_of(CONFIG_MAP, raw) for raw in plans),
        )
        return Observed(
            resource=resource,
            jobs=tuple(self._job(raw, pods) for raw in jobs),
            pods=pods,
            things=things,
            plan_json=_plan(plans, resource["metadata"]["uid"]),
            nodes=self._nodes(pods, {place_of(raw["metadata"]) for raw in jobs}),
            stored=self._stored(resource),
        )

    def _sets(self, namespace: str, selector: str) -> list[Raw]:
        """LeaderWorkerSets; none where the operator is not told to use them, or where the cluster has no such kind."""
        if not self._leader_worker_sets:
            return []
        try:
            return self._api.list(LEADER_WORKER_SET, namespace, labels=selector)
        except Missing:
            return []

    def _job(self, raw: Mapping[str, Any], pods: tuple[Pod, ...]) -> Job:
        """A Job; where it has no pod although it should, with the latest warning that says why."""
        job = job_of(raw)
        podless = not any(pod.job_uid == job.ref.uid for pod in pods)
        if not podless or job.ended or job.suspended or job.verdict:
            return job
        return job_of(raw, self._trouble(raw["metadata"]["namespace"], job.ref.uid))

    def _trouble(self, namespace: str, uid: str) -> str:
        fields = f"involvedObject.uid={uid},type=Warning"
        try:
            warnings = self._api.list(EVENT, namespace, fields=fields)
        except Retry as error:
            if error.reason == "Forbidden":  # it explains a Job that does not start, and decides nothing
                return ""
            raise
        latest = max(warnings, key=_said_at, default=None)
        return str(latest.get("message", "")) if latest else ""

    def _nodes(self, pods: tuple[Pod, ...], at_work: set[Place]) -> tuple[Node | NodeUnread, ...]:
        """Where engines got ready whose client is not there yet: it is told of the node when it is created."""
        names = {
            pod.node
            for pod in pods
            if pod.place.role == ROLE_ENGINE and pod.ready and pod.node and _client(pod.place) not in at_work
        }
        return tuple(self._node(name) for name in sorted(names))

    def _node(self, name: str) -> Node | NodeUnread:
        try:
            raw = self._api.get(NODE, None, name)
        except Retry as error:
            if error.reason == "Forbidden":  # it explains a measurement, and decides nothing
                remedy = "it needs `get` on nodes (the chart's rbac.readNodes)"
                return NodeUnread(name, f"the operator may not read the node: {remedy}")
            raise
        return NodeUnread(name, "the node is gone") if raw is None else node_of(raw)

    def _stored(self, resource: Mapping[str, Any]) -> Stored | StoreTrouble | None:
        """S3, unless the run has ended or cannot be read: then nothing depends on it."""
        if (resource.get("status") or {}).get("completionTime"):
            return None
        try:
            run = parse_run(resource)
        except InvalidSpec:
            return None
        return self._results.read(run)


def _client(engine: Place) -> Place:
    return Place(ROLE_CLIENT, engine.group, engine.attempt)


def _plan(plans: list[dict[str, Any]], uid: str) -> str | None:
    ours = (raw for raw in plans if owner_of(raw) == uid and thing_of(CONFIG_MAP, raw).place.role == ROLE_PLAN)
    return next((raw.get("data", {}).get(PLAN) for raw in ours), None)


def _said_at(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
