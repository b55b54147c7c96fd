"""A simulated cluster and S3 for the operator's pure code, changed by decisions and by injected events.

`decide_run` gets the same input as in a cluster. The world applies its decisions as Kubernetes would (Jobs
appear, pods go with their Jobs), and tests inject events: pods get ready, crash or vanish, S3 goes away.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, PLAN_DIGEST_VARIABLE
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.canonical import digest
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import (
    LABEL_ATTEMPT,
    LABEL_GROUP,
    LABEL_ROLE,
    LABEL_RUN_UID,
    ROLE_ENGINE,
    ROLE_PLAN,
    client_name,
    engine_name,
    report_name,
)
from specbench_api.plan.plan import Plan, PlanCell
from specbench_api.spec.conditions import ConditionType, GroupState
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.status import Condition, GateStatus, GroupStatus, RunStatus
from specbench_client.documents.summary import RunSummary
from specbench_client.stored_runs.status_builder import status_document
from specbench_operator.render.engine_job import LABEL_KUEUE_QUEUE, LWS_KIND
from specbench_operator.render.job_annotations import (
    ANNOTATION_ENGINE_POD,
    ANNOTATION_QUEUE,
    parse_engine_nodes,
    parse_prior_launches,
)
from specbench_operator.run.decide import decide_run
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import (
    REPAIRED_KINDS,
    ChildKey,
    ChildObject,
    ContainerTerminated,
    Job,
    JobFailure,
    Node,
    ObjectRef,
    Pod,
    QueueWait,
    UnreadableNode,
)
from specbench_operator.state.run import (
    KubernetesEvent,
    NamespaceRun,
    RunDecision,
    RunObservation,
    StoredLaunch,
    StoredResults,
    StoreFailure,
)
from specbench_testing.operator_builders import NOON, OLDER_UID, SETTINGS, operator_run, summary_of

AWAY = StoreFailure("S3Away", "http://s3:9000 cannot be reached", refused=False)

NO_BUCKET = StoreFailure("BucketMissing", "the bucket 'results' does not exist", refused=True)


@dataclass
class ClusterWorld:
    """The simulated cluster and S3 around one run."""

    run: dict[str, Any] = field(default_factory=operator_run)
    now: datetime = NOON
    settings: OperatorSettings = SETTINGS
    jobs: dict[str, Job] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    objects: dict[tuple[str, str], ChildObject] = field(default_factory=dict)
    plan_data: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    """By Job, also of those that were deleted: the image of its container."""
    nodes: list[Node | UnreadableNode] = field(default_factory=list)
    measured: set[str] = field(default_factory=set)
    results: StatusDocument | None = None
    answering: tuple[int, int] | None = None
    answered_at: datetime | None = None
    """None: always the current time."""
    last_launch: StoredLaunch | None = None
    launches_there: dict[int, int] = field(default_factory=dict)
    """By group: the last launch in the stored results."""
    ended_there: dict[int, int] = field(default_factory=dict)
    """By group that the stop rule ended: its number of points."""
    plan_there: str | None = None
    trouble: StoreFailure | None = None
    gate: GateStatus | None = None
    earlier: tuple[NamespaceRun, ...] = ()
    secret_uses: dict[str, str] | StoreFailure | None = None
    """By Secret: its label. Of use only with `secrets_opt_in` in the settings."""
    events: list[KubernetesEvent] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    _uids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def plan(self) -> Plan:
        """Return the run's plan, with the rounds that were added to it."""
        stored = self.plan_data.get(PLAN, "")
        has_grown = any(name in stored for name in ('"plannedRepeats"', '"search"'))
        return Plan.from_json(stored) if has_grown else expand(parse_run(self.run))

    @property
    def status(self) -> RunStatus:
        """Return the status as last written."""
        return RunStatus.model_validate(self.run.get("status", {}))

    def condition(self, kind: ConditionType) -> Condition:
        """One condition of the status."""
        return {row.type: row for row in self.status.conditions}[kind]

    def status_and_reason(self, kind: ConditionType) -> tuple[str, str]:
        """Status and reason of a condition."""
        row = self.condition(kind)
        return row.status.value, row.reason

    def group(self, index: int) -> GroupStatus:
        """The status row of a group."""
        return self.status.groups[index]

    def states(self) -> list[GroupState]:
        """The states of all groups."""
        return [row.state for row in self.status.groups]

    # Operations of the operator.

    def observed(self) -> RunObservation:
        """Return what the operator observes."""
        stored = StoredResults(
            frozenset(self.measured), self.results, self.answering, self.answered_at or self.now, self.plan_there,
            self.last_launch, self.launches_there, self.ended_there,
        )  # fmt: skip
        return RunObservation(
            self.run, tuple(self.jobs.values()), tuple(self.pods.values()), tuple(self.objects.values()),
            self.plan_data, tuple(self.nodes), self.trouble or stored, self.trouble or self.gate, self.earlier,
            secret_uses=self.secret_uses,
        )  # fmt: skip

    def reconcile(self, *, after_s: float = 0) -> RunDecision:
        """Reconcile once, after this time, and apply the decision to the cluster."""
        self.pass_time(after_s)
        decision = decide_run(self.observed(), self.settings, self.now)
        self.follow(decision)
        return decision

    def settle(self, *, after_s: float = 0) -> RunDecision:
        """Reconcile until nothing changes, after this time; deleted pods are removed meanwhile."""
        self.pass_time(after_s)
        for _ in range(20):
            before = self.observed()
            decision = self.reconcile()
            self.reap()
            if self.observed() == before:
                return decision
        raise AssertionError("the operator does not settle")

    def follow(self, decision: RunDecision) -> None:
        """Apply a decision as Kubernetes would."""
        for again in decision.relaunch:
            job = self.jobs[again.ref.name]
            assert job.ref == again.ref, "the relaunch is for another Job of this name"
            self.jobs[again.ref.name] = replace(job, relaunch=again.relaunch)
        for resume in decision.resume:
            assert self.jobs[resume.ref.name].ref == resume.ref, "the Job to resume is another one of this name"
            self.admit(resume.ref.name)
            self.jobs[resume.ref.name] = replace(self.jobs[resume.ref.name], engine_pod=resume.leader_pod)
        for stop in decision.stop:
            job = self.jobs[stop.ref.name]
            over = job.failure or JobFailure("DeadlineExceeded", "", self.now)
            self.jobs[stop.ref.name] = replace(job, verdict=stop.verdict, failure=None if job.complete else over)
            self._delete_pods(job)
        for ref in decision.delete:
            self._delete(ref)
        for manifest in decision.apply:
            self._create(manifest)
        self.run["status"] = decision.status.to_dict()
        self.events += decision.events

    # Injected events.

    def suspend(self, *, suspend: bool = True) -> None:
        """Suspend or resume the run, and settle."""
        self.run["spec"]["suspend"] = suspend
        self.settle()

    def lose_status(self) -> None:
        """Delete the status, which is only a cache."""
        self.run.pop("status", None)

    def reconcile_without_status_write(self) -> RunDecision:
        """Reconcile and apply the decision, except for the status write, which is refused."""
        kept = self.run.get("status")
        decision = self.reconcile()
        self.run.pop("status")
        self.run |= {} if kept is None else {"status": kept}
        return decision

    def engine(self, group: int = 0, attempt: int = 0) -> str:
        """Name of an engine Job."""
        return engine_name(self.run["metadata"]["name"], group, attempt)

    def client(self, group: int = 0, attempt: int = 0) -> str:
        """Name of a client Job."""
        return client_name(self.run["metadata"]["name"], group, attempt)

    @property
    def report(self) -> str:
        """Name of the report Job."""
        return report_name(self.run["metadata"]["name"])

    def pass_time(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)

    def start_pod(self, job: str, **fields: Any) -> str:
        """Create and schedule pods as the Job controller and the scheduler would."""
        name = f"{job}-{next(self._uids)}"
        given = {"phase": "Running", "scheduled_at": self.now, **fields}
        uid = self.run["metadata"]["uid"]
        ref = ObjectRef("Pod", name, name)
        by = self.jobs[job]
        self.pods[name] = Pod(ref, uid, by.key, job, by.ref.uid, created_at=self.now, **given)
        return name

    def change_pod(self, job: str, **fields: Any) -> None:
        """Change the youngest pod of a Job."""
        name = [name for name, pod in self.pods.items() if pod.job == job][-1]
        self.pods[name] = replace(self.pods[name], **fields)

    def admit(self, job: str) -> None:
        """The queue admits a Job."""
        self.jobs[job] = replace(self.jobs[job], suspended=False, started_at=self.now, waits=None)

    def hold_back(self, job: str, waits: QueueWait | None = None) -> None:
        """The queue suspends a Job; the Job controller deletes its pods."""
        self.jobs[job] = replace(self.jobs[job], suspended=True, started_at=None, waits=waits)
        self._delete_pods(self.jobs[job])

    def serve(self, group: int = 0, attempt: int = 0) -> None:
        """Make an engine ready and start its client's pod."""
        self.start_pod(self.engine(group, attempt), ready=True)
        self.reconcile()
        self.start_pod(self.client(group, attempt), ready=True)

    def end_pod(self, job: str, code: int, *, reason: str = "Error", message: str = "", ran_s: float = 5) -> None:
        """End the youngest pod of a Job; the Job controller has not seen it yet."""
        began = self.now
        self.pass_time(ran_s)
        ended = ContainerTerminated(code, reason, message, began, self.now)
        self.change_pod(job, phase="Failed" if code else "Succeeded", ready=False, terminated=ended)

    def fail_job(self, job: str, reason: str = "BackoffLimitExceeded") -> None:
        """Mark a Job as failed, as the Job controller does when it gives up."""
        self.jobs[job] = replace(self.jobs[job], failure=JobFailure(reason, "Job has failed", self.now))

    def crash(self, job: str, code: int = 1, **how: Any) -> None:
        """End the youngest pod of a Job and fail the Job."""
        self.end_pod(job, code, **how)
        self.fail_job(job)

    def fail_client(
        self, code: Exit, reason: str, message: str = "what happened", group: int = 0, attempt: int = 0
    ) -> None:
        """End the client with this exit code, reason and message."""
        termination = Termination(code=code, reason=reason, message=message).to_message()
        self.crash(self.client(group, attempt), int(code), message=termination)

    def finish_client(self, group: int = 0, attempt: int = 0, points: int | None = None) -> None:
        """Store the manifests of a group's points, all or the first ones, and complete the client."""
        self.measured |= {point.hash for point in self.plan.groups[group].points[:points]}
        name = self.client(group, attempt)
        self.end_pod(name, 0, reason="Completed")
        self.jobs[name] = replace(self.jobs[name], complete=True)

    def measure(self, group: int = 0, attempt: int = 0) -> None:
        """Take a group from launch to release."""
        self.serve(group, attempt)
        self.finish_client(group, attempt)
        self.settle()

    def measure_all(self) -> None:
        """Take every group from launch to release."""
        self.settle()
        for group in self.plan.groups:
            self.measure(group.index)

    def fail_engine(self, code: int = 1, group: int = 0, **how: Any) -> None:
        """Start the first engine of a group, end it with this code, and settle."""
        self.start_pod(self.engine(group))
        self.crash(self.engine(group), code, **how)
        self.settle()

    def finish_report(self, summary: RunSummary | None = None, following: Collection[PlanCell] = ()) -> None:
        """Store the results, complete the report Job, and settle. `following`: the round that is requested."""
        self.store_results(summary, following)
        self.settle()

    def store_results(self, summary: RunSummary | None = None, following: Collection[PlanCell] = ()) -> None:
        """Store the results and complete the report Job."""
        self.results = status_document(summary or summary_of(self.plan, len(self.measured)), self.plan, following)
        self.jobs[self.report] = replace(self.jobs[self.report], complete=True)

    def lose_job(self, name: str) -> None:
        """Delete a Job with background propagation; its pods follow."""
        job = self.jobs.pop(name)
        self._delete_pods(job)

    def lose_pods(self, job: str) -> None:
        """Remove a Job's pods without leaving a status."""
        self.pods = {name: pod for name, pod in self.pods.items() if pod.job != job}

    def reap(self) -> None:
        """Remove the pods that are being deleted."""
        self.pods = {name: pod for name, pod in self.pods.items() if pod.deleted_at is None}

    def older_run_left(self, name: str, key: ChildKey) -> None:
        """Add a Job that an earlier run of the same name left."""
        self.jobs[name] = Job(ObjectRef("Job", name, f"old-{name}"), OLDER_UID, key, NOON - timedelta(hours=1))

    def _create(self, manifest: Mapping[str, Any]) -> None:
        meta = manifest["metadata"]
        labels, kind, name = meta["labels"], manifest["kind"], meta["name"]
        number = {key: int(labels[key]) if key in labels else None for key in (LABEL_GROUP, LABEL_ATTEMPT)}
        key = ChildKey(labels[LABEL_ROLE], number[LABEL_GROUP], number[LABEL_ATTEMPT])
        ref, owner = ObjectRef(kind, name, f"uid-{next(self._uids)}"), meta["ownerReferences"][0]["uid"]
        if kind == "Job":
            assert name not in self.jobs, f"{name} already exists"
            pod = manifest["spec"]["template"]["spec"]
            self.images[name] = pod["containers"][0]["image"]
            if any(volume["name"] == "plan" for volume in pod.get("volumes", [])):
                given = {"name": PLAN_DIGEST_VARIABLE, "value": digest(self.plan_data[PLAN])}
                assert given in pod["containers"][0]["env"], "a client refuses another plan than the one that it mounts"
            suspended, annotations = bool(manifest["spec"].get("suspend")), meta.get("annotations", {})
            queue = labels.get(LABEL_KUEUE_QUEUE) or annotations.get(ANNOTATION_QUEUE, "")
            engine_pod = annotations.get(ANNOTATION_ENGINE_POD, "")
            started = None if suspended else self.now
            self.jobs[name] = Job(
                ref, owner, key, self.now, started, suspended=suspended, queue=queue, engine_pod=engine_pod,
                engine_nodes=parse_engine_nodes(meta), prior_launches=parse_prior_launches(meta),
            )  # fmt: skip
            self.launched += [name] if key.role == ROLE_ENGINE else []
            return
        spec = copy.deepcopy(manifest["spec"]) if kind in REPAIRED_KINDS else None
        if (kind, name) in self.objects:
            assert kind in REPAIRED_KINDS, f"{kind} {name} already exists"
            assert spec != self.objects[kind, name].spec, f"{kind} {name} is already as wanted"
            self.objects[kind, name] = replace(self.objects[kind, name], spec=spec)
            return
        self.objects[kind, name] = ChildObject(ref, owner, key, run_uid=labels[LABEL_RUN_UID], spec=spec)
        self.plan_data = dict(manifest["data"]) if key.role == ROLE_PLAN else self.plan_data

    def _delete(self, ref: ObjectRef) -> None:
        if ref.kind != "Job":
            child = self.objects.pop((ref.kind, ref.name), None)
            assert child.ref == ref if child else ref.kind == LWS_KIND, "only a set is deleted with its owning Job"
            self.plan_data = {} if ref.kind == "ConfigMap" else self.plan_data
            if ref.kind == LWS_KIND:
                self._delete_pods_of(ref.name.removesuffix("-n"))
            return
        job = self.jobs.pop(ref.name)
        assert job.ref == ref, "the deletion is for another Job of this name"
        assert job.owner == self.run["metadata"]["uid"], "the deleted Job belongs to this run"
        self.objects = {key: child for key, child in self.objects.items() if child.owner != ref.uid}
        self._delete_pods(job)

    def _delete_pods(self, job: Job) -> None:
        if not any(child.owner == job.ref.uid for child in self.objects.values()):
            self._delete_pods_of(job.ref.name)

    def _delete_pods_of(self, job: str) -> None:
        gone_at = self.now + timedelta(seconds=5)
        for name, pod in self.pods.items():
            if pod.job == job and pod.alive and pod.deleted_at is None:
                self.pods[name] = replace(pod, deleted_at=gone_at)


def finish_other_arm(world: ClusterWorld) -> None:
    """Measure group 1 and create the report."""
    world.measure(1)
    world.finish_report()


def launched(run: dict[str, Any] | None = None, **fields: Any) -> ClusterWorld:
    """A run whose first engine is launched and has no pod yet."""
    world = ClusterWorld(run or operator_run(), **fields)
    world.settle()
    return world


def finished(world: ClusterWorld) -> ClusterWorld:
    """Take a run of two groups from creation to completion."""
    world.measure_all()
    world.finish_report()
    return world
