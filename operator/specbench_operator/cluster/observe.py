"""Everything about one run, read in one go: the run, its children, their pods, and last of all S3.

The order is what makes it safe without a lock: a client that is seen complete finished before S3 was listed, so a
manifest that is missing then is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.errors import InvalidSpec
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.asked import asked_digest
from specbench_api.plan.names import (
    LABEL_MANAGED,
    LABEL_RUN,
    MANAGER,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_PLAN,
)
from specbench_api.spec.affinity import PinNode
from specbench_api.spec.conditions import Phase
from specbench_api.spec.gate import Gate
from specbench_api.spec.reading import parse_run
from specbench_operator.cluster.adopting import carrying_on, kept_uid, means_latest
from specbench_operator.cluster.api import Api, Missing, Raw
from specbench_operator.cluster.kinds import CONFIG_MAP, EVENT, JOB, LEADER_WORKER_SET, NODE, POD, RUN, SERVICE
from specbench_operator.cluster.queues import Queues, said_at
from specbench_operator.cluster.results import Results
from specbench_operator.cluster.views import earlier_of, groups_of, job_of, node_of, owner_of, pod_of, thing_of
from specbench_operator.errors import Retry
from specbench_operator.state.child import Place
from specbench_operator.state.jobs import Job
from specbench_operator.state.nodes import Node, NodeUnread
from specbench_operator.state.observed import EarlierRun, Observed
from specbench_operator.state.pods import Pod
from specbench_operator.state.stored import Stored, StoreTrouble

SELECTOR = f"{LABEL_MANAGED}={MANAGER}"
"""Of every child, and of nothing else in the cluster: what is watched and listed."""


class Observer:
    """Reads; changes nothing."""

    def __init__(self, api: Api, results: Results, *, leader_worker_sets: bool = False) -> None:
        self._api = api
        self._results = results
        self._queues = Queues(api)
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
        raw_jobs = self._api.list(JOB, namespace, labels=selector)
        sets = self._sets(namespace, selector)
        groups = groups_of(sets)
        pods = tuple(pod_of(raw, groups) for raw in self._api.list(POD, namespace, labels=selector))
        jobs = tuple(self._job(raw, pods) for raw in raw_jobs)
        services = self._api.list(SERVICE, namespace, labels=selector)
        plans = self._api.list(CONFIG_MAP, namespace, labels=selector)
        things = (
            *(thing_of(LEADER_WORKER_SET, raw) for raw in sets),
            *(thing_of(SERVICE, raw) for raw in services),
            *(thing_of(CONFIG_MAP, raw) for raw in plans),
        )
        plan_json, nodes = _plan(plans, resource["metadata"]["uid"]), self._nodes(pods, jobs)
        adopting, trouble = self._adopting(resource, plan_json)
        return Observed(
            resource=adopting,
            jobs=jobs,
            pods=pods,
            things=things,
            plan_json=plan_json,
            nodes=nodes,
            stored=trouble or self._stored(adopting),
            **self._gate(adopting),
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
        """A Job; where it has no pod although it should, with the latest warning, or with its queue's words."""
        job = job_of(raw)
        if job.suspended and not job.ended:
            return job_of(raw, waits=self._queues.words(raw["metadata"]["namespace"], job))
        podless = not any(pod.job_uid == job.ref.uid for pod in pods)
        if not podless or job.ended or job.verdict:
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
        latest = max(warnings, key=said_at, default=None)
        return str(latest.get("message", "")) if latest else ""

    def _nodes(self, pods: tuple[Pod, ...], jobs: tuple[Job, ...]) -> tuple[Node | NodeUnread, ...]:
        """Where engines got ready whose client is not there yet: it is told of the node when it is created."""
        at_work = {job.place for job in jobs}
        waiting = {job.ref.uid for job in jobs if job.place.role == ROLE_ENGINE and _client(job) not in at_work}
        names = {pod.node for pod in pods if pod.job_uid in waiting and pod.ready and pod.node}
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

    def _gate(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        """What a gate needs that is still to be told: its answer in S3, and the runs that it may mean."""
        status = resource.get("status") or {}
        if not status.get("completionTime") or status.get("phase") != Phase.SUCCEEDED:
            return {}
        try:
            run = parse_run(resource)
        except InvalidSpec:
            return {}
        gate = run.spec.gate
        if gate is None or (status.get("gate") or {}).get("asked") == asked_digest(gate):
            return {}
        return {"gate": self._results.read_gate(run), "earlier": self._earlier(run.metadata.namespace, gate)}

    def _earlier(self, namespace: str, gate: Gate) -> tuple[EarlierRun, ...]:
        ref = gate.baseline_ref
        if ref.run is not None:
            raw = self._api.get(RUN, namespace, ref.run)
            return () if raw is None else (earlier_of(raw),)
        if ref.campaign is None:
            return ()
        return tuple(
            earlier_of(raw) for raw in self._api.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN}={ref.campaign}")
        )

    def _adopting(
        self, resource: Mapping[str, Any], plan_json: str | None
    ) -> tuple[Mapping[str, Any], StoreTrouble | None]:
        """The run with the UID of the newest results, where those are asked for and S3 has said which they are."""
        if not means_latest(resource):
            return resource, None
        found: str | StoreTrouble | None = kept_uid(resource, plan_json)
        if found is None:
            try:
                found = self._results.latest(parse_run(resource))
            except InvalidSpec:
                return resource, None
        if isinstance(found, StoreTrouble):
            return resource, found
        return carrying_on(resource, found or resource["metadata"]["uid"]), None

    def _stored(self, resource: Mapping[str, Any]) -> Stored | StoreTrouble | None:
        """S3, unless the run has ended or cannot be read: then nothing depends on it."""
        if (resource.get("status") or {}).get("completionTime"):
            return None
        try:
            run = parse_run(resource)
        except InvalidSpec:
            return None
        forgotten, placement = not (resource.get("status") or {}).get("engineNodes"), run.spec.placement
        one_pod = placement.nodes == 1  # a launch tells of the first node alone
        return self._results.read(run, last_launch=forgotten and one_pod and placement.pin_node is not PinNode.NONE)


def _client(engine: Job) -> Place:
    return Place(ROLE_CLIENT, engine.place.group, engine.launch)


def _plan(plans: list[dict[str, Any]], uid: str) -> str | None:
    ours = (raw for raw in plans if owner_of(raw) == uid and thing_of(CONFIG_MAP, raw).place.role == ROLE_PLAN)
    return next((raw.get("data", {}).get(PLAN) for raw in ours), None)
