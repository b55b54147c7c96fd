"""Reads everything about one run: the run, its children, their pods, and S3 last.

No lock is needed because of this order: a client that is observed as complete wrote its manifests before S3 is listed,
so a manifest that is missing then was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.errors import InvalidSpec
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.names import (
    LABEL_MANAGED,
    LABEL_RUN,
    MANAGER,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_PLAN,
)
from specbench_api.spec.conditions import Phase
from specbench_api.spec.gate import Gate
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.placement import PinNode
from specbench_operator.cluster.api import (
    CONFIG_MAP,
    EVENT,
    JOB,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    NODE,
    POD,
    RUN,
    SERVICE,
    Forbidden,
    KubernetesApi,
    NotFound,
    Raw,
)
from specbench_operator.cluster.kueue import KueueReader, event_time
from specbench_operator.cluster.parsing import (
    controller_uid,
    leader_worker_set_owners,
    parse_child_object,
    parse_earlier_run,
    parse_job,
    parse_node,
    parse_pod,
)
from specbench_operator.cluster.results import ResultsReader, adopts_latest, known_results_uid, with_adopted_uid
from specbench_operator.state.objects import ChildKey, Job, Node, Pod, UnreadableNode
from specbench_operator.state.run import EarlierRun, RunObservation, StoredResults, StoreFailure

CHILD_SELECTOR = f"{LABEL_MANAGED}={MANAGER}"
"""Label selector of all children of runs, for watches and lists."""


class RunObserver:
    """Reads runs, their children and their results."""

    def __init__(
        self,
        api: KubernetesApi,
        results: ResultsReader,
        *,
        leader_worker_sets: bool = False,
        network_policies: bool = False,
    ) -> None:
        self._api = api
        self._results = results
        self._kueue = KueueReader(api)
        self._leader_worker_sets = leader_worker_sets
        self._network_policies = network_policies

    def runs(self, namespace: str | None) -> list[Mapping[str, Any]]:
        """All runs, for the relist."""
        return list(self._api.list(RUN, namespace))

    def read_run(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One run without its children; None if it does not exist."""
        return self._api.get(RUN, namespace, name)

    def observe(self, namespace: str, name: str) -> RunObservation | None:
        """Read one run with its children and results; None if it does not exist. Raises Retry."""
        resource = self.read_run(namespace, name)
        if resource is None:
            return None
        if resource["metadata"].get("deletionTimestamp"):
            return RunObservation(resource)
        selector = f"{CHILD_SELECTOR},{LABEL_RUN}={name}"
        raw_jobs = self._api.list(JOB, namespace, labels=selector)
        sets = self._sets(namespace, selector)
        groups = leader_worker_set_owners(sets)
        pods = tuple(parse_pod(raw, groups) for raw in self._api.list(POD, namespace, labels=selector))
        jobs = tuple(self._job(raw, pods) for raw in raw_jobs)
        services = self._api.list(SERVICE, namespace, labels=selector)
        plans = self._api.list(CONFIG_MAP, namespace, labels=selector)
        policies = self._api.list(NETWORK_POLICY, namespace, labels=selector) if self._network_policies else []
        objects = (
            *(parse_child_object(LEADER_WORKER_SET, raw) for raw in sets),
            *(parse_child_object(SERVICE, raw) for raw in services),
            *(parse_child_object(CONFIG_MAP, raw) for raw in plans),
            *(parse_child_object(NETWORK_POLICY, raw) for raw in policies),
        )
        plan_json, nodes = _plan_json(plans, resource["metadata"]["uid"]), self._nodes(pods, jobs)
        adopting, failure = self._adopting(resource, plan_json)
        return RunObservation(
            resource=adopting,
            jobs=jobs,
            pods=pods,
            objects=objects,
            plan_json=plan_json,
            nodes=nodes,
            stored=failure or self._stored(adopting),
            **self._gate(adopting),
        )

    def _sets(self, namespace: str, selector: str) -> list[Raw]:
        """LeaderWorkerSets of a run; none if the operator may not use them or the cluster has no such kind."""
        if not self._leader_worker_sets:
            return []
        try:
            return self._api.list(LEADER_WORKER_SET, namespace, labels=selector)
        except NotFound:
            return []

    def _job(self, raw: Mapping[str, Any], pods: tuple[Pod, ...]) -> Job:
        """A Job; if it has no pod although it should, with its latest warning or the reason why its queue waits."""
        job = parse_job(raw)
        if job.suspended and not job.ended:
            return parse_job(raw, waits=self._kueue.wait_of(raw["metadata"]["namespace"], job))
        podless = not any(pod.job_uid == job.ref.uid for pod in pods)
        if not podless or job.ended or job.verdict:
            return job
        return parse_job(raw, self._latest_warning(raw["metadata"]["namespace"], job.ref.uid))

    def _latest_warning(self, namespace: str, uid: str) -> str:
        fields = f"involvedObject.uid={uid},type=Warning"
        try:
            warnings = self._api.list(EVENT, namespace, fields=fields)
        except Forbidden:  # events only explain why a Job does not start; no decision needs them
            return ""
        latest = max(warnings, key=event_time, default=None)
        return str(latest.get("message", "")) if latest else ""

    def _nodes(self, pods: tuple[Pod, ...], jobs: tuple[Job, ...]) -> tuple[Node | UnreadableNode, ...]:
        """Nodes of ready engines that have no client yet, because the client is given facts about its engine's node."""
        existing = {job.key for job in jobs}
        waiting = {job.ref.uid for job in jobs if job.key.role == ROLE_ENGINE and _client_key(job) not in existing}
        names = {pod.node for pod in pods if pod.job_uid in waiting and pod.ready and pod.node}
        return tuple(self._node(name) for name in sorted(names))

    def _node(self, name: str) -> Node | UnreadableNode:
        try:
            raw = self._api.get(NODE, None, name)
        except Forbidden:  # facts about nodes are only recorded; no decision needs them
            remedy = "give it `get` on nodes (rbac.readNodes=true in specbench's chart)"
            return UnreadableNode(name, f"the operator may not read the node: {remedy}")
        return UnreadableNode(name, "the node does not exist any more") if raw is None else parse_node(raw)

    def _gate(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of RunObservation for a gate that is not in status yet: its report in S3, and possible baselines."""
        status = resource.get("status") or {}
        if not status.get("completionTime") or status.get("phase") != Phase.SUCCEEDED:
            return {}
        try:
            run = parse_run(resource)
        except InvalidSpec:
            return {}
        gate = run.spec.gate
        if gate is None or (status.get("gate") or {}).get("gateDigest") == digest_of_gate(gate):
            return {}
        return {"gate": self._results.read_gate(run), "earlier": self._earlier_runs(run.metadata.namespace, gate)}

    def _earlier_runs(self, namespace: str, gate: Gate) -> tuple[EarlierRun, ...]:
        ref = gate.baseline_ref
        if ref.run is not None:
            raw = self._api.get(RUN, namespace, ref.run)
            return () if raw is None else (parse_earlier_run(raw),)
        if ref.campaign is None:
            return ()
        return tuple(
            parse_earlier_run(raw) for raw in self._api.list(RUN, namespace, labels=f"{LABEL_CAMPAIGN}={ref.campaign}")
        )

    def _adopting(
        self, resource: Mapping[str, Any], plan_json: str | None
    ) -> tuple[Mapping[str, Any], StoreFailure | None]:
        """The run with `adopt: Latest` replaced by the UID of the newest results, or why S3 could not be read."""
        if not adopts_latest(resource):
            return resource, None
        found: str | StoreFailure | None = known_results_uid(resource, plan_json)
        if found is None:
            try:
                found = self._results.latest(parse_run(resource))
            except InvalidSpec:
                return resource, None
        if isinstance(found, StoreFailure):
            return resource, found
        return with_adopted_uid(resource, found or resource["metadata"]["uid"]), None

    def _stored(self, resource: Mapping[str, Any]) -> StoredResults | StoreFailure | None:
        """The results in S3; None if the run has ended or is invalid, because then no decision needs them."""
        if (resource.get("status") or {}).get("completionTime"):
            return None
        try:
            run = parse_run(resource)
        except InvalidSpec:
            return None
        unknown, placement = not (resource.get("status") or {}).get("engineNodes"), run.spec.placement
        one_pod = placement.nodes == 1  # a stored launch contains only the first node
        return self._results.read(run, last_launch=unknown and one_pod and placement.pin_node is not PinNode.NONE)


def _client_key(engine: Job) -> ChildKey:
    return ChildKey(ROLE_CLIENT, engine.key.group, engine.launch)


def _plan_json(plans: list[dict[str, Any]], uid: str) -> str | None:
    ours = (
        raw for raw in plans if controller_uid(raw) == uid and parse_child_object(CONFIG_MAP, raw).key.role == ROLE_PLAN
    )
    return next((raw.get("data", {}).get(PLAN) for raw in ours), None)
