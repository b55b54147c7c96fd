"""Builds the RunStatus of a run from its RunView and RunState."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.outcome.summary import Cell, RunSummary, best_speedup_text
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.conditions import GroupState, Phase
from specbench_api.spec.percentiles import PERCENTILES
from specbench_api.spec.status import (
    ArmResult,
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
from specbench_operator.run.phase import TERMINAL_PHASES, RunState
from specbench_operator.run.run_view import RunView
from specbench_operator.run.status.conditions import conditions_of, problem_of
from specbench_operator.run.status.size_limit import clip, fit_to_size
from specbench_operator.state.objects import Pod
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
