"""The phase of a run with its reason and message, its conditions, and its problems for a print column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specbench_api.launch.launcher import is_pinned
from specbench_api.spec.conditions import (
    ConditionStatus,
    ConditionType,
    EngineReason,
    GateWait,
    GroupState,
    Phase,
    QueueReason,
)
from specbench_api.spec.status import Condition
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.run.launches.children import Children
from specbench_operator.run.launches.client import judge_ended_client, start_delay, storage_failure
from specbench_operator.run.launches.group import GroupView
from specbench_operator.run.launches.launch_state import ClientReason, LaunchStage
from specbench_operator.run.run_view import RunView
from specbench_operator.state.conditions import (
    UNFINISHED,
    ConditionValue,
    find_condition,
    join_sentences,
    no,
    tool_values,
    unknown,
    with_transition_times,
    yes,
)
from specbench_operator.state.objects import Job, ObjectRef
from specbench_operator.state.run import StoreFailure

TERMINAL_PHASES = (Phase.SUCCEEDED, Phase.FAILED)
STALLED_PHASES = (Phase.FAILED, Phase.INVALID)
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
ACTIVE_PHASES = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ANALYZING)


@dataclass(frozen=True)
class RunState:
    """The phase of a run, with its reason and message.

    `report_due`: create the report Job. `retryable`: the run has failed but not ended, because it can still be
    repaired.
    """

    phase: Phase
    reason: str
    message: str
    report_due: bool = False
    retryable: bool = False


def run_state_of(run_view: RunView) -> RunState:
    """Determine the state of a run."""
    fatal = run_view.fatal_group
    if fatal:
        return RunState(Phase.FAILED, fatal.reason, fatal.message)
    if run_view.suspended:
        message = "spec.suspend is true: GPUs are released and results are kept; set it to false to continue"
        return RunState(Phase.SUSPENDED, "Suspended", message)
    if run_view.namespace_wait:
        return RunState(Phase.PENDING, run_view.namespace_wait.reason, run_view.namespace_wait.message)
    if run_view.active_group:
        return _measuring(run_view)
    if run_view.measured == 0:
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


# Conditions, one function per type.


def conditions_of(run_view: RunView, state: RunState) -> list[Condition]:
    """All conditions of the run, in the order of ConditionType."""
    values = {kind: rule(run_view, state) for kind, rule in _CONDITION_RULES.items()} | tool_conditions(
        state, holds_gpus=run_view.holds_gpus
    )
    if run_view.run.spec.gate:
        values[ConditionType.GATE_PASSED] = unknown(GateWait.NOT_YET, "the gate is evaluated when the run has finished")
    return with_transition_times(Condition, values, run_view.previous, run_view.run.metadata.generation, run_view.now)


def tool_conditions(state: RunState, *, holds_gpus: bool = False) -> dict[ConditionType, ConditionValue]:
    """The conditions that tools read: Ready, Reconciling and Stalled, and Complete and Failed.

    Failed is True only when the GPUs are released, as that of a Job only when its pods have ended.
    """
    return tool_values(
        ConditionType,
        str(state.phase),
        state.reason,
        state.message,
        ready=state.phase is Phase.SUCCEEDED,
        reconciling=state.phase in ACTIVE_PHASES,
        stalled=state.phase in STALLED_PHASES,
        failed=state.phase in STALLED_PHASES and not holds_gpus,
    )


def _validated(run_view: RunView, _state: RunState) -> ConditionValue:
    """True, with a warning of an engine image that may move. The installation's own image has no name here."""
    image = engine_launch(run_view.plan, run_view.plan.arms[0].name).image
    if not image or is_pinned(image):
        return yes("Valid")
    remedy = "to measure the same image again, set spec.engine.image to NAME@sha256:… (digest: provenance.json)"
    return yes("Valid", f"the tag of {image} may name another image later: {remedy}")


def _queued(run_view: RunView, state: RunState) -> ConditionValue:
    """Whether the active group waits for its queue.

    An inadmissible Job does not make the run Stalled, because its queue may have been created just after the run.
    """
    view, queue = run_view.active_group, run_view.run.spec.placement.queue_name
    if state.phase is Phase.SUSPENDED or view is None:
        return no(QueueReason.NONE)
    if view.state is GroupState.QUEUED:
        return yes(view.reason, join_sentences((f"arm {view.group.arm}", *_preempted(view), view.message)))
    if run_view.launching is not None:
        return yes(QueueReason.WAITING, f"arm {view.group.arm}") if queue else no(QueueReason.NONE)
    engine = run_view.children.engine(view.group.index, view.attempt) if view.live_launch is not None else None
    if engine is None or not engine.queue:
        return no(QueueReason.NONE)
    return no(QueueReason.ADMITTED, join_sentences((f"queue {engine.queue}: arm {view.group.arm}", *_preempted(view))))


def _preempted(view: GroupView) -> tuple[str, ...]:
    return (f"preempted {view.preemptions} times",) if view.preemptions else ()


def _engine_ready(run_view: RunView, state: RunState) -> ConditionValue:
    view = run_view.active_group
    if state.phase is Phase.SUSPENDED:
        return unknown("Suspended")
    if view is None:
        broken = [row for row in run_view.failed if row.reason in tuple(EngineReason)]
        return no(broken[0].reason, _group_message(broken[0])) if broken else yes(EngineReason.DONE)
    if run_view.launching is not None:
        return unknown(EngineReason.STARTING, f"arm {view.group.arm}")
    if view.state is GroupState.WAITING:
        return no(view.reason, _group_message(view)) if view.reason else unknown(EngineReason.STARTING)
    if view.launch_state and view.launch_state.degraded:
        return no(view.reason, _group_message(view))
    return _engine_progress(run_view, view)


def _engine_progress(run_view: RunView, view: GroupView) -> ConditionValue:
    if view.state in (GroupState.QUEUED, GroupState.STARTING):
        queued = view.state is GroupState.QUEUED
        return unknown(view.reason if queued else EngineReason.STARTING, _group_message(view))
    if _has_answered(run_view, view) or _was_serving(run_view, view):
        return yes(EngineReason.SERVING, f"arm {view.group.arm}")
    return unknown(EngineReason.STARTING, f"arm {view.group.arm}: healthy; waiting for its first completion")


def _has_answered(run_view: RunView, view: GroupView) -> bool:
    """Whether the launch's own client reports that the engine has answered a completion.

    The launch number alone is not enough: a run that adopts results counts launches from the start. Therefore
    progress.json must be newer than the client's Job. These are different clocks; if S3's clock is behind, the
    condition becomes True that much later, with a newer progress.json.
    """
    stored, client = run_view.stored, run_view.children.client(view.group.index, view.attempt)
    if stored is None or stored.answering != (view.group.index, view.attempt):
        return False
    return client is not None and stored.answered_at is not None and stored.answered_at >= client.created_at


def _was_serving(run_view: RunView, view: GroupView) -> bool:
    """Whether EngineReady was True for this launch before S3 became unreachable, and with it progress.json."""
    before = find_condition(run_view.previous, ConditionType.ENGINE_READY)
    row = next((row for row in run_view.previous.groups if row.index == view.group.index), None)
    same = row is not None and (row.state, row.attempt) == (view.state, view.attempt)
    return run_view.stored is None and same and before is not None and before.status is ConditionStatus.TRUE


def _measurement_complete(run_view: RunView, state: RunState) -> ConditionValue:
    total = len(run_view.plan.points)
    so_far = f"{run_view.measured} of {total} points measured"
    if run_view.active_group is None and run_view.failed:
        first = run_view.fatal_group or run_view.failed[0]
        return no(first.reason, f"{so_far}; {_group_message(first)}")
    if run_view.active_group is not None:
        return no(state.phase, so_far)
    early = [view.group.arm for view in run_view.groups if view.measured < len(view.group.points)]
    return yes("Finished", f"{so_far}; ended early by load.stop: {', '.join(early)}" if early else so_far)


def _results_stored(run_view: RunView, state: RunState) -> ConditionValue:
    if run_view.store_failure:
        value = no if run_view.store_failure.refused else unknown
        return value(run_view.store_failure.reason, run_view.store_failure.message)
    clients = (
        run_view.children.client(view.group.index, view.attempt) for view in run_view.groups if not _is_measured(view)
    )
    for job in (*clients, run_view.children.report):
        termination = storage_failure(job, run_view.children.pods_of(job), run_view.settings)
        if termination:
            return no(termination.reason, termination.message)
    return yes("Stored") if state.phase is Phase.SUCCEEDED else unknown(UNFINISHED)


def _is_measured(view: GroupView) -> bool:
    return view.state is GroupState.DONE


def _trustworthy(run_view: RunView, state: RunState) -> ConditionValue:
    results = run_view.results
    if state.phase is not Phase.SUCCEEDED or results is None:
        return unknown(UNFINISHED)
    value = yes if results.trust == "Trustworthy" else no
    return value(results.trust_reason, results.trust_message)


def _group_message(view: GroupView) -> str:
    return join_sentences((f"arm {view.group.arm}", view.reason, view.message))


_CONDITION_RULES: dict[ConditionType, Callable[[RunView, RunState], ConditionValue]] = {
    ConditionType.VALIDATED: _validated,
    ConditionType.QUEUED: _queued,
    ConditionType.ENGINE_READY: _engine_ready,
    ConditionType.MEASUREMENT_COMPLETE: _measurement_complete,
    ConditionType.RESULTS_STORED: _results_stored,
    ConditionType.TRUSTWORTHY: _trustworthy,
}


PROBLEM_MAX = 128


def problem_of(run_view: RunView, state: RunState, conditions: list[Condition]) -> str:
    """The reasons of everything that is wrong, for the print column PROBLEM, each once and the worst first.

    In this order: what ended the run, what blocks it now, failed arms, missing results, untrustworthy results.
    """
    reasons = _problems(run_view, state, {row.type: row for row in conditions})
    return ", ".join(dict.fromkeys(reason for reason in reasons if reason))[:PROBLEM_MAX]


def _problems(run_view: RunView, state: RunState, rows: dict[ConditionType, Condition]) -> Iterator[str]:
    arms = [f"{view.reason} ({view.group.arm})" for view in run_view.failed]
    if state.phase is Phase.FAILED and state.reason not in {view.reason for view in run_view.failed}:
        yield state.reason
    if run_view.active_group and rows[ConditionType.ENGINE_READY].status is ConditionStatus.FALSE:
        yield rows[ConditionType.ENGINE_READY].reason
    if run_view.store_failure:
        yield run_view.store_failure.reason
    yield from arms
    for kind in (ConditionType.RESULTS_STORED, ConditionType.TRUSTWORTHY):
        if rows[kind].status is ConditionStatus.FALSE:
            yield rows[kind].reason
