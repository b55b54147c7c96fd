"""Compares a current log with a reference: control charts, windows, and the decomposition of the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.figure import Figure
from specbench_client.analysis.drift.control_charts import (
    LAMBDA,
    SHIFT,
    ChartTuning,
    calibrate_limits,
    run_charts,
    tuning_for,
)
from specbench_client.analysis.drift.decomposition import decompose_change
from specbench_client.analysis.drift.request_log import LENGTH, RATE, RequestLog, acceptance_windows, pooled_acceptance
from specbench_client.columns import Values
from specbench_client.documents.drift import DriftCause, DriftChange, DriftChart, DriftReport, DriftSide

REFERENCE_MIN = 50
"""Fewest requests of a reference: the spread of fewer is too uncertain."""
PER_LOG = 20.0
"""Default run length, in lengths of the current log: one false alarm in twenty comparisons."""
LIMITS = (
    "Limits hold for independent requests: bursts of similar requests of one user alarm earlier.",
    "Mix is measured by the categories in the log: a change inside a category counts as the drafter's.",
    "An alarm means that acceptance changed, not that speculation stopped paying: docs/research/drift.md.",
)


NO_PARTS = (
    "Mix and drafter cannot be separated: the logs have no category in common, or one of them has categories for hardly"
    " any request."
)
NO_DRAFTER = "give a log of a server that drafts: without a drafter every step accepts nothing"
BETWEEN = (
    "No chart passed its limit, although the interval of {what} excludes 0. One log in twenty has such an interval by"
    " chance; a longer current log decides."
)
REPEATED = (
    "{count} of the {requests} requests of {source} occur twice, with the same time, prompt and counts: if the log was"
    " joined with itself, it alarms too early."
)


@dataclass(frozen=True)
class DriftOptions:
    """Options of the comparison.

    `run_length`: mean requests between false alarms; None for 20 times the current log's length. `window`: requests per
    window, unless `window_seconds` is given.
    """

    window: int = 200
    window_seconds: float | None = None
    run_length: float | None = None
    seed: int = 0


def drift_report(reference: RequestLog, current: RequestLog, options: DriftOptions) -> DriftReport:
    """Chart, cut into windows and decompose. Raises InvalidSpec if a log is too short or has no spread."""
    _validate(reference, current, options)
    run_length = options.run_length or PER_LOG * len(current.table)
    tuning = tuning_for(len(current.table))
    limits = calibrate_limits(reference.log_lengths, len(current.table), tuning, run_length, options.seed)
    ewma, cusum = run_charts(_standardised(reference.log_lengths, current.log_lengths, tuning), tuning)
    charts = [
        _chart("EWMA", _ewma(tuning), ewma, current, tuning, limit=limits.ewma),
        _chart("CUSUM", _cusum(tuning), cusum, current, tuning, limit=limits.cusum),
    ]
    pairs = [decompose_change(reference.table, current.table, metric, options.seed) for metric in (LENGTH, RATE)]
    changes = [change for change in pairs if change is not None]
    alarm = any(chart.alarm_at is not None for chart in charts)
    cause = _cause(changes[0]) if alarm else DriftCause.NONE
    return DriftReport(
        reference=_side(reference),
        current=_side(current),
        run_length=run_length,
        false_alarm=limits.false_alarm,
        charts=charts,
        windows=acceptance_windows(current, options.window, options.window_seconds),
        changes=changes,
        alarm=alarm,
        cause=cause,
        headline=_headline(charts, changes[0], cause),
        limits=[*LIMITS, *_log_limits(reference, current, changes), *([] if alarm else _between(changes[0]))],
    )


def _log_limits(reference: RequestLog, current: RequestLog, changes: Sequence[DriftChange]) -> list[str]:
    """Return the limits that result from these two logs."""
    twice = [side for side in (reference, current) if side.repeated]
    return [
        *([NO_PARTS] if changes[0].mix.value is None else []),
        *(REPEATED.format(count=side.repeated, requests=len(side.table), source=side.source) for side in twice),
    ]


def _between(change: DriftChange) -> list[str]:
    """Explain intervals that exclude 0 although no chart alarms, which would otherwise look like a contradiction."""
    parts = {"the whole change": change.change, "the mix's part": change.mix, "the drafter's part": change.drafter}
    clear = [what for what, part in parts.items() if _clear(part)]
    return [BETWEEN.format(what=" and of ".join(clear))] if clear else []


def _validate(reference: RequestLog, current: RequestLog, options: DriftOptions) -> None:
    problems = []
    if reference.table.empty:
        problems.append(_no_acceptance(reference))
    elif len(reference.table) < REFERENCE_MIN:
        words = f"only {len(reference.table)} requests have their acceptance; {REFERENCE_MIN} are needed"
        problems.append(Problem(reference.source, words, "give a longer reference"))
    elif float(np.ptp(reference.log_lengths)) == 0:
        words = "every request has the same acceptance, so there is no spread"
        problems.append(Problem(reference.source, words, NO_DRAFTER))
    if current.table.empty:
        problems.append(_no_acceptance(current))
    elif options.window_seconds is not None and current.table["time"].isna().any():
        problems.append(Problem(current.source, "windows of seconds need the time of every request", "use --window N"))
    if problems:
        raise InvalidSpec(problems)


def _no_acceptance(side: RequestLog) -> Problem:
    words = f"no request has its acceptance (left out: {side.left_out})"
    return Problem(side.source, words, "give steps and accepted_tokens, with steps ≥ 1")


def _standardised(reference: Values, current: Values, tuning: ChartTuning) -> Values:
    spread = reference.std(ddof=1) / np.sqrt(tuning.group)
    return np.asarray((tuning.subgroups(current) - reference.mean()) / spread, dtype=np.float64)


def _chart(
    name: str, definition: str, statistics: Values, current: RequestLog, tuning: ChartTuning, *, limit: float
) -> DriftChart:
    """Return one chart over the current log. `statistics`: signed, shape (subgroups,)."""
    beyond = np.flatnonzero(np.abs(statistics) > limit)
    first = int(beyond[0]) if beyond.size else None
    last = None if first is None else (first + 1) * tuning.group
    return DriftChart(
        name=name,
        definition=definition,
        statistic=float(np.abs(statistics).max()) if statistics.size else 0.0,
        limit=limit,
        alarm_at=last,
        alarm_time=None if last is None else current.when(last - 1),
        direction=None if first is None else "lower" if statistics[first] < 0 else "higher",
    )


def _of_groups(tuning: ChartTuning) -> str:
    return f" of means of {tuning.group} consecutive requests" if tuning.group > 1 else ""


def _ewma(tuning: ChartTuning) -> str:
    return f"EWMA of log acceptance length{_of_groups(tuning)}, λ = {LAMBDA} per request, in its standard deviations"


def _cusum(tuning: ChartTuning) -> str:
    return f"Two-sided CUSUM of log acceptance length{_of_groups(tuning)}, tuned to a shift of {SHIFT} σ of a request"


def _side(requests: RequestLog) -> DriftSide:
    length = pooled_acceptance(requests.table, LENGTH)
    assert length is not None  # every request has a step
    return DriftSide(
        source=requests.source,
        requests=len(requests.table),
        left_out=requests.left_out,
        acceptance_length=length,
        acceptance_rate=pooled_acceptance(requests.table, RATE),
    )


def _cause(change: DriftChange) -> DriftCause:
    """Return the parts whose interval excludes 0."""
    mix, drafter = _clear(change.mix), _clear(change.drafter)
    if mix and drafter:
        return DriftCause.BOTH
    return DriftCause.MIX if mix else DriftCause.DRAFTER if drafter else DriftCause.UNKNOWN


def _clear(part: Figure) -> bool:
    return part.interval is not None and not part.interval.low <= 0 <= part.interval.high


def _headline(charts: list[DriftChart], change: DriftChange, cause: DriftCause) -> str:
    alarms = [f"{chart.name} at request {chart.alarm_at} ({chart.direction})" for chart in charts if chart.alarm_at]
    change_text = (
        f"acceptance length {_signed(change.change)}: mix {_signed(change.mix)}, drafter {_signed(change.drafter)}"
    )
    if not alarms:
        return f"no drift found; {change_text}"
    return f"drift: {', '.join(alarms)}; {change_text}; cause: {cause}"


def _signed(figure: Figure) -> str:
    bounds = figure.interval
    if figure.value is None:
        return "unknown"
    return f"{figure.value:+.3f}" + (f" [{bounds.low:+.3f}, {bounds.high:+.3f}]" if bounds else "")
