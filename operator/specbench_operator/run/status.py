"""The status of a run: its conditions, rows and GPU-seconds, within a size limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.launch.launcher import is_pinned
from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.outcome.status_document import clip, stored_bytes
from specbench_api.spec.conditions import (
    ConditionStatus,
    ConditionType,
    EngineReason,
    GateWait,
    GroupState,
    Phase,
    QueueReason,
)
from specbench_api.spec.status import (
    Condition,
    GroupStatus,
    MeasuredResults,
    PointCounts,
    ResultsStatus,
    RunStatus,
)
from specbench_operator.render.client_jobs import results_uri
from specbench_operator.render.engine_pod import engine_launch
from specbench_operator.run.launches.client import storage_failure
from specbench_operator.run.launches.group import GroupView
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.run.view import RunView
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
from specbench_operator.state.timestamps import format_timestamp

TERMINAL_PHASES = (Phase.SUCCEEDED, Phase.FAILED)
STALLED_PHASES = (Phase.FAILED, Phase.INVALID)
ACTIVE_PHASES = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ANALYZING)


@dataclass(frozen=True)
class RunState:
    """The phase of a run, with its reason and message.

    `report_due`: create the report Job. `adds_round`: add a round to the plan. `retryable`: the run has failed but not
    ended, because it can still be repaired.
    """

    phase: Phase
    reason: str
    message: str
    report_due: bool = False
    adds_round: bool = False
    retryable: bool = False


def build_run_status(run_view: RunView, state: RunState) -> RunStatus:
    """The complete status of a run."""
    ended = state.phase in TERMINAL_PHASES and not state.retryable and not run_view.holds_gpus
    results = run_view.results if state.phase is Phase.SUCCEEDED else None
    counts = _counts(run_view, results.points_invalid if results else 0)
    conditions = conditions_of(run_view, state)
    return RunStatus(
        observed_generation=run_view.run.metadata.generation,
        phase=state.phase,
        conditions=conditions,
        start_time=_start_time(run_view),
        completion_time=format_timestamp(run_view.now) if ended else None,
        points=counts,
        progress=f"{counts.measured}/{counts.total}{_current_point(run_view)}"[:64],
        engine_nodes=list(run_view.served_on),
        groups=[_group_row(run_view, view) for view in run_view.groups],
        problem=problem_of(run_view, state, conditions),
        results=_results(run_view, state),
        store=run_view.previous.store,
        **{name: getattr(results, name) for name in MeasuredResults.model_fields if results},
    )


def _counts(run_view: RunView, invalid: int) -> PointCounts:
    failed = sum(len(view.group.points) - view.measured for view in run_view.failed)
    return PointCounts(total=len(run_view.plan.points), measured=run_view.measured, invalid=invalid, failed=failed)


def _current_point(run_view: RunView) -> str:
    """` ngram at 8`: the first point of the group in progress that is not stored; empty if none is measured."""
    view, stored = run_view.active_group, run_view.stored
    if view is None or stored is None or view.state is not GroupState.MEASURING:
        return ""
    return next(
        (f" {one.arm} at {one.level.label}" for one in view.group.points if one.hash not in stored.measured), ""
    )


def _group_row(run_view: RunView, view: GroupView) -> GroupStatus:
    row = view.to_status()
    if view.over or view is not run_view.active_group:
        return row if view.over else row.model_copy(update=_waiting_group(view))
    if run_view.suspended:
        update = {"state": GroupState.WAITING, "reason": SUSPENDED, "message": ""}
        return row.model_copy(update=update)
    if run_view.launching is None:
        return row
    queued = run_view.run.spec.placement.queue_name is not None
    return row.model_copy(update={"state": GroupState.QUEUED if queued else GroupState.STARTING})


def _waiting_group(view: GroupView) -> dict[str, Any]:
    """Changes to the row of a group that is not active. An engine that it has is ended and counts as suspended."""
    waiting: dict[str, Any] = {"state": GroupState.WAITING}
    if view.live_launch is None:
        return waiting
    return {**waiting, "attempt": view.attempt + 1, "suspensions": view.suspensions + 1, "engine_pod": ""}


def _start_time(run_view: RunView) -> str | None:
    """When the first launch was created: from status, else from its oldest Job, else now if one is created."""
    if run_view.previous.start_time:
        return run_view.previous.start_time
    oldest = min((job.created_at for job in run_view.children.launch_jobs), default=None)
    if oldest is None:
        return format_timestamp(run_view.now) if run_view.launching is not None else None
    return format_timestamp(oldest)


def _results(run_view: RunView, state: RunState) -> ResultsStatus | None:
    if run_view.awaits_adopted_uid:
        return None
    uri = results_uri(run_view.run)
    done = state.phase is Phase.SUCCEEDED
    return ResultsStatus(uri=uri, summary=f"{uri}/{SUMMARY}" if done else "", report=f"{uri}/{REPORT}" if done else "")


# Conditions, one function per type.


def conditions_of(run_view: RunView, state: RunState) -> list[Condition]:
    """All conditions of the run, in the order of ConditionType."""
    values = {kind: rule(run_view, state) for kind, rule in _CONDITION_RULES.items()} | tool_conditions(state)
    if run_view.run.spec.gate:
        values[ConditionType.GATE_PASSED] = unknown(GateWait.NOT_YET, "the gate is evaluated when the run has finished")
    return with_transition_times(Condition, values, run_view.previous, run_view.run.metadata.generation, run_view.now)


def tool_conditions(state: RunState) -> dict[ConditionType, ConditionValue]:
    """The conditions that tools read: Ready, Reconciling and Stalled."""
    return tool_values(
        ConditionType,
        str(state.phase),
        state.reason,
        state.message,
        ready=state.phase is Phase.SUCCEEDED,
        reconciling=state.phase in ACTIVE_PHASES,
        stalled=state.phase in STALLED_PHASES,
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
    unfinished = (view for view in run_view.groups if view.state is not GroupState.DONE)
    clients = (run_view.children.client(view.group.index, view.attempt) for view in unfinished)
    for job in (*clients, run_view.children.report):
        termination = storage_failure(job, run_view.children.pods_of(job), run_view.settings)
        if termination:
            return no(termination.reason, termination.message)
    return yes("Stored") if state.phase is Phase.SUCCEEDED else unknown(UNFINISHED)


def _trustworthy(run_view: RunView, state: RunState) -> ConditionValue:
    results = run_view.results
    if state.phase is not Phase.SUCCEEDED or results is None:
        return unknown(UNFINISHED)
    value = yes if results.trust == "Trustworthy" else no
    return value(results.trust_reason, results.trust_message)


def _group_message(view: GroupView) -> str:
    return join_sentences((f"arm {view.group.arm}", view.reason, view.message))


_CONDITION_RULES: Mapping[ConditionType, Callable[[RunView, RunState], ConditionValue]] = {
    ConditionType.VALIDATED: _validated,
    ConditionType.QUEUED: _queued,
    ConditionType.ENGINE_READY: _engine_ready,
    ConditionType.MEASUREMENT_COMPLETE: _measurement_complete,
    ConditionType.RESULTS_STORED: _results_stored,
    ConditionType.TRUSTWORTHY: _trustworthy,
}


def invalid_conditions(
    error: InvalidSpec, previous: RunStatus, generation: int, now: datetime, *, gated: bool
) -> list[Condition]:
    """The conditions of a run that is invalid or not allowed: Validated=False with all problems.

    `gated`: whether its spec has a gate.
    """
    message = "; ".join(map(str, error.problems))
    values = {
        **dict.fromkeys(_CONDITION_RULES, unknown(UNFINISHED)),
        ConditionType.VALIDATED: no(error.reason, message),
        **({ConditionType.GATE_PASSED: unknown(GateWait.NOT_YET)} if gated else {}),
        **tool_conditions(RunState(Phase.INVALID, error.reason, message)),
    }
    return with_transition_times(Condition, values, previous, generation, now)


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


# The size of a status is limited to less than 100 kB, even with 1,000 points or 512 launches.
#
# etcd rejects objects of more than 1.5 MB, and long before that every write is expensive for every watcher of runs.
# What is also stored elsewhere is shortened: messages are cut at the end, and rows of finished groups repeat the
# counts. Rows of results are limited by status.json. Nothing that a decision needs is removed: while a run is in
# progress, every group keeps its row with its state, launch number and reason.

STATUS_BYTES_MAX = 96_000
"""Maximum size of the status; the rest of the object and its managed fields are not included."""
SHORT_MESSAGE = 128
SHORT_REASON = 20
"""At least as long as any reason that decides whether an arm is launched again (`conditions.ENGINE_FAULTS`)."""


def fit_to_size(status: RunStatus) -> RunStatus:
    """The status, shortened only as far as necessary. A status that fits is returned unchanged."""
    for shorten in _SHORTENINGS:
        if json_size(status) <= STATUS_BYTES_MAX:
            break
        status = shorten(status)
    return status


def json_size(status: RunStatus) -> int:
    """An upper bound of the bytes that the API server stores."""
    return stored_bytes(status.to_dict())


def _short_group_messages(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": clip(row.message, SHORT_MESSAGE)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _without_done_groups(status: RunStatus) -> RunStatus:
    """Only for a run that has ended: before that, a row is all that is known of a group while S3 cannot be read."""
    if status.completion_time is None:
        return status
    rows = [row for row in status.groups if row.state is not GroupState.DONE]
    omitted = status.groups_omitted + len(status.groups) - len(rows)
    return status.model_copy(update={"groups": rows, "groups_omitted": omitted})


def _reasons_of_groups_alone(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": "", "reason": clip(row.reason, SHORT_REASON)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _conditions_within(most: int) -> Callable[[RunStatus], RunStatus]:
    def shorten(status: RunStatus) -> RunStatus:
        rows = [row.model_copy(update={"message": clip(row.message, most)}) for row in status.conditions]
        return status.model_copy(update={"conditions": rows})

    return shorten


def _without_groups(status: RunStatus) -> RunStatus:
    """Only for a run that has ended. Its problem and conditions have the reasons of failed groups."""
    if status.completion_time is None:
        return status
    return status.model_copy(update={"groups": [], "groups_omitted": status.groups_omitted + len(status.groups)})


def _without_arms(status: RunStatus) -> RunStatus:
    return status.model_copy(update={"arms": [], "arms_omitted": status.arms_omitted + len(status.arms)})


_SHORTENINGS: tuple[Callable[[RunStatus], RunStatus], ...] = (
    _short_group_messages,
    _without_done_groups,
    _conditions_within(2048),
    _reasons_of_groups_alone,
    _conditions_within(256),
    _without_groups,
    _without_arms,
)
"""How a status is shortened, in this order, each step only if those before it were not enough."""
