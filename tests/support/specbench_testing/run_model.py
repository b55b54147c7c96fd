"""The model of one run: a small Kubernetes, S3 and the operator, which decides with the real `decide_run`.

Two arms with two points each. The operator observes, decides, and writes one request after the other; between any two
of them, everything else may happen. Each kind of object may lag behind in its cache, but after a write of its own the
operator sees that kind up to this write. Status is fenced by the run's resourceVersion, other writes by UID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from types import ModuleType
from typing import Any, NamedTuple

from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.canonical import plan_digest
from specbench_api.plan.expansion import expand, with_another_round
from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE, ROLE_PLAN
from specbench_api.spec.conditions import GroupState, Phase
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import RunStatus
from specbench_client.stored_runs.status_builder import status_document
from specbench_operator.errors import Retry
from specbench_operator.run import decide, gate, view
from specbench_operator.run.view import BegunPlan
from specbench_operator.state.run import RunDecision, RunObservation, StoredResults
from specbench_testing.cluster_world import AWAY
from specbench_testing.model_checker import Step
from specbench_testing.operator_builders import NOON, SETTINGS, UID, operator_run, summary_of
from specbench_testing.resources import endpoint_edits
from specbench_testing.run_model_cluster import (
    NEXT_UID,
    ModelCluster,
    RunStep,
    sorted_jobs,
    unused_uid,
    with_job,
    without,
)
from specbench_testing.run_model_values import (
    TICK_S,
    ModelJob,
    ModelPod,
    ModelRun,
    Objects,
    RunWorld,
    Stored,
    Views,
    Write,
    from_job_manifest,
    from_object_manifest,
    older_world,
    restarted,
    status_content,
    status_of,
    status_text,
    to_job,
    to_object,
    to_pod,
)

STARTUP_TICKS = 2
"""The deadline for the start of an engine."""


class RunModel:
    """The model for `model_checker.explore`.

    `queued`: the run names a queue, which admits and preempts its engines. `external`: it measures two servers that are
    already running, in four groups of one point, so that each of its launches is a client. `retried`: one repeat of one
    point each, and the report requests a round, which adds four groups. `stale`: that a cache lags
    behind is no fault, so that all orders of what is seen and what happens are explored first. `confirms`: the operator
    acts only on what it has read from the API server after its caches gave a reason, as `RunReconciler` does.
    """

    def __init__(
        self,
        *,
        queued: bool = False,
        external: bool = False,
        retried: bool = False,
        stale: bool = False,
        confirms: bool = True,
    ) -> None:
        self._stale = stale
        self._launch_role = ROLE_CLIENT if external else ROLE_ENGINE
        self._operator = ModelOperator(queued=queued, external=external, retried=retried, confirms=confirms)
        self._cluster = ModelCluster(self._operator.points, queued=queued, external=external)

    def initial(self) -> RunWorld:
        """The run was just created."""
        return RunWorld(ModelRun(UID), (), (), (), self._cluster.nothing_stored())

    def steps(self, world: RunWorld) -> Iterable[RunStep]:
        """All steps from this state without a fault. Time passes only when all others wait."""
        due = (*self._cluster.progress(world), *self._operator.steps(world), *self._cluster.recovery(world))
        return (*(due or self._waits(world)), *(self._cluster.lags(world) if self._stale else ()))

    def faults(self, world: RunWorld) -> Iterable[RunStep]:
        """All faults in this state, of which one is that everybody is so slow that a deadline passes."""
        later = older_world(world)
        slow = (Step("time passes although there is something to do", later),) if later != world else ()
        lags = () if self._stale else self._cluster.lags(world)
        return (*self._cluster.faults(world), *self._operator.faults(world), *lags, *slow)

    def fair_step(self, world: RunWorld) -> RunStep | None:
        """Caches catch up, S3 and the user resume, the operator acts, then the cluster; time passes when all wait."""
        for source in (self._cluster.recovery, self._operator.steps, self._cluster.progress, self._waits):
            for step in source(world):
                return step
        return None

    def _waits(self, world: RunWorld) -> tuple[RunStep, ...]:
        """Time passes, up to the next deadline."""
        if (later := older_world(world)) == world:
            return ()
        return (Step("time passes", later, self._overdue(world) or self._not_woken(world, later)),)

    def broken(self, world: RunWorld) -> str:
        """The invariant that this state breaks; empty if it breaks none."""
        holders = {job.uid for job in world.jobs if job.role == self._launch_role and not job.end}
        holders |= {pod.job_uid for pod in world.pods if self._may_hold(pod)}
        if len(holders) > 1:
            what = "engines may hold GPUs" if self._launch_role == ROLE_ENGINE else "clients may send load"
            return f"two {what} at once: {', '.join(sorted(holders))}"
        status, total = status_of(world.run.status), len(world.stored.measured)
        if status.phase is Phase.SUCCEEDED and not (status.points.total == total or self._operator.has_failed(status)):
            return f"the run has finished with {status.points.total} points instead of {total}"
        clients = [
            pod
            for pod in world.pods
            if pod.role == ROLE_CLIENT and not is_given_up(pod) and self._cluster.measures(world, pod)
        ]
        for first, second in combinations(clients, 2):
            if first.target == second.target:
                return f"two clients load one engine at once: {first.name}, {second.name}"
        return ""

    def has_ended(self, world: RunWorld) -> bool:
        """Whether the run has ended and holds no GPUs, or was deleted with everything that it owned."""
        if not world.run.uid:
            return not (world.jobs or world.objects or [pod for pod in world.pods if not pod.on_lost_node])
        return status_of(world.run.status).completion_time is not None and not self._holds(world)

    def _overdue(self, world: RunWorld) -> str:
        """Why GPUs must not be held, although everybody waits; empty if they may be."""
        status = status_of(world.run.status)
        over = status.completion_time or status.phase in (Phase.SUSPENDED, Phase.INVALID, Phase.FAILED)
        if over and self._holds(world):
            return f"GPUs are held although the run is {status.phase}"
        starting = {pod.job_uid for pod in world.pods if self._may_hold(pod) and pod.stage != "Running"}
        late = [job.uid for job in world.jobs if job.uid in starting and (job.started or 0) >= STARTUP_TICKS]
        return f"{late[0]} is not ready, and its deadline has passed" if late else ""

    def _not_woken(self, world: RunWorld, later: RunWorld) -> str:
        """Whether a later look would act, and nothing makes the operator look."""
        if world.writes or not world.run.uid or world.views != Views() or not self._operator.outcome(later).writes:
            return ""
        due = self._operator.outcome(world).requeue_after_s
        return "" if due is not None and due <= TICK_S else "the next deadline does not wake the operator"

    def _may_hold(self, pod: ModelPod) -> bool:
        """Whether a launch's pod may hold GPUs or send load."""
        return pod.role == self._launch_role and pod.stage != "Ended" and not is_given_up(pod)

    def _holds(self, world: RunWorld) -> bool:
        """Whether a launch holds GPUs or may still get some, or send load, apart from pods on lost nodes."""
        startable = any(job.role == self._launch_role and not job.end for job in world.jobs)
        return startable or any(self._may_hold(pod) and not pod.on_lost_node for pod in world.pods)


def is_given_up(pod: ModelPod) -> bool:
    """Whether the pod exists so long after its deletion time that its node counts as lost: after `gone_after_s`."""
    return pod.deleted is not None and pod.deleted >= 1


# The operator of the run model: it decides with the real `decide_run`, and writes one request at a time.

SPEC = {
    "spec.load": {"concurrency": [1], "repeats": 2, "order": "Sequential"},
    "spec.startupDeadlineSeconds": 2 * TICK_S,
}


class Outcome(NamedTuple):
    """What the operator does after a look."""

    writes: tuple[Write, ...]
    requeue_after_s: float | None
    only_reports: bool
    """It only updates counts and texts in the status."""


class ModelOperator:
    """The operator. `confirms`: it acts only on what it has read from the API server after its caches gave a reason.

    `external`: the run measures two servers that are already running.
    """

    def __init__(self, *, queued: bool, external: bool, retried: bool, confirms: bool) -> None:
        placement = {"gpus": 2, **({"queueName": "bench"} if queued else {}), "preemptionBudget": 2}
        self._confirms = confirms
        self._launch_role = ROLE_CLIENT if external else ROLE_ENGINE
        run = endpoint_edits("none", "b") if external else {"spec.placement": placement}
        run |= {"spec.load": {"concurrency": [1], "repeats": 1}} if retried else {}
        self._edits = {**SPEC, "spec.placement": {}, **run}
        self._settings = replace(
            SETTINGS,
            image_pull_grace_s=TICK_S,
            client_start_deadline_s=TICK_S,
            engine_lost_settle_s=TICK_S,
            gone_after_s=TICK_S,
        )
        plans = [expand(parse_run(operator_run(self._edits)))]
        if retried:
            plans.append(with_another_round(plans[0], {point.cell for point in plans[0].points}))
        plan = plans[-1]
        self._hashes = [point.hash for group in plan.groups for point in group.points]
        self.points = [[self._hashes.index(point.hash) for point in group.points] for group in plan.groups]
        self._plans = {uid: [plan.model_copy(update={"uid": uid}) for plan in plans] for uid in (UID, NEXT_UID)}
        """By the run's UID: its plan, and that with one more round."""
        self._planned_points = len(plans[0].points)
        self._outcomes: dict[Any, Outcome] = {}
        self._after_error = lru_cache(maxsize=100_000)(self._status_after_error)
        self._parsed = lru_cache(self._parse)
        self._results = lru_cache(self._status_document)
        self._raw_run = lru_cache(maxsize=100_000)(self._resource)

    def steps(self, world: RunWorld) -> Iterator[RunStep]:
        """The next request of the last decision, or the next decision if it changes something."""
        if not world.permitted:
            if world.writes:
                yield Step("API server answers 403", world._replace(writes=(), current=True))
        elif world.writes:
            yield self._write(world, world.writes[0])
        elif (seen := world.views.run or world.run).uid:
            outcome = self.outcome(world)
            if outcome.writes and not outcome.only_reports and self._confirms:
                if not world.run.uid:
                    return
                seen, outcome = world.run, self.outcome(world._replace(views=Views()))
            if outcome.writes:
                current = seen == world.run
                yield Step("operator decides", world._replace(writes=outcome.writes, current=current))

    def faults(self, world: RunWorld) -> Iterator[RunStep]:
        """The operator is killed before its next request, or the API server rejects it."""
        if world.writes:
            yield Step("operator is killed", restarted(world))
            if world.writes[0].verb != "status":
                yield Step("API server rejects the write", self._rejected(world, "Refused"))

    def outcome(self, world: RunWorld) -> Outcome:
        """What the operator decides by what its caches contain."""
        views = world.views
        seen = (
            views.run or world.run,
            world.jobs if views.jobs is None else views.jobs,
            world.pods if views.pods is None else views.pods,
            world.objects if views.objects is None else views.objects,
            world.stored,
            world.store_up,
            world.downgraded,
        )
        if seen not in self._outcomes:
            self._outcomes[seen] = self._decide(*seen)
        return self._outcomes[seen]

    def _decide(  # noqa: PLR0917 -- the fields of an observation
        self,
        run: ModelRun,
        jobs: tuple[ModelJob, ...],
        pods: tuple[ModelPod, ...],
        objects: Objects,
        stored: Stored,
        store_up: bool,
        downgraded: bool,
    ) -> Outcome:
        resource = self._raw_run(run)
        rounds = [child.attempt or 0 for child in objects if child.role == ROLE_PLAN and child.owner == run.uid]
        plan = self._plans[run.uid][max(rounds, default=0)]
        results = StoredResults(
            frozenset(point for point, there in zip(self._hashes, stored.measured, strict=True) if there),
            None if stored.summary is None else self._results(run.uid, stored.summary),
            launches={group: launch for group, launch in enumerate(stored.launches) if launch >= 0},
        )
        finished = "completionTime" in resource["status"]
        observed = RunObservation(
            resource,
            tuple(map(to_job, jobs)),
            tuple(map(to_pod, pods)),
            tuple(map(to_object, objects)),
            stored=None if finished else results if store_up else AWAY,
        )
        begun = BegunPlan(plan, plan_digest(plan))
        if downgraded and rounds:
            begun = replace(begun, as_written=False, unknown_field="flux")
        with self._without_repeated_parsing(run, begun):
            decision = decide.decide_run(observed, self._settings, NOON)
        outcome = self._writes_of(decision, run)
        created = [write.fields.role for write in outcome.writes if write.verb == "create"]
        assert not (begun.unknown_field and self._launch_role in created), "an engine is launched for an unknown plan"
        return outcome

    def _status_document(self, uid: str, points: int) -> StatusDocument:
        """What the report stores: that of the plan without the round requests it."""
        plan, grown = self._plans[uid][0], self._plans[uid][-1]
        if points > self._planned_points:
            return status_document(summary_of(grown, points), grown)
        requested = {cell for cells in grown.rounds_added for cell in cells}
        return status_document(summary_of(plan, points), plan, requested)

    def has_failed(self, status: RunStatus) -> bool:
        """Whether a group of the run has failed."""
        return any(row.state is GroupState.FAILED for row in status.groups)

    @contextmanager
    def _without_repeated_parsing(self, run: ModelRun, begun: BegunPlan) -> Iterator[None]:
        """Parse each text once. Parsing the same spec, plan and status takes most of the time of a decision."""

        def parsed(_: object) -> SpecBenchRun:
            return self._parsed(run.uid, run.suspend)

        replaced: list[tuple[ModuleType, str, Any]] = [
            (decide, "parsed_run", parsed),
            (gate, "parsed_run", parsed),
            (decide, "read_status", lambda *_: status_of(run.status)),
            (decide, "fit_to_size", lambda status: status),
            (view, "select_plan", lambda *_: begun),
        ]
        originals = [getattr(module, name) for module, name, _ in replaced]
        for module, name, value in replaced:
            setattr(module, name, value)
        try:
            yield
        finally:
            for (module, name, _), original in zip(replaced, originals, strict=True):
                setattr(module, name, original)

    def _writes_of(self, decision: RunDecision, run: ModelRun) -> Outcome:
        """The requests of a decision, in the order of `cluster.writer`."""
        status = status_text(decision.status)
        writes = (
            *(
                Write(
                    "relaunch",
                    row.ref.name,
                    row.ref.uid,
                    (row.relaunch.launch, row.relaunch.preemptions, row.relaunch.previous_pod),
                )
                for row in decision.relaunch
            ),
            *(
                Write(
                    "stop", row.ref.name, row.ref.uid, (str(row.verdict.scope), row.verdict.reason, row.verdict.message)
                )
                for row in decision.stop
            ),
            *(Write("delete", ref.name, ref.uid, kind=ref.kind) for ref in decision.delete),
            *(
                Write(
                    "create",
                    manifest["metadata"]["name"],
                    fields=(from_job_manifest if manifest["kind"] == "Job" else from_object_manifest)(manifest),
                    kind=manifest["kind"],
                )
                for manifest in decision.apply
            ),
            *((Write("status", "", fields=status),) if status != run.status else ()),
        )
        only_reports = decide.only_reports_progress(status_of(run.status), decision)
        return Outcome(writes, decision.requeue_after_s, only_reports)

    def _write(self, world: RunWorld, write: Write) -> RunStep:  # noqa: PLR0911 -- one per kind of request
        """Carry out one request; a rejected one ends the decision as in `handlers.reconcilers`."""
        action = f"operator writes: {write.verb} {write.kind} {write.name}".rstrip()
        after = world._replace(writes=world.writes[1:])
        if write.verb == "status":
            if not world.current:
                return Step(action, after._replace(writes=()))
            broken = backwards(status_of(world.run.status), status_of(write.fields)) if world.run.status != "{}" else ""
            run = world.run._replace(status=write.fields)
            return Step(action, after._replace(run=run, views=after.views._replace(run=None)), broken=broken)
        if write.verb == "create":
            return self._create(action, after, write)
        if write.verb == "delete" and write.kind != "Job":
            objects = tuple(child for child in world.objects if child.uid != write.uid)
            return Step(action, after._replace(objects=objects, views=after.views._replace(objects=None)))
        after = after._replace(views=after.views._replace(jobs=None))
        job = next((job for job in world.jobs if job.name == write.name), None)
        if job is None:
            return Step(action, after)
        if job.uid != write.uid:
            return Step(action, after if write.verb == "delete" else after._replace(writes=()))
        if write.verb == "delete":
            return Step(action, after._replace(jobs=without(world.jobs, job)))
        changed = job._replace(**{"relaunch" if write.verb == "relaunch" else "verdict": write.fields})
        return Step(
            action,
            after._replace(jobs=(*without(world.jobs, job), changed))
            if changed == job
            else with_job(after, job, changed),
        )

    def _create(self, action: str, after: RunWorld, write: Write) -> RunStep:
        child = write.fields
        is_job = isinstance(child, ModelJob)
        present = next(
            (
                other
                for other in (after.jobs if is_job else after.objects)
                if (other.name, getattr(other, "kind", "")) == (child.name, getattr(child, "kind", ""))
            ),
            None,
        )
        if present is not None:
            return Step(action, after if present.owner == child.owner else self._rejected(after, "NameTaken"))
        uid = unused_uid(after, child.name)
        if not is_job:
            objects = tuple(sorted((*after.objects, child._replace(uid=uid))))
            return Step(action, after._replace(objects=objects, views=after.views._replace(objects=None)))
        broken = ""
        is_launch = child.role == self._launch_role and child.owner == after.run.uid
        if is_launch and child.attempt <= after.stored.launches[child.group]:
            broken = f"launch {child.attempt} of group {child.group} has stored results and is used again"
        jobs = sorted_jobs((*after.jobs, child._replace(uid=uid)))
        return Step(action, after._replace(jobs=jobs, views=after.views._replace(jobs=None)), broken=broken)

    def _rejected(self, world: RunWorld, reason: str) -> RunWorld:
        """The rest of a decision after an error: the status with the error, if it can still be written."""
        if not world.current:
            return world._replace(writes=())
        intended = world.writes[-1].fields if world.writes and world.writes[-1].verb == "status" else world.run.status
        text = self._after_error(world.run, intended, reason)
        write = Write("status", "", fields=text)
        return world._replace(writes=(write,) if text != world.run.status else ())

    def _status_after_error(self, run: ModelRun, intended: str, reason: str) -> str:
        error = Retry(reason, "rejected")
        return status_text(decide.status_after_error(self._raw_run(run), status_of(intended), error, NOON))

    def _parse(self, uid: str, suspend: bool) -> SpecBenchRun:
        return parse_run(self._raw_run(ModelRun(uid, suspend)))

    def _resource(self, run: ModelRun) -> dict[str, Any]:
        resource = operator_run({**self._edits, "spec.suspend": run.suspend})
        resource["metadata"]["uid"] = run.uid
        resource["status"] = status_content(run.status)
        return resource


def backwards(before: RunStatus, after: RunStatus) -> str:
    """Which field of the status goes backwards; empty if none does."""
    if before.completion_time and (after.completion_time, after.phase) != (before.completion_time, before.phase):
        return "status goes backwards: the run had ended"
    if before.start_time and not after.start_time:
        return "status goes backwards: startTime is removed"
    if before.points.measured > after.points.measured:
        return f"status goes backwards: {before.points.measured} points were measured, now {after.points.measured}"
    rows = {row.index: row for row in after.groups}
    for row in before.groups:
        now = rows.get(row.index)
        if now is None or now.state is GroupState.DONE:
            continue  # if it is done, a launch that was due is not needed any more, so its number is taken back
        before_and_now = (
            (getattr(row, name), getattr(now, name)) for name in ("attempt", "suspensions", "preemptions")
        )
        over = row.state in (GroupState.DONE, GroupState.FAILED)
        if any(old > new for old, new in before_and_now) or (over and now.state is not row.state):
            return f"status goes backwards: group {row.index} was {row.to_dict()}, now {now.to_dict()}"
    return ""
