"""decide_run: the decision about one run, from its observation, the settings and the current time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from specbench_api.errors import InvalidSpec, NotAllowed, Problem
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.canonical import differing_fields
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GateWait, Phase
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.status import TEXT_MAX, Condition, GroupStatus, RunStatus
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.render.client_jobs import results_uri, unreadable_files
from specbench_operator.run.actions import creations, deletions, relaunches, releases, stops
from specbench_operator.run.conditions import PROBLEM_MAX, TERMINAL_PHASES, RunState, run_state_of, tool_conditions
from specbench_operator.run.gate import with_gate
from specbench_operator.run.launches.children import Children, children_of
from specbench_operator.run.launches.group import is_recorded_in_status, stop_and_keep_job
from specbench_operator.run.run_status import build_run_status, fit_to_size, run_events
from specbench_operator.run.run_view import RunView, build_run_view, read_run_status, secret_problems
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import (
    UNFINISHED,
    find_condition,
    no,
    replace_conditions,
    tool_values,
    unknown,
    with_transition_times,
)
from specbench_operator.state.objects import ChildObject, Job
from specbench_operator.state.run import RunDecision, RunObservation, parsed_run
from specbench_operator.state.timestamps import earliest, parse_timestamp

_UNKNOWN_WHEN_INVALID = (
    ConditionType.QUEUED,
    ConditionType.ENGINE_READY,
    ConditionType.MEASUREMENT_COMPLETE,
    ConditionType.RESULTS_STORED,
    ConditionType.TRUSTWORTHY,
)


def decide_invalid_run(
    resource: Mapping[str, Any], error: InvalidSpec, children: Children, previous: RunStatus, now: datetime
) -> RunDecision:
    """The decision about a run that is invalid or not allowed: Validated=False with all problems, and no engine runs.

    An engine whose launch is not in status is stopped instead of deleted, because the run may become valid and
    continue.
    """
    message = "; ".join(str(problem) for problem in error.problems)
    generation = int(resource["metadata"].get("generation", 0))
    values = {
        ConditionType.VALIDATED: no(error.reason, message),
        **dict.fromkeys(_UNKNOWN_WHEN_INVALID, unknown(UNFINISHED)),
        **({ConditionType.GATE_PASSED: unknown(GateWait.NOT_YET)} if resource.get("spec", {}).get("gate") else {}),
        **tool_conditions(RunState(Phase.INVALID, error.reason, message)),
    }
    status = previous.model_copy(
        update={
            "observed_generation": generation,
            "phase": Phase.INVALID,
            "conditions": with_transition_times(Condition, values, previous, generation, now),
            "problem": error.reason,
        }
    )
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
    previous = read_run_status(resource)
    if has_finished(previous):
        return previous
    generation = int(resource["metadata"].get("generation", 0))
    message = str(error)
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
    status = with_observed_generation(
        with_final_conditions(previous, now), int(resource["metadata"].get("generation", 0))
    )
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
    if names := ", ".join(differing_fields(stored_plan, run_view.plan)):
        raise InvalidSpec(
            [Problem(ADOPT_PATH, f"the results at {uri} have another plan: {names} differ", _ADOPT_REMEDY)]
        )


S3_RETRY_S = 15.0
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
    previous = read_run_status(resource)
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
        return _decide_valid_run(run, observed, previous, settings, now)
    except InvalidSpec as error:
        return decide_invalid_run(resource, error, children, previous, now)


def _decide_valid_run(
    run: SpecBenchRun, observed: RunObservation, previous: RunStatus, settings: OperatorSettings, now: datetime
) -> RunDecision:
    if problems := settings.refusals(run.spec, run.metadata.namespace):
        raise NotAllowed(problems)
    if problems := unreadable_files(run.spec):
        raise InvalidSpec(problems)
    if run.spec.placement.nodes > 1 and not settings.leader_worker_sets:
        raise InvalidSpec([NO_LEADER_WORKER_SETS])
    run_view = build_run_view(run, observed, previous, settings, now)
    check_adopted_results(run_view)
    state = run_state_of(run_view)
    actions = (relaunches(run_view), stops(run_view), deletions(run_view))
    apply = creations(run_view, state)  # raises InvalidSpec for a plan that is too large for a ConfigMap
    status = build_run_status(run_view, state)
    requeue_after_s = _requeue_after_s(run_view, state)
    relaunch, stop, delete = actions
    return RunDecision(
        status=status,
        relaunch=relaunch,
        stop=stop,
        delete=delete,
        apply=apply,
        events=run_events(previous, status),
        requeue_after_s=requeue_after_s,
        at_rest=state.phase is Phase.SUSPENDED
        and not (any(actions) or apply or requeue_after_s is not None or run_view.holds_gpus),
        awaits=run_view.namespace_wait.awaits if run_view.namespace_wait else frozenset(),
    )


def only_reports_progress(previous: RunStatus, decision: RunDecision) -> bool:
    """Whether a decision does nothing but write the first status, or update numbers and texts in the status."""
    if decision.relaunch or decision.stop or decision.delete or decision.apply:
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
