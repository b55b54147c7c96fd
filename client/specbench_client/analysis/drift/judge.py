"""A current log beside a reference → what changed, since when, and of what it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.drift import DriftCause, DriftChange, DriftChart, DriftReport, DriftSide
from specbench_api.outcome.figure import Figure
from specbench_client.analysis.drift.calibrate import limits_for
from specbench_client.analysis.drift.charts import LAMBDA, SHIFT, Tuning, run_charts, tuning_for
from specbench_client.analysis.drift.decompose import decompose
from specbench_client.analysis.drift.ratios import LENGTH, RATE, pooled, windows
from specbench_client.analysis.drift.requests import Requests
from specbench_client.metrics.frame import Values

REFERENCE_MIN = 50
"""Fewer requests tell too little of their own spread."""
PER_LOG = 20.0
"""Default run length in lengths of the current log: a false alarm in one comparison of twenty."""
LIMITS = (
    "Limits hold for requests that are independent of one another: bursts of one user's alike requests alarm earlier.",
    "Mix is told by the categories that the log names: a change inside a category counts as the drafter's.",
    "An alarm says that acceptance changed, not that speculation stopped paying: docs/drift.md.",
)


NO_PARTS = (
    "Mix and drafter cannot be told apart: the logs have no category in common, or one names hardly any where the other"
    " names them."
)
NO_DRAFTER = "a log of a server that drafts: without a drafter every step accepts nothing"
BETWEEN = (
    "No chart passed its limit, though the interval of {what} leaves out 0. One log in twenty has such an interval by"
    " chance; a longer current log decides."
)
REPEATED = (
    "{count} of the {requests} requests of {source} are there twice, with the same time, prompt and counts: a log that"
    " was joined with itself looks so, and alarms too early."
)


@dataclass(frozen=True)
class Wanted:
    """How to look. `run_length`: requests between false alarms; None: 20 times the current log's length."""

    window: int = 200
    window_seconds: float | None = None
    run_length: float | None = None
    seed: int = 0


def judge_drift(reference: Requests, current: Requests, wanted: Wanted) -> DriftReport:
    """Chart, cut into windows and decompose. Raises InvalidSpec where a log is too short, or has no spread."""
    _refuse(reference, current, wanted)
    run_length = wanted.run_length or PER_LOG * len(current.table)
    tuning = tuning_for(len(current.table))
    limits = limits_for(reference.log_lengths, len(current.table), tuning, run_length, wanted.seed)
    told = run_charts(_standardised(reference.log_lengths, current.log_lengths, tuning), tuning)
    charts = [
        _chart(_Charted("EWMA", _ewma(tuning), told[0], limits.ewma), current, tuning),
        _chart(_Charted("CUSUM", _cusum(tuning), told[1], limits.cusum), current, tuning),
    ]
    pairs = [decompose(reference.table, current.table, metric, wanted.seed) for metric in (LENGTH, RATE)]
    changes = [change for change in pairs if change is not None]
    alarm = any(chart.alarm_at is not None for chart in charts)
    cause = _cause(changes[0]) if alarm else DriftCause.NONE
    return DriftReport(
        reference=_side(reference),
        current=_side(current),
        run_length=run_length,
        false_alarm=limits.false_alarm,
        charts=charts,
        windows=windows(current, wanted.window, wanted.window_seconds),
        changes=changes,
        alarm=alarm,
        cause=cause,
        verdict=_verdict(charts, changes[0], cause),
        limits=[*LIMITS, *_told_of(reference, current, changes), *([] if alarm else _between(changes[0]))],
    )


def _told_of(reference: Requests, current: Requests, changes: Sequence[DriftChange]) -> list[str]:
    """What these very logs do not allow to be said."""
    twice = [side for side in (reference, current) if side.repeated]
    return [
        *([NO_PARTS] if changes[0].mix.value is None else []),
        *(REPEATED.format(count=side.repeated, requests=len(side.table), source=side.source) for side in twice),
    ]


def _between(change: DriftChange) -> list[str]:
    """Where no chart alarms, which intervals leave out 0 all the same: a reader of both sees a contradiction."""
    parts = {"the whole change": change.change, "the mix's part": change.mix, "the drafter's part": change.drafter}
    clear = [what for what, part in parts.items() if _clear(part)]
    return [BETWEEN.format(what=" and of ".join(clear))] if clear else []


def _refuse(reference: Requests, current: Requests, wanted: Wanted) -> None:
    problems = []
    if reference.table.empty:
        problems.append(_silent(reference))
    elif len(reference.table) < REFERENCE_MIN:
        words = f"{len(reference.table)} requests tell their acceptance; {REFERENCE_MIN} are needed"
        problems.append(Problem(reference.source, words, "give a longer reference"))
    elif float(np.ptp(reference.log_lengths)) == 0:
        words = "every request has the same acceptance: there is no spread"
        problems.append(Problem(reference.source, words, NO_DRAFTER))
    if current.table.empty:
        problems.append(_silent(current))
    elif wanted.window_seconds is not None and current.table["time"].isna().any():
        problems.append(Problem(current.source, "windows of seconds need the time of every request", "--window N"))
    if problems:
        raise InvalidSpec(problems)


def _silent(side: Requests) -> Problem:
    words = f"no request tells its acceptance (left out: {side.left_out})"
    return Problem(side.source, words, "steps and accepted_tokens, with steps ≥ 1")


def _standardised(reference: Values, current: Values, tuning: Tuning) -> Values:
    spread = reference.std(ddof=1) / np.sqrt(tuning.group)
    return np.asarray((tuning.subgroups(current) - reference.mean()) / spread, dtype=np.float64)


@dataclass(frozen=True)
class _Charted:
    name: str
    definition: str
    told: Values
    limit: float


def _chart(charted: _Charted, current: Requests, tuning: Tuning) -> DriftChart:
    told, limit = charted.told, charted.limit
    beyond = np.flatnonzero(np.abs(told) > limit)
    place = int(beyond[0]) if beyond.size else None
    last = None if place is None else (place + 1) * tuning.group
    return DriftChart(
        name=charted.name,
        definition=charted.definition,
        statistic=float(np.abs(told).max()) if told.size else 0.0,
        limit=limit,
        alarm_at=last,
        alarm_time=None if last is None else current.when(last - 1),
        direction=None if place is None else "lower" if told[place] < 0 else "higher",
    )


def _of_groups(tuning: Tuning) -> str:
    return f" of means of {tuning.group} consecutive requests" if tuning.group > 1 else ""


def _ewma(tuning: Tuning) -> str:
    return f"EWMA of log acceptance length{_of_groups(tuning)}, λ = {LAMBDA} a request, in its own standard deviations"


def _cusum(tuning: Tuning) -> str:
    return f"Two-sided CUSUM of log acceptance length{_of_groups(tuning)}, tuned to a shift of {SHIFT} σ of a request"


def _side(requests: Requests) -> DriftSide:
    length = pooled(requests.table, LENGTH)
    assert length is not None  # every request has a step
    return DriftSide(
        source=requests.source,
        requests=len(requests.table),
        left_out=requests.left_out,
        acceptance_length=length,
        acceptance_rate=pooled(requests.table, RATE),
    )


def _cause(change: DriftChange) -> DriftCause:
    """By the parts whose interval leaves out 0."""
    mix, drafter = _clear(change.mix), _clear(change.drafter)
    if mix and drafter:
        return DriftCause.BOTH
    return DriftCause.MIX if mix else DriftCause.DRAFTER if drafter else DriftCause.UNKNOWN


def _clear(part: Figure) -> bool:
    return part.interval is not None and not part.interval.low <= 0 <= part.interval.high


def _verdict(charts: list[DriftChart], change: DriftChange, cause: DriftCause) -> str:
    alarms = [f"{chart.name} at request {chart.alarm_at} ({chart.direction})" for chart in charts if chart.alarm_at]
    said = f"acceptance length {_signed(change.change)}: mix {_signed(change.mix)}, drafter {_signed(change.drafter)}"
    if not alarms:
        return f"no drift found; {said}"
    return f"drift: {', '.join(alarms)}; {said}; cause: {cause}"


def _signed(figure: Figure) -> str:
    bounds = figure.interval
    if figure.value is None:
        return "not told"
    return f"{figure.value:+.3f}" + (f" [{bounds.low:+.3f}, {bounds.high:+.3f}]" if bounds else "")
