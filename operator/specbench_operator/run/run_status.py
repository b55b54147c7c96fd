"""The status of a run from its RunView and RunState, its size limit, and the events that its changes cause."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.outcome.summary import Cell, RunSummary, best_speedup_text
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase, QueueReason
from specbench_api.spec.slo import PERCENTILES
from specbench_api.spec.status import (
    ArmResult,
    Condition,
    GroupStatus,
    Interval,
    Percentiles,
    PointCounts,
    ResultsStatus,
    RunStatus,
)
from specbench_operator.render.client_jobs import results_uri
from specbench_operator.run.launches.group import GroupView
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.run.phase import ARM_AT_FAULT, TERMINAL_PHASES, RunState, conditions_of, problem_of
from specbench_operator.run.run_view import RunView
from specbench_operator.state.conditions import find_condition, flip_of, flipped_to, join_sentences
from specbench_operator.state.objects import Pod
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp, truncate_to_second

ROWS_MAX = 1024
FINDINGS_MAX = 32
SENTENCE_BYTES = 1024
INDISTINGUISHABLE = "indistinguishable"


def arms_of(summary: RunSummary) -> list[ArmResult]:
    """One row per arm, workload and load, up to ROWS_MAX. A figure that is missing in the summary stays missing."""
    return [_arm_row(cell) for cell in summary.cells[:ROWS_MAX]]


def recommendation_of(summary: RunSummary) -> str:
    """The summary's recommendation in one sentence; empty if it has none."""
    return clip(summary.recommendation.sentence, SENTENCE_BYTES) if summary.recommendation else ""


def _arm_row(cell: Cell) -> ArmResult:
    return ArmResult(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        concurrency=cell.level.concurrency,
        rate=cell.level.rate,
        speedup=_interval(cell, cell.speedup),
        speedup_text=_speedup_text(cell),
        tpot_speedup=_interval(cell, cell.tpot_speedup),
        e2e_speedup=_interval(cell, cell.end_to_end.speedup if cell.end_to_end else None),
        acceptance_length=_value(cell, StatusFigure.ACCEPTANCE_LENGTH),
        acceptance_length_verified=_value(cell, StatusFigure.ACCEPTANCE_LENGTH_VERIFIED),
        acceptance_rate=_value(cell, StatusFigure.ACCEPTANCE_RATE),
        ttft_ms=_percentiles(cell, StatusFigure.TTFT_MS),
        tpot_ms=_percentiles(cell, StatusFigure.TPOT_MS),
        e2e_ms=_percentiles(cell, StatusFigure.E2E_MS),
        user_tps=_value(cell, StatusFigure.USER_TPS),
        output_tps=_value(cell, StatusFigure.OUTPUT_TPS),
        goodput=_number(cell.goodput.rate if cell.goodput else None),
        slo_attainment=_number(cell.goodput.slo_attainment if cell.goodput else None),
        requests=cell.counts.requests,
        failed_requests=cell.counts.failed_requests,
        output_tokens=cell.counts.output_tokens or 0,
        valid=cell.valid,
        findings=[name[:64] for name in dict.fromkeys(cell.findings)][:FINDINGS_MAX],
    )


def _value(cell: Cell, name: str) -> float | None:
    return _number(cell.figures.get(name))


def _number(figure: Figure | None) -> float | None:
    return rounded(figure.value) if figure and figure.value is not None else None


def rounded(value: float) -> float:
    """The value with six significant digits. No measurement is more precise, and a status has up to a thousand rows."""
    return float(f"{value:.6g}")


def _percentiles(cell: Cell, name: str) -> Percentiles | None:
    values = {which: _value(cell, f"{name}_{which}") for which in PERCENTILES}
    return None if all(value is None for value in values.values()) else Percentiles(**values)


def _interval(cell: Cell, figure: Figure | None) -> Interval | None:
    """The figure with its interval; None with too few repeats, because it then lacks the noise between launches."""
    if figure is None or figure.value is None or figure.interval is None or cell.too_few_repeats:
        return None
    return Interval(value=rounded(figure.value), low=rounded(figure.interval.low), high=rounded(figure.interval.high))


def _speedup_text(cell: Cell) -> str:
    interval, few = _interval(cell, cell.speedup), cell.too_few_repeats
    if few and cell.speedup and cell.speedup.value is not None:
        text = f"{cell.speedup.value:.2f} ({few})"
    elif interval is None:
        return ""
    else:
        contains_one = interval.low <= 1 <= interval.high
        text = INDISTINGUISHABLE if contains_one else f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
    return text if cell.valid else f"{text} invalid"


GPU_SECONDS_PERIOD_S = 60
"""Minimum time between two writes of status that change nothing but the GPU-seconds, in seconds.

Each write triggers every watcher of the run.
"""


def with_gpu_seconds(status: RunStatus, run_view: RunView) -> RunStatus:
    """The status with the GPU-seconds added up to now, if that is worth a write.

    A pod holds its GPUs from being scheduled until its container ends or the pod is deleted. Status contains the sum
    and the time until which it counts. Each reconciliation adds what follows that time, so reconciliations may be
    lost, repeated or late. Times are truncated to whole seconds like those in status, otherwise fractions would count
    twice.

    Error: a pod that disappears between two reconciliations is not counted after the last written time. The sum is then
    too small, by at most GPU_SECONDS_PERIOD_S per launch and usually by a second or two.
    """
    gpus, previous = run_view.run.spec.placement.devices, run_view.previous
    since, until = parse_timestamp(previous.gpu_seconds_until), truncate_to_second(run_view.now)
    unchanged = status.model_copy(
        update={"gpu_seconds_held": previous.gpu_seconds_held, "gpu_seconds_until": previous.gpu_seconds_until}
    )
    pods = [pod for pod in run_view.children.pods if pod.key.role == ROLE_ENGINE]
    added = gpus * sum(_held_seconds(pod, since, until) for pod in pods)
    stale = since is None or (until - since).total_seconds() >= GPU_SECONDS_PERIOD_S
    # The previous status was shortened before it was written, so it is compared with the shortened new one.
    if added <= 0 or (not stale and fit_to_size(unchanged) == previous):
        return unchanged
    held = round(previous.gpu_seconds_held + added, 1)
    return unchanged.model_copy(update={"gpu_seconds_held": held, "gpu_seconds_until": format_timestamp(until)})


def _held_seconds(pod: Pod, since: datetime | None, until: datetime) -> float:
    if pod.scheduled_at is None:
        return 0
    finished = pod.terminated.finished_at if pod.terminated and not pod.restarts else None
    end = finished or (until if pod.alive else pod.scheduled_at)
    begin = pod.scheduled_at if since is None else max(pod.scheduled_at, since)
    return max((min(end, until) - begin).total_seconds(), 0)


def build_run_status(run_view: RunView, state: RunState) -> RunStatus:
    """The complete status of a run."""
    ended = state.phase in TERMINAL_PHASES and not state.retryable and not run_view.holds_gpus
    summary = run_view.stored.summary if run_view.stored and state.phase is Phase.SUCCEEDED else None
    counts = _counts(run_view, summary.points_invalid if summary else 0)
    results: dict[str, Any] = {}
    if summary:
        results = {
            "arms": arms_of(summary),
            "best": best_speedup_text(summary),
            "recommendation": recommendation_of(summary),
            "trust": "Trustworthy" if summary.trustworthy else "Untrustworthy",
        }
    conditions = conditions_of(run_view, state)
    status = RunStatus(
        observed_generation=run_view.run.metadata.generation,
        phase=state.phase,
        conditions=conditions,
        start_time=_start_time(run_view),
        completion_time=format_timestamp(run_view.now) if ended else None,
        points=counts,
        progress=f"{counts.measured}/{counts.total}",
        engine_nodes=list(run_view.served_on),
        groups=[_group_row(run_view, view) for view in run_view.groups],
        problem=problem_of(run_view, state, conditions),
        results=_results(run_view, state),
        **results,
    )
    return with_gpu_seconds(status, run_view)


def _counts(run_view: RunView, invalid: int) -> PointCounts:
    failed = sum(len(view.group.points) - view.measured for view in run_view.failed)
    return PointCounts(total=len(run_view.plan.points), measured=run_view.measured, invalid=invalid, failed=failed)


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


# Kubernetes Events of a run, derived from the difference between its previous and its new status.


def run_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The events that a change of status causes, in the order in which the changes happen."""
    return (*_admission_events(before, after), *_group_events(before, after), *_end_events(before, after))


def _admission_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    invalid = flipped_to(before, after, ConditionType.VALIDATED, ConditionStatus.FALSE)
    if invalid:
        yield KubernetesEvent(WARNING, "Invalid", invalid.message, flip_of(before, invalid))


def _group_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    old = {row.index: row for row in before.groups}
    for row in after.groups:
        known = old.get(row.index)
        if known is None or (known.state, known.attempt) != (row.state, row.attempt):
            yield from _group_event(row, known)


def _group_event(row: GroupStatus, known: GroupStatus | None) -> Iterator[KubernetesEvent]:
    launch = f"group {row.index} (arm {row.arm}, launch {row.attempt})"
    message = join_sentences((launch, row.message))
    if row.state is not GroupState.FAILED and known and _losses(row) > _losses(known):
        yield KubernetesEvent(WARNING, row.reason or "EngineLost", message, launch)
    if row.state is GroupState.QUEUED:
        yield KubernetesEvent(NORMAL, "EngineQueued", message)
    elif row.state is GroupState.FAILED:
        yield KubernetesEvent(WARNING, row.reason or "EngineFailed", message, launch)
    for reason in _steps(row, known):
        yield KubernetesEvent(NORMAL, reason, launch, launch)


_STEPS = {
    GroupState.STARTING: "EngineStarting",
    GroupState.MEASURING: "EngineReady",
    GroupState.DONE: "GroupMeasured",
}
"""The steps of a launch that measures its group, in order, and the reason of each one's event."""


def _steps(row: GroupStatus, known: GroupStatus | None) -> list[str]:
    """The reasons of the steps that a launch has made since the last status, which may have missed some of them.

    An engine that is not ready any more makes no step: each launch starts once.
    """
    if row.state not in _STEPS:
        return []
    states = list(_STEPS)
    last = states.index(row.state)
    first = 0
    if known is not None and known.attempt == row.attempt and known.state in _STEPS:
        first = states.index(known.state) + 1
    elif row.state is GroupState.DONE:
        # Without a launch in the last status, the points may have been found in the store.
        launched = known is not None and known.state is not GroupState.WAITING
        first = last if launched else last + 1
    return [_STEPS[state] for state in states[first : last + 1]]


def _losses(row: GroupStatus) -> int:
    return row.attempt - row.suspensions


def _end_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    if before.phase is not after.phase and Phase.SUSPENDED in (before.phase, after.phase):
        yield KubernetesEvent(NORMAL, "Suspended" if after.phase is Phase.SUSPENDED else "Resumed", after.progress)
    queued = find_condition(after, ConditionType.QUEUED)
    if queued and queued.reason == QueueReason.INADMISSIBLE and not _is_unchanged(before, queued):
        yield KubernetesEvent(WARNING, queued.reason, queued.message)
    not_stored = flipped_to(before, after, ConditionType.RESULTS_STORED, ConditionStatus.FALSE)
    if not_stored:
        yield KubernetesEvent(WARNING, not_stored.reason, not_stored.message, flip_of(before, not_stored))
    finished = flipped_to(before, after, ConditionType.MEASUREMENT_COMPLETE, ConditionStatus.TRUE)
    if finished:
        yield KubernetesEvent(NORMAL, "MeasurementComplete", finished.message, flip_of(before, finished))
    ready = flipped_to(before, after, ConditionType.READY, ConditionStatus.TRUE)
    if ready:
        message = join_sentences((after.best, ready.message))
        yield KubernetesEvent(NORMAL, "ResultsReady", message, flip_of(before, ready))
    untrustworthy = flipped_to(before, after, ConditionType.TRUSTWORTHY, ConditionStatus.FALSE)
    if untrustworthy:
        message = join_sentences((untrustworthy.reason, untrustworthy.message))
        yield KubernetesEvent(WARNING, "Untrustworthy", message, flip_of(before, untrustworthy))
    trustworthy = flipped_to(before, after, ConditionType.TRUSTWORTHY, ConditionStatus.TRUE)
    if trustworthy and trustworthy.reason == ARM_AT_FAULT:
        yield KubernetesEvent(WARNING, ARM_AT_FAULT, trustworthy.message, flip_of(before, trustworthy))
    stalled = flipped_to(before, after, ConditionType.STALLED, ConditionStatus.TRUE)
    if stalled and after.phase is Phase.FAILED:
        yield KubernetesEvent(WARNING, stalled.reason, stalled.message, flip_of(before, stalled))


def _is_unchanged(before: RunStatus, row: Condition) -> bool:
    known = find_condition(before, row.type)
    return known is not None and (known.status, known.reason) == (row.status, row.reason)


def gate_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The event that the gate passed or did not pass."""
    passed = flipped_to(before, after, ConditionType.GATE_PASSED, ConditionStatus.TRUE)
    if passed:
        return (KubernetesEvent(NORMAL, "GatePassed", passed.message, flip_of(before, passed)),)
    failed = flipped_to(before, after, ConditionType.GATE_PASSED, ConditionStatus.FALSE)
    if failed:
        message = join_sentences((failed.reason, failed.message))
        return (KubernetesEvent(WARNING, "GateNotPassed", message, flip_of(before, failed)),)
    return ()


# The size of a status is limited to less than 100 kB, even with 1,000 points or 512 launches.
#
# etcd rejects objects of more than 1.5 MB, and long before that every write is expensive for every watcher of runs.
# What is also stored elsewhere is shortened first: messages are cut at the end, rows of finished groups repeat the
# counts, and summary.json contains all rows of the results. Nothing that a decision needs is removed: while a run is in
# progress, every group keeps its row with its state, launch number and reason.

STATUS_BYTES_MAX = 96_000
"""Maximum size of the status; the rest of the object and its managed fields are not included."""
ARMS_BYTES = 60_000
"""The part of it that is reserved for rows of results: about ninety rows."""
SHORT_MESSAGE = 128
SHORT_REASON = 20
"""At least as long as any reason that decides whether an arm is launched again (`group.ENGINE_FAULTS`)."""
_ESCAPED = re.compile("[<>&]")
_ESCAPE_MORE = 5
"""Additional bytes of each of these characters, which the API server stores as \\u003c and so on."""


def fit_to_size(status: RunStatus) -> RunStatus:
    """The status, shortened only as far as necessary. A status that fits is returned unchanged."""
    if json_size(status) <= STATUS_BYTES_MAX:
        return status
    rest = status.model_copy(update={"arms": []})
    room = STATUS_BYTES_MAX - min(json_size(status) - json_size(rest), ARMS_BYTES)
    for shorten in _SHORTENINGS:
        if json_size(rest) <= room:
            break
        rest = shorten(rest)
    return _drop_arms(rest.model_copy(update={"arms": status.arms}))


def json_size(status: RunStatus) -> int:
    """An upper bound of the bytes that the API server stores: characters beyond ASCII are counted as escaped."""
    return _bytes_of(status.to_dict())


def _bytes_of(data: object) -> int:
    text = json.dumps(data, separators=(",", ":"))
    return len(text) + _ESCAPE_MORE * len(_ESCAPED.findall(text))


def clip(text: str, most: int) -> str:
    """The longest beginning of a text whose JSON string has at most this many bytes."""
    text = text[:most]
    while _bytes_of(text) > most + 2:  # without the two quotes
        text = text[: len(text) - max((_bytes_of(text) - most) // 12, 1)]
    return text


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


def _drop_arms(status: RunStatus) -> RunStatus:
    """Keep as many rows of results as fit, in their order.

    Rows are chosen for each arm and workload in turn, from the lowest load upwards, so that the rows that a row is
    compared with are kept too.
    """
    room = STATUS_BYTES_MAX - json_size(status.model_copy(update={"arms": [], "arms_omitted": len(status.arms)}))
    kept = set[int]()
    for index in _round_robin(status.arms):
        room -= _bytes_of(status.arms[index].to_dict()) + 1
        if room < 0:
            break
        kept.add(index)
    rows = [row for index, row in enumerate(status.arms) if index in kept]
    omitted = status.arms_omitted + len(status.arms) - len(rows)
    return status.model_copy(update={"arms": rows, "arms_omitted": omitted})


def _round_robin(rows: Sequence[ArmResult]) -> list[int]:
    """Indices of the rows: the first rows of all pairs of arm and workload, then the second rows, and so on."""
    counts = Counter[tuple[str, str]]()
    turns = []
    for index, row in enumerate(rows):
        turns.append((counts[row.arm, row.workload], index))
        counts[row.arm, row.workload] += 1
    return [index for _, index in sorted(turns)]


_SHORTENINGS: tuple[Callable[[RunStatus], RunStatus], ...] = (
    _short_group_messages,
    _without_done_groups,
    _conditions_within(2048),
    _reasons_of_groups_alone,
    _conditions_within(256),
)
"""How everything except the results is shortened, in this order, each step only if those before it were not enough."""
