"""decide_run: the phase of a run and what to do about it, from its observation, the settings and the current time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from specbench_api.errors import InvalidSpec, NotAllowed, Problem
from specbench_api.fence.check import NO_STORE
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.canonical import differing_fields
from specbench_api.plan.expansion import most_rounds, without_added_rounds
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase, QueueReason
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.status import TEXT_MAX, Condition, GroupStatus, RunStatus
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.render.client_jobs import results_uri, unreadable_files
from specbench_operator.run.actions import creations, deletions, relaunches, releases, resumes, stops
from specbench_operator.run.events import run_events
from specbench_operator.run.gate import with_gate
from specbench_operator.run.gpu_seconds import with_gpu_seconds
from specbench_operator.run.launches.children import Children, children_of, overdue_pods
from specbench_operator.run.launches.client import judge_ended_client, start_delay
from specbench_operator.run.launches.group import is_recorded_in_status, stop_and_keep_job
from specbench_operator.run.launches.launch_state import ClientReason, LaunchStage
from specbench_operator.run.namespace_limit import WAITING_FOR_RUNS, find_namespace_wait
from specbench_operator.run.status import (
    PROBLEM_MAX,
    TERMINAL_PHASES,
    RunState,
    build_run_status,
    fit_to_size,
    invalid_conditions,
    tool_conditions,
)
from specbench_operator.run.view import RunView, build_run_view, plan_of_another_version, secret_problems
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import (
    find_condition,
    generation_of,
    join_sentences,
    read_status,
    replace_conditions,
    tool_values,
)
from specbench_operator.state.objects import ChildObject, Job, ObjectRef
from specbench_operator.state.run import RunDecision, RunObservation, StoreFailure, parsed_run
from specbench_operator.state.timestamps import earliest, parse_timestamp

S3_RETRY_S = 15.0
"""Wait before a store that could not be read is read again, in seconds."""
SECRETS_RETRY_S = 15.0
"""Wait before the labels of a run's Secrets are read again, in seconds."""
NO_LEADER_WORKER_SETS = Problem(
    "spec.placement.nodes",
    "an engine on several nodes needs LeaderWorkerSet, which is not enabled for this operator",
    "install it (leaderworkerset.x-k8s.io), then set leaderWorkerSets=true in specbench's chart; or set nodes to 1",
)
RELEASE_POLL_S = 5.0


def decide_run(observed: RunObservation, settings: OperatorSettings, now: datetime) -> RunDecision:
    """Decide what to do for a run, and its status. Never raises, whatever was observed."""
    decision = _decide(observed, settings, now)
    return replace(decision, status=fit_to_size(decision.status))


def _decide(observed: RunObservation, settings: OperatorSettings, now: datetime) -> RunDecision:
    resource = observed.resource
    previous = read_status(RunStatus, resource)
    if resource["metadata"].get("deletionTimestamp"):
        return RunDecision(previous, at_rest=True)  # the garbage collector deletes the children
    children = children_of(observed, resource["metadata"]["uid"], settings, now)
    if has_finished(previous):
        return with_gate(
            decide_finished_run(resource, previous, children, settings, now), observed, children, settings, now
        )
    try:
        run = parsed_run(resource)
        if problems := secret_problems(run.spec, observed, settings):
            problems = [*settings.refusals(run.spec, run.metadata.namespace), *problems]
            decision = decide_invalid_run(resource, NotAllowed(problems), children, previous, now)
            # A Secret that is created or labelled does not change the run, so nothing would trigger its reconciliation.
            return replace(decision, at_rest=False, requeue_after_s=SECRETS_RETRY_S)
        return _decide_valid_run(run, observed, children, previous, settings=settings, now=now)
    except InvalidSpec as error:
        return decide_invalid_run(resource, error, children, previous, now)
    except Stop as error:
        return _released(status_after_error(resource, previous, error, now), children, previous, now)


def _decide_valid_run(
    run: SpecBenchRun,
    observed: RunObservation,
    children: Children,
    previous: RunStatus,
    *,
    settings: OperatorSettings,
    now: datetime,
) -> RunDecision:
    if problems := settings.refusals(run.spec, run.metadata.namespace):
        raise NotAllowed(problems)
    if run.spec.results.s3 is None:
        raise InvalidSpec([NO_STORE])
    if problems := unreadable_files(run.spec):
        raise InvalidSpec(problems)
    if run.spec.placement.nodes > 1 and not settings.leader_worker_sets:
        raise InvalidSpec([NO_LEADER_WORKER_SETS])
    wait = find_namespace_wait(run, observed, children, previous, settings)
    run_view = build_run_view(run, observed, children, previous, settings=settings, now=now)
    if run_view.lacks_rounds:
        return RunDecision(previous, requeue_after_s=S3_RETRY_S)
    run_view = replace(run_view, namespace_wait=wait)
    check_adopted_results(run_view)
    if run_view.begun.unknown_field and run_view.launching is not None:
        raise plan_of_another_version(f"this version does not know its field {run_view.begun.unknown_field}")
    state = state_of(run_view)
    if overdue := overdue_pods(observed.pods, settings, now):
        state = replace(state, message=join_sentences((state.message, overdue)))
    actions = (relaunches(run_view), resumes(run_view), stops(run_view), deletions(run_view))
    apply = creations(run_view, state)  # raises InvalidSpec for a plan that is too large for a ConfigMap
    status = with_gpu_seconds(build_run_status(run_view, state), run_view)
    requeue_after_s = _requeue_after_s(run_view, state)
    relaunch, resume, stop, delete = actions
    return RunDecision(
        status=status,
        relaunch=relaunch,
        resume=resume,
        stop=stop,
        delete=delete,
        apply=apply,
        events=run_events(previous, status),
        requeue_after_s=requeue_after_s,
        at_rest=state.phase is Phase.SUSPENDED
        and not (any(actions) or apply or requeue_after_s is not None or run_view.holds_gpus),
        awaits=wait.awaits if wait else frozenset(),
    )


def only_reports_progress(previous: RunStatus, decision: RunDecision) -> bool:
    """Whether a decision does nothing but write the first status, or update numbers and texts in the status."""
    if decision.relaunch or decision.resume or decision.stop or decision.delete or decision.apply:
        return False
    return previous.phase is None or (not decision.events and _stage(previous) == _stage(decision.status))


def _stage(status: RunStatus) -> tuple[object, ...]:
    return (
        *(status.phase, status.start_time, status.completion_time, status.gate),
        frozenset((row.type, row.status, row.reason) for row in status.conditions),
        tuple((row.index, row.attempt, row.state) for row in status.groups),
    )


def _requeue_after_s(run_view: RunView, state: RunState) -> float | None:
    view = run_view.active_group
    by_launch = view.launch_state.requeue_after_s if view and view.launch_state else None
    by_store = S3_RETRY_S if run_view.store_failure and state.phase not in TERMINAL_PHASES else None
    blocked = run_view.children.leftovers or (run_view.holds_gpus and (view is None or view.next_launch is not None))
    by_release = RELEASE_POLL_S if blocked and state.phase is not Phase.SUSPENDED else None
    return earliest(by_launch, by_store, by_release)


# The phase of a run that is valid, with its reason and message.

_NEXT_AFTER = {
    False: "the next engine is launched when the last one has released its GPUs",
    True: "the next client starts when the last one has ended",
}
_NOT_YET_ENDED = {
    False: "the last engine has not released its GPUs yet",
    True: "the last client has not ended yet",
}
"""Messages, by whether the run measures servers that are already running."""
_NOT_READ = StoreFailure("WaitingForS3", "", refused=False)


def state_of(run_view: RunView) -> RunState:
    """Determine the phase of a run."""
    fatal = run_view.fatal_group
    if fatal:
        return RunState(Phase.FAILED, fatal.reason, fatal.message)
    if run_view.suspended:
        message = "spec.suspend is true: GPUs are released and results are kept; set it to false to continue"
        return RunState(Phase.SUSPENDED, "Suspended", message)
    if run_view.namespace_wait:
        return RunState(Phase.PENDING, WAITING_FOR_RUNS, run_view.namespace_wait.message)
    if run_view.active_group:
        return _measuring(run_view)
    # While S3 cannot be read, counts are those in status, and somebody may have removed them.
    if run_view.measured == 0 and run_view.failed:
        first = run_view.failed[0]
        message = f"no point was measured; arm {first.group.arm}: {first.message}"
        return RunState(Phase.FAILED, first.reason, message)
    return _analyzing(run_view)


def _measuring(run_view: RunView) -> RunState:
    view = run_view.active_group
    assert view is not None
    has_started = run_view.launching is not None or run_view.previous.start_time
    phase = {
        GroupState.WAITING: Phase.STARTING if has_started else Phase.PENDING,
        GroupState.QUEUED: Phase.QUEUED,
        GroupState.STARTING: Phase.STARTING,
        GroupState.MEASURING: Phase.RUNNING,
    }[view.state]
    if run_view.children.leftovers:
        return _blocked(run_view.children, phase)
    if run_view.stored is None and view.live_launch is None:
        failure = run_view.store_failure or _NOT_READ
        message = join_sentences(("no engine is launched while S3 cannot be read", failure.message))
        return RunState(phase, failure.reason, message)
    if view.next_launch is not None and run_view.holds_gpus:
        return RunState(phase, "WaitingForRelease", _NEXT_AFTER[run_view.children.running_already])
    where = f"arm {view.group.arm}: group {view.group.index + 1} of {len(run_view.groups)}"
    if view.state is GroupState.QUEUED:
        return RunState(phase, view.reason, join_sentences((where, view.message)))
    if run_view.launching is not None and run_view.run.spec.placement.queue_name:
        return RunState(Phase.QUEUED, QueueReason.WAITING, where)
    return RunState(phase, str(phase), where)


def _blocked(children: Children, phase: Phase) -> RunState:
    remedy = "waiting for Kubernetes to remove them"
    if children.orphans:
        orphans = _list_refs(children.orphans)
        remedy = (
            f"Kubernetes does not remove {orphans}, because nobody owns them: delete them by hand (kubectl delete),"
            " or rename the run"
        )
    message = f"an earlier run of this name left {_list_refs(children.leftovers)}: {remedy}"
    return RunState(phase, "WaitingForRemoval", message)


def _list_refs(refs: Sequence[ObjectRef]) -> str:
    return ", ".join(f"{ref.kind} {ref.name}" for ref in refs[:5])


def _analyzing(run_view: RunView) -> RunState:
    if run_view.holds_gpus:
        return RunState(Phase.ANALYZING, "WaitingForRelease", _NOT_YET_ENDED[run_view.children.running_already])
    if run_view.stored is None:
        failure = run_view.store_failure or _NOT_READ
        return RunState(Phase.ANALYZING, failure.reason, failure.message)
    if run_view.grown_plan:
        message = "a round that was spoiled is measured again, as spec.retries allows"
        if run_view.plan.search:
            message = "the search measures again what may change its answer"
        return RunState(Phase.ANALYZING, "Analyzing", message, adds_round=True)
    report = run_view.children.report
    return _with_report_job(run_view, report) if report else _without_report_job(run_view)


def _with_report_job(run_view: RunView, report: Job) -> RunState:
    """The state while a report Job exists. No engine holds GPUs by now, so the Job may wait and may be repeated."""
    pods = run_view.children.pods_of(report)
    ended = judge_ended_client(report, pods, run_view.settings, run_view.now)
    if ended is None:
        message = join_sentences(("the report is being made", start_delay(report, pods) or ""))
        return RunState(Phase.ANALYZING, "Analyzing", message)
    if ended.stage is LaunchStage.FAILED:
        return _report_failed(report, ended.reason, join_sentences(("the report failed", ended.message)))
    if run_view.results is None:
        message = f"the report Job succeeded, but {run_view.results_refused}"
        return _report_failed(report, ClientReason.RESULTS_MISSING, message)
    return RunState(Phase.SUCCEEDED, "Finished", run_view.results.headline)


def _report_failed(report: Job, reason: str, message: str) -> RunState:
    remedy = f"all measurements are kept; delete Job {report.ref.name} to make the report again"
    return RunState(Phase.FAILED, reason, f"{message}; {remedy}", retryable=True)


def _without_report_job(run_view: RunView) -> RunState:
    """The state without a report Job. Only adopted results to which this run adds nothing need no new report.

    The number of points in older results is no proof: a point may have been removed and measured again.
    """
    results = run_view.results
    if results and results.points_measured == run_view.measured and not run_view.has_launched:
        return RunState(Phase.SUCCEEDED, "Finished", results.headline)
    return RunState(Phase.ANALYZING, "Analyzing", "the report is being made", report_due=True)


# Decisions about a run that is invalid, has ended or met an error.


def decide_invalid_run(
    resource: Mapping[str, Any], error: InvalidSpec, children: Children, previous: RunStatus, now: datetime
) -> RunDecision:
    """The decision about a run that is invalid or not allowed: Validated=False, with all problems."""
    generation, gated = generation_of(resource), bool(resource.get("spec", {}).get("gate"))
    update = {
        "observed_generation": generation,
        "phase": Phase.INVALID,
        "conditions": invalid_conditions(error, previous, generation, now, gated=gated),
        "problem": error.reason,
    }
    return _released(previous.model_copy(update=update), children, previous, now)


def _released(status: RunStatus, children: Children, previous: RunStatus, now: datetime) -> RunDecision:
    """The decision about a run that may continue only after a change: this status, and no engine runs.

    An engine whose launch is not in status is stopped instead of deleted, because the run may continue.
    """
    stop = tuple(
        stop_and_keep_job(job, now)
        for job in children.launch_jobs
        if not (job.stopping_or_ended or job.deleting or job.suspended or is_recorded_in_status(previous.groups, job))
    )
    stopped = {each.ref for each in stop}
    delete = tuple(ref for ref in releases(children) if ref not in stopped)
    return RunDecision(status, stop=stop, delete=delete, events=run_events(previous, status), at_rest=True)


def status_after_error(
    resource: Mapping[str, Any], intended: RunStatus, error: OperatorError, now: datetime
) -> RunStatus:
    """The previous status with the error: Retry keeps Reconciling=True, Stop sets Stalled=True.

    Failed stays False, because the step is tried again even after a Stop.

    The cluster rejected a step, so the `intended` status does not describe what exists and is not written. Only
    `idleSince` is taken from it, because the time since when an engine has been idle does not depend on that step.
    The status of a run that has finished is not changed.
    """
    previous, generation, message = read_status(RunStatus, resource), generation_of(resource), str(error)
    if has_finished(previous):
        return previous
    stopped = isinstance(error, Stop)
    phase = "Stalled" if stopped else "Reconciling"
    values = tool_values(ConditionType, phase, error.reason, message, reconciling=not stopped, stalled=stopped)
    intended_rows = {(row.index, row.attempt): row for row in intended.groups}
    groups = [
        _with_idle_since(row, intended_rows.get((row.index, row.attempt), row), message) for row in previous.groups
    ]
    update = {
        "observed_generation": generation,
        "conditions": replace_conditions(Condition, values, previous, generation, now),
        "groups": groups,
        "problem": error.reason[:PROBLEM_MAX],
    }
    return fit_to_size(previous.model_copy(update=update))


def _with_idle_since(row: GroupStatus, intended: GroupStatus, message: str) -> GroupStatus:
    if intended.idle_since is None:
        return row
    return row.model_copy(update={"idle_since": intended.idle_since, "message": message[:TEXT_MAX]})


def has_finished(status: RunStatus) -> bool:
    """Whether the run has ended. Its status is then the final record and no longer recomputed from observations."""
    return status.completion_time is not None and find_condition(status, ConditionType.READY) is not None


DEFAULT_TTL_S = int(RunSpec.model_fields["ttl_seconds_after_finished"].default)


def decide_finished_run(
    resource: Mapping[str, Any], previous: RunStatus, children: Children, settings: OperatorSettings, now: datetime
) -> RunDecision:
    """The decision about a run that has ended: nothing is measured again, and its children are deleted after the TTL.

    The SpecBenchRun itself is never deleted: a GitOps tool would create it again, and it would run again. The TTL is
    read from the raw spec, so that this also works for a spec that this version rejects.
    """
    status = with_observed_generation(with_final_conditions(previous, now), generation_of(resource))
    ended = parse_timestamp(previous.completion_time) or now
    ttl_s = int(resource.get("spec", {}).get("ttlSecondsAfterFinished", DEFAULT_TTL_S))
    if settings.limits.ttl_seconds_after_finished:  # the run may have ended before the fence had this limit
        ttl_s = min(ttl_s, settings.limits.ttl_seconds_after_finished)
    remaining_s = (ended + timedelta(seconds=ttl_s) - now).total_seconds()
    children_left: tuple[Job | ChildObject, ...] = (*children.jobs, *children.objects)
    if remaining_s > 0:
        wait_s = remaining_s if children_left else None
        return RunDecision(status, delete=releases(children), requeue_after_s=wait_s, at_rest=True)
    expired = tuple(child.ref for child in children_left if not child.deleting)
    return RunDecision(status, delete=expired, at_rest=not children_left)


def with_final_conditions(status: RunStatus, now: datetime) -> RunStatus:
    """The status with the final conditions for tools, also if something had overwritten them after the end."""
    succeeded = status.phase is Phase.SUCCEEDED
    values = tool_conditions(_state_of_finished_run(status, succeeded=succeeded))
    found = {kind: find_condition(status, kind) for kind in values}
    if all(row is not None and row.status is values[kind].status for kind, row in found.items()):
        return status
    conditions = replace_conditions(Condition, values, status, status.observed_generation, now)
    return status.model_copy(update={"conditions": conditions})


def _state_of_finished_run(status: RunStatus, *, succeeded: bool) -> RunState:
    """The final state, derived from those conditions that are not changed after the end."""
    if succeeded:
        trust = find_condition(status, ConditionType.TRUSTWORTHY)
        return RunState(Phase.SUCCEEDED, "Finished", trust.message if trust else "")
    load = find_condition(status, ConditionType.MEASUREMENT_COMPLETE)
    if load and load.status is ConditionStatus.FALSE:
        return RunState(Phase.FAILED, load.reason, load.message)
    return RunState(Phase.FAILED, str(Phase.FAILED), "")


def with_observed_generation(status: RunStatus, generation: int) -> RunStatus:
    """The status with this observedGeneration. Otherwise kstatus would report a finished run as in progress."""
    conditions = [row.model_copy(update={"observed_generation": generation}) for row in status.conditions]
    return status.model_copy(update={"observed_generation": generation, "conditions": conditions})


ADOPT_PATH = "spec.results.adopt"
_ADOPT_REMEDY = "use the spec that `specbench recover` makes from those results, or remove adopt to measure again"


def check_adopted_results(run_view: RunView) -> None:
    """Raises InvalidSpec if the results to adopt do not exist, or were made by a plan with other points.

    The client would reject another plan too, but only after an engine has been started.
    """
    if run_view.run.spec.results.adopt is None or run_view.stored is None:
        return
    uri = results_uri(run_view.run)
    if run_view.stored.plan_json is None:
        remedy = "set it to the UID of a run of this namespace and name whose results are in this bucket and prefix"
        raise InvalidSpec([Problem(ADOPT_PATH, f"there are no results at {uri}", remedy)])
    try:
        stored_plan = Plan.from_untrusted_json(run_view.stored.plan_json.encode())
    except ValueError as error:
        message = f"{uri}/{PLAN} is damaged, or was written by another version of specbench"
        raise InvalidSpec([Problem(ADOPT_PATH, message, "remove adopt to measure again")]) from error
    if stored_plan.added_rounds > most_rounds(stored_plan, run_view.run.spec.retries):
        message = f"the results at {uri} have {stored_plan.added_rounds} rounds that were measured again"
        raise InvalidSpec([Problem("spec.retries", message, f"set it to {stored_plan.added_rounds} or more")])
    unknown = stored_plan.unknown_field(run_view.stored.plan_json.encode())
    if names := unknown or ", ".join(differing_fields(*map(without_added_rounds, (stored_plan, run_view.plan)))):
        raise InvalidSpec(
            [Problem(ADOPT_PATH, f"the results at {uri} have another plan: {names} differ", _ADOPT_REMEDY)]
        )
