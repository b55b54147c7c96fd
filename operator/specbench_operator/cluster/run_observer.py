"""Reads everything about one run: the run, its children, their pods, and S3 last.

There are two observers: one reads from the cache, to find out whether there is anything to do, and the other from the
API server, to decide what to do. See docs/concepts/architecture.md.

No lock is needed because of this order: a client that is observed as complete wrote its manifests before S3 is listed,
so a manifest that is missing then was never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.errors import InvalidSpec
from specbench_api.fence.model import Limits
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.names import (
    LABEL_MANAGED,
    LABEL_RUN,
    MANAGER,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_PLAN,
    ROLE_REPORT,
    client_name,
    engine_name,
    plan_name,
    report_name,
)
from specbench_api.spec.conditions import IN_PROGRESS_PHASES, GroupState, Phase
from specbench_api.spec.gate import Gate
from specbench_api.spec.placement import PinNode
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.secrets import GATE_USES, secret_references, unusable_secrets
from specbench_api.spec.status import RunStatus
from specbench_operator.cluster.kubernetes_api import (
    CONFIG_MAP,
    EVENT,
    JOB,
    LEADER_WORKER_SET,
    NETWORK_POLICY,
    NODE,
    POD,
    RUN,
    SERVICE,
    WORKLOADS,
    Forbidden,
    NotFound,
    Raw,
    Reader,
)
from specbench_operator.cluster.object_cache import CacheReader
from specbench_operator.cluster.parsing import (
    controller_uid,
    leader_worker_set_owners,
    parse_child_object,
    parse_job,
    parse_namespace_run,
    parse_node,
    parse_pod,
)
from specbench_operator.cluster.results import ResultsReader, adopts_latest, known_results_uid, with_adopted_uid
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.state.conditions import read_status
from specbench_operator.state.objects import ChildKey, Job, Node, Pod, QueueWait, RawObject, UnreadableNode
from specbench_operator.state.run import (
    NamespaceRun,
    RunObservation,
    StoredResults,
    StoreFailure,
    parsed_run,
)

CHILD_SELECTOR = f"{LABEL_MANAGED}={MANAGER}"
"""Label selector of all children of runs, for watches and lists."""


LIST_SHARE = 0.1
"""Maximum share of the time in which the runs of a namespace are listed for its limits. Without it, a thousand waiting
runs would each list all of them with every resync."""


class RunObserver:
    """Reads runs, their children and their results.

    `others`: the reader of other runs of the namespace, if it is not `api`.
    """

    def __init__(
        self,
        api: Reader,
        results: ResultsReader,
        secrets: SecretReader | None = None,
        *,
        others: Reader | None = None,
        leader_worker_sets: bool = False,
        network_policies: bool = False,
        limits: Limits | None = None,
        default_store: S3 | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._live = not isinstance(api, CacheReader)
        self._others = others or api
        self._results = results
        self._secrets = secrets or SecretReader(api)
        self._leader_worker_sets = leader_worker_sets
        self._namespace_limited = limits is not None and limits.runs > 0
        self._network_policies = network_policies
        self._default_store = default_store
        self._clock = clock
        self._listed: dict[str, tuple[float, tuple[NamespaceRun, ...]]] = {}
        """Namespace → until when the list of its runs is used, and the list."""

    def read_run(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One run without its children; None if it does not exist."""
        resource = self._api.get(RUN, namespace, name)
        return resource and with_store(resource, self._default_store)

    def observe_cluster(self, namespace: str, name: str) -> RunObservation | None:
        """Read one run with its children; None if it does not exist. Raises Retry."""
        resource = self.read_run(namespace, name)
        if resource is None:
            return None
        if resource["metadata"].get("deletionTimestamp"):
            return RunObservation(resource, live=self._live)
        selector = f"{CHILD_SELECTOR},{LABEL_RUN}={name}"
        raw_jobs = self._api.list(JOB, namespace, labels=selector)
        sets = self._sets(namespace, selector)
        groups = leader_worker_set_owners(sets)
        pods = tuple(parse_pod(raw, groups) for raw in self._api.list(POD, namespace, labels=selector))
        jobs = (*(self._job(raw, pods) for raw in raw_jobs), *self._unlisted_jobs(resource, raw_jobs, pods))
        services = self._api.list(SERVICE, namespace, labels=selector)
        plans = self._api.list(CONFIG_MAP, namespace, labels=selector)
        policies = self._api.list(NETWORK_POLICY, namespace, labels=selector) if self._network_policies else []
        objects = (
            *(parse_child_object(LEADER_WORKER_SET, raw) for raw in sets),
            *(parse_child_object(SERVICE, raw) for raw in services),
            *(parse_child_object(CONFIG_MAP, raw) for raw in plans),
            *(parse_child_object(NETWORK_POLICY, raw) for raw in policies),
        )
        plan_data, nodes = _plan_data(plans, resource["metadata"]), self._nodes(pods, jobs)
        observed = RunObservation(
            resource,
            jobs,
            pods,
            objects,
            plan_data,
            nodes,
            secret_uses=self._secret_uses(resource),
            namespace_runs=self._namespace_runs(resource),
            live=self._live,
        )
        failure = observed.secret_uses
        return replace(observed, stored=failure, gate=failure) if isinstance(failure, StoreFailure) else observed

    def _secret_uses(self, resource: Mapping[str, Any]) -> Mapping[str, str] | StoreFailure | None:
        """The labels of the run's Secrets; None if Secrets need no label, or no decision needs them. Raises Retry."""
        finished = bool((resource.get("status") or {}).get("completionTime"))
        if not self._secrets.opt_in or (finished and _run_with_pending_gate(resource) is None):
            return None
        try:
            run = parsed_run(resource)
        except InvalidSpec:
            return None
        return self._secrets.uses(run.metadata.namespace, (row.name for row in secret_references(run.spec)))

    def read_store(self, observed: RunObservation) -> RunObservation:
        """Add the results in S3 to an observation of the cluster, if a decision needs them. Raises Retry."""
        if store_of(observed) is None:
            return observed
        adopting, failure = self._adopting(observed.resource, observed.plan_data)
        stored = failure or self._stored(adopting)
        return replace(observed, resource=adopting, stored=stored, **self._gate(adopting))

    def _namespace_runs(self, resource: Mapping[str, Any]) -> tuple[NamespaceRun, ...]:
        """All runs of the namespace, if a limit decides whether this one may begin."""
        status = resource.get("status") or {}
        if not self._namespace_limited or status.get("completionTime") or status.get("phase") in IN_PROGRESS_PHASES:
            return ()
        namespace, began = resource["metadata"]["namespace"], self._clock()
        until, runs = self._listed.get(namespace, (began, ()))
        if began >= until:
            runs = tuple(parse_namespace_run(raw) for raw in self._others.each(RUN, namespace))
            ended = self._clock()
            self._listed[namespace] = (ended + (ended - began) * (1 / LIST_SHARE - 1), runs)
        return runs

    def _sets(self, namespace: str, selector: str) -> list[Raw]:
        """LeaderWorkerSets of a run; none if the operator may not use them or the cluster has no such kind."""
        if not self._leader_worker_sets:
            return []
        try:
            return self._api.list(LEADER_WORKER_SET, namespace, labels=selector)
        except NotFound:
            return []

    def _unlisted_jobs(
        self, resource: Mapping[str, Any], listed: Sequence[Raw], pods: tuple[Pod, ...]
    ) -> Iterator[Job]:
        """The run's Jobs in progress that no list has, because somebody removed their labels.

        Without them, the operator would launch another engine beside theirs. The cache has only what is listed.
        """
        meta, names = resource["metadata"], {raw["metadata"]["name"] for raw in listed}
        for key, name in _jobs_in_progress(meta["name"], read_status(RunStatus, resource)):
            raw = None if name in names else self._api.get(JOB, meta["namespace"], name)
            if raw and controller_uid(raw) == meta["uid"]:
                yield replace(self._job(raw, pods), key=key)

    def _job(self, raw: Mapping[str, Any], pods: tuple[Pod, ...]) -> Job:
        """A Job; if it has no pod although it should, with its latest warning or the reason why its queue waits."""
        job = parse_job(raw)
        if job.suspended and not job.ended:
            workload = next((pod.workload for pod in pods if pod.job_uid == job.ref.uid), "")
            return replace(job, waits=queue_wait(self._api, raw["metadata"]["namespace"], job, workload))
        podless = not any(pod.job_uid == job.ref.uid for pod in pods)
        if not podless:
            return replace(job, unlisted_pods=0)
        if job.ended or job.verdict:
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
        engines = [job for job in jobs if job.key.role == ROLE_ENGINE]
        waiting = {job.ref.uid for job in engines if ChildKey(ROLE_CLIENT, job.key.group, job.launch) not in existing}
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
        pending = _run_with_pending_gate(resource)
        if pending is None:
            return {}
        run, gate = pending
        return {"gate": self._results.read_gate(run), "earlier": self._earlier_runs(run.metadata.namespace, gate)}

    def _earlier_runs(self, namespace: str, gate: Gate) -> tuple[NamespaceRun, ...]:
        ref = gate.baseline_ref
        if ref.run is not None:
            raw = self._others.get(RUN, namespace, ref.run)
            return () if raw is None else (parse_namespace_run(raw),)
        if ref.campaign is None:
            return ()
        return tuple(
            parse_namespace_run(raw)
            for raw in self._others.each(RUN, namespace, labels=f"{LABEL_CAMPAIGN}={ref.campaign}")
        )

    def _adopting(
        self, resource: Mapping[str, Any], plan_data: Mapping[str, str]
    ) -> tuple[Mapping[str, Any], StoreFailure | None]:
        """The run with `adopt: Latest` replaced by the UID of the newest results, or why S3 could not be read."""
        if not adopts_latest(resource):
            return resource, None
        found: str | StoreFailure | None = known_results_uid(resource, plan_data)
        if found is None:
            found = self._results.latest(parsed_run(resource))
        if isinstance(found, StoreFailure):
            return resource, found
        return with_adopted_uid(resource, found or resource["metadata"]["uid"]), None

    def _stored(self, resource: Mapping[str, Any]) -> StoredResults | StoreFailure | None:
        """The results in S3; None if the run has ended, because then no decision needs them."""
        if (resource.get("status") or {}).get("completionTime"):
            return None
        run = parsed_run(resource)
        unknown, placement = not (resource.get("status") or {}).get("engineNodes"), run.spec.placement
        # A stored launch contains only the first node, and of a running endpoint no node.
        one_pod = placement.nodes == 1 and not run.spec.engine.is_external
        return self._results.read(run, last_launch=unknown and one_pod and placement.pin_node is not PinNode.NONE)


def with_store(resource: Mapping[str, Any], default: S3 | None) -> Mapping[str, Any]:
    """The run with the default store in its spec and its status, if its spec has none; once begun, with that of status.

    It is not kept in the plan's ConfigMap, because anybody may write that, and the run's author need not be allowed to
    get the Secret of the store.
    """
    spec, status = resource["spec"], resource.get("status") or {}
    results = spec.get("results") or {}
    # A run that adopts all its results launches nothing, and has no startTime.
    begun = status.get("startTime") or status.get("phase") in (*IN_PROGRESS_PHASES, Phase.SUCCEEDED, Phase.FAILED)
    store = (begun and status.get("store")) or (default and default.to_dict())
    if results.get("s3") or not store:
        return resource
    return {
        **resource,
        "spec": {**spec, "results": {**results, "s3": store}},
        "status": {**status, "store": store},
    }


def is_same_cluster(observed: RunObservation, earlier: RunObservation) -> bool:
    """Whether the run has the same version as earlier, and everything that was read of its cluster is equal.

    What was read in the store after the earlier observation was then read after this state of the cluster.
    """
    version = observed.resource["metadata"]["resourceVersion"]
    return version == earlier.resource["metadata"]["resourceVersion"] and earlier == replace(
        observed,
        resource=earlier.resource,
        stored=earlier.stored,
        gate=earlier.gate,
        earlier=earlier.earlier,
        live=earlier.live,
    )


def store_of(observed: RunObservation) -> S3 | None:
    """The store that a decision about this run needs; None if it needs none, as for an ended or an invalid run.

    A store is not read with keys that the run may not use.
    """
    resource, uses = observed.resource, observed.secret_uses
    if resource["metadata"].get("deletionTimestamp") or isinstance(uses, StoreFailure):
        return None
    try:
        run = parsed_run(resource)
    except InvalidSpec:
        return None
    ended = bool((resource.get("status") or {}).get("completionTime"))
    if uses is not None and unusable_secrets(run.spec, uses, GATE_USES if ended else None):
        return None
    unneeded = _rests_suspended(observed) or (ended and _run_with_pending_gate(resource) is None)
    return None if unneeded else run.spec.results.s3


def _rests_suspended(observed: RunObservation) -> bool:
    """Whether the run was suspended by its status, and nothing of it is running that could add to its results."""
    meta, spec, status = observed.resource["metadata"], observed.resource["spec"], observed.resource.get("status") or {}
    return (
        bool(spec.get("suspend"))
        and status.get("phase") == Phase.SUSPENDED
        and status.get("observedGeneration") == meta.get("generation")
        and all(job.stopping_or_ended or job.deleting for job in observed.jobs)
        and not any(pod.alive for pod in observed.pods)
    )


def with_store_failure(observed: RunObservation, failure: StoreFailure) -> RunObservation:
    """The observation if the store cannot be read now, without a request to it."""
    resource = observed.resource
    if _run_with_pending_gate(resource):
        return replace(observed, gate=failure)
    uid = known_results_uid(resource, observed.plan_data) if adopts_latest(resource) else None
    return replace(observed, resource=with_adopted_uid(resource, uid) if uid else resource, stored=failure)


def _run_with_pending_gate(resource: Mapping[str, Any]) -> tuple[SpecBenchRun, Gate] | None:
    """A run that has succeeded and whose gate is not in status yet, with that gate; None for any other run."""
    status = resource.get("status") or {}
    if not status.get("completionTime") or status.get("phase") != Phase.SUCCEEDED:
        return None
    try:
        run = parsed_run(resource)
    except InvalidSpec:
        return None
    gate = run.spec.gate
    if gate is None or (status.get("gate") or {}).get("gateDigest") == digest_of_gate(gate):
        return None
    return run, gate


def _jobs_in_progress(run: str, status: RunStatus) -> Iterator[tuple[ChildKey, str]]:
    """The keys and names of the Jobs that should exist by a status."""
    for row in status.groups:
        if row.state in (GroupState.QUEUED, GroupState.STARTING, GroupState.MEASURING):
            # A Job that its queue preempted continues as the next launch and keeps its name.
            for attempt in range(row.attempt - row.preemptions, row.attempt + 1):
                yield ChildKey(ROLE_ENGINE, row.index, attempt), engine_name(run, row.index, attempt)
        if row.state is GroupState.MEASURING:
            yield ChildKey(ROLE_CLIENT, row.index, row.attempt), client_name(run, row.index, row.attempt)
    if status.phase is Phase.ANALYZING:
        yield ChildKey(ROLE_REPORT), report_name(run)


def _plan_data(plans: list[dict[str, Any]], run: Mapping[str, Any]) -> Mapping[str, str]:
    """The data of the run's plan: of its plans, the one with the most added rounds. `run`: its metadata.

    Only the name that the operator gives it counts: then whoever deletes it has deleted it, and Jobs mount the same.
    """
    keys = [(parse_child_object(CONFIG_MAP, raw).key, raw) for raw in plans if controller_uid(raw) == run["uid"]]
    named = [(key.attempt or 0, raw) for key, raw in keys if key.role == ROLE_PLAN]
    ours = [(added, raw) for added, raw in named if raw["metadata"]["name"] == plan_name(run["name"], added)]
    data: Mapping[str, str] = max(ours, key=itemgetter(0), default=(0, {}))[1].get("data", {})
    return data


# Why a queue does not admit a Job. Only messages depend on it: whether a Job waits is in its own `spec.suspend`. So the
# operator works the same where it may not read Workloads, or where the cluster has none.

LABEL_KUEUE_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: UID of its Job."""
NO_KUEUE = "this cluster has no Kueue (it serves no kueue.x-k8s.io): install it, or remove spec.placement.queueName"
NO_WORKLOAD = (
    "Kueue has not created a Workload for the engine yet: if this does not change, check that Kueue runs, manages this"
    " namespace, and on several nodes has the integration leaderworkerset.x-k8s.io/leaderworkerset"
)


def queue_wait(api: Reader, namespace: str, job: Job, workload: str = "") -> QueueWait | None:
    """Why the queue of a suspended Job does not admit it, from its Workload; None if that may not be read.

    `workload`: name of the Workload of its LeaderWorkerSet, which has no label with the Job's UID. Raises Retry.
    """
    if not job.queue:
        return None
    labels = "" if workload else f"{LABEL_KUEUE_JOB_UID}={job.ref.uid}"
    try:
        workloads = _workloads(api, namespace, labels, f"metadata.name={workload}" if workload else "")
    except Forbidden:
        return None
    return QueueWait(NO_KUEUE, inadmissible=True) if workloads is None else _workload_wait(workloads)


def _workloads(api: Reader, namespace: str, labels: str, fields: str) -> list[Raw] | None:
    """The Workloads of a Job; None if the cluster serves no supported version of the kind."""
    for kind in WORKLOADS:
        try:
            return api.list(kind, namespace, labels=labels, fields=fields)
        except NotFound:
            continue
    return None


def _workload_wait(workloads: Sequence[RawObject]) -> QueueWait:
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


def event_time(event: RawObject) -> str:
    """When an event occurred last, as text that sorts by time."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
