"""Compares a current log with a reference: control charts, windows, and the decomposition of the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.analysis.drift.control_charts import (
    LAMBDA,
    PER_LOG,
    SHIFT,
    ChartTuning,
    calibrate_limits,
    run_charts,
    tuning_for,
)
from specbench_client.analysis.drift.request_log import (
    LENGTH,
    RATE,
    PooledMetric,
    RequestLog,
    acceptance_windows,
    logged_acceptance,
    requests_with,
)
from specbench_client.analysis.statistics.bootstrap import PROMPTS_MIN, draw_counts
from specbench_client.analysis.statistics.intervals import percentile_interval
from specbench_client.documents.drift import CategoryChange, DriftCause, DriftChange, DriftChart, DriftReport, DriftSide
from specbench_client.documents.figure import Figure
from specbench_client.numpy_columns import Values

REFERENCE_MIN = 50
"""Fewest requests of a reference: the spread of fewer is too uncertain."""
LIMITS = (
    "Limits hold for independent requests: bursts of similar requests of one user alarm earlier.",
    "Mix is measured by the categories in the log: a change inside a category counts as the drafter's.",
    "An alarm means that acceptance changed, not that speculation stopped paying.",
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
    what = "log acceptance length"
    what += f" of means of {tuning.group} consecutive requests" if tuning.group > 1 else ""
    of_ewma = f"EWMA of {what}, λ = {LAMBDA} per request, in its standard deviations"
    of_cusum = f"Two-sided CUSUM of {what}, tuned to a shift of {SHIFT} σ of a request"
    charts = [
        _chart("EWMA", of_ewma, ewma, current, tuning, limit=limits.ewma),
        _chart("CUSUM", of_cusum, cusum, current, tuning, limit=limits.cusum),
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


def _side(requests: RequestLog) -> DriftSide:
    acceptance = logged_acceptance(requests.table)
    return DriftSide(**dict(acceptance), source=requests.source, left_out=requests.left_out)


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


# Decomposes a change of a pooled metric into a change of the category mix and changes within categories (drafter).
#
# Kitagawa 1955 ("Components of a difference between two rates"): with shares w and values r of categories c,
#
#     Σ w₁r₁ − Σ w₀r₀ = Σ (w₁ − w₀)(r₀ + r₁)/2 + Σ (r₁ − r₀)(w₀ + w₁)/2
#
# exactly, without a remainder. A category on one side only has no value on the other: its value is taken as
# unchanged, so that its appearance or disappearance is all mix. If the two sides have no category in common, or one
# of them leaves more than a small share unnamed, every change would count as mix, so the parts are not reported.
#
# Intervals: clusters (prompts, or single requests without a prompt) are drawn with replacement on each side. Many
# clusters are first combined into random groups, which does not change the variance of sums.


RESAMPLES_OF_CHANGE = 1000
GROUPS_MOST = 1000
UNNAMED_MOST = 0.05
"""Largest share of the weight without a category, on one side only, for which the parts are reported."""
_MIX = "Mix: Σ over categories of (share now − share then) × mean of the metric then and now"
_DRAFTER = "Drafter: Σ over categories of (metric now − metric then) × mean of the shares then and now"


@dataclass(frozen=True)
class ChangeParts:
    """Shares, values (NaN where a side has none) and both parts by category.

    Arrays have shape (categories,) or (categories, resamples); pairs are (then, now).
    """

    shares: tuple[Values, Values]
    levels: tuple[Values, Values]
    mix: Values
    drafter: Values


def change_parts(then: tuple[Values, Values], now: tuple[Values, Values], constant: float) -> ChangeParts:
    """Compute the parts.

    `then`, `now`: sums of accepted tokens and of the weight, shape (categories,) or (categories, resamples).
    """
    shares, values = [], []
    for over, under in (then, now):
        shares.append(under / under.sum(axis=0))
        values.append(constant + np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0))
    old, new = (np.where(np.isnan(mine), other, mine) for mine, other in (values, values[::-1]))
    old, new = np.nan_to_num(old), np.nan_to_num(new)  # a resample may lack a category on both sides
    mix = (shares[1] - shares[0]) * (old + new) / 2
    drafter = (new - old) * (shares[0] + shares[1]) / 2
    return ChangeParts((shares[0], shares[1]), (values[0], values[1]), mix, drafter)


def decompose_change(then: pd.DataFrame, now: pd.DataFrame, metric: PooledMetric, seed: int) -> DriftChange | None:
    """Decompose the change between two `RequestLog` tables; None if a side has no request with the metric's weight."""
    sides = [requests_with(table, metric) for table in (then, now)]
    if any(side.empty for side in sides):
        return None
    names = sorted({name for side in sides for name in _present(side)}, key=lambda name: (name is None, name or ""))
    grouped = [_grouped(side, names, metric, seed) for side in sides]
    sums = [(over.sum(axis=1), under.sum(axis=1)) for over, under in grouped]
    whole = change_parts(sums[0], sums[1], metric.constant)
    rng = np.random.default_rng(seed)
    resampled = change_parts(_resampled(grouped[0], rng), _resampled(grouped[1], rng), metric.constant)
    n = min(over.shape[1] for over, _ in grouped)
    mix, drafter = float(whole.mix.sum()), float(whole.drafter.sum())
    samples = resampled.mix.sum(axis=0) + resampled.drafter.sum(axis=0)
    change = _figure(mix + drafter, samples, f"Change now − then of: {metric.definition}", metric, n)
    if not _separable(names, whole):
        return DriftChange(
            metric=metric.name,
            weight=metric.weight,
            change=change,
            mix=Figure(unit=metric.unit, definition=_MIX, n=0, source="engine"),
            drafter=Figure(unit=metric.unit, definition=_DRAFTER, n=0, source="engine"),
            categories=[],
        )
    return DriftChange(
        metric=metric.name,
        weight=metric.weight,
        change=change,
        mix=_figure(mix, resampled.mix.sum(axis=0), _MIX, metric, n),
        drafter=_figure(drafter, resampled.drafter.sum(axis=0), _DRAFTER, metric, n),
        categories=[_category(name, index, whole) for index, name in enumerate(names)],
    )


def _separable(names: list[str | None], parts: ChangeParts) -> bool:
    """Return whether the categories allow to separate mix and drafter."""
    then, now = parts.shares
    both = (then > 0) & (now > 0)
    unnamed = np.array([name is None for name in names])
    alone = max(float(side[unnamed & ~both].sum()) for side in (then, now))
    return bool(both.any()) and alone <= UNNAMED_MOST


def _grouped(table: pd.DataFrame, names: list[str | None], metric: PooledMetric, seed: int) -> tuple[Values, Values]:
    """Return the sums of accepted tokens and of the weight, shape (categories, groups of clusters) each."""
    clusters = pd.factorize(table["prompt_id"])[0]
    count = int(clusters.max()) + 1
    order = np.random.default_rng(seed).permutation(count) % min(count, GROUPS_MOST)
    category, number_of = table["category"].cat, {name: number for number, name in enumerate(names)}
    numbers = np.array([number_of.get(name, -1) for name in (*category.categories, None)])
    rows = numbers[category.codes], order[clusters]
    sums = []
    for column in ("accepted_tokens", metric.weight):
        found = np.zeros((len(names), min(count, GROUPS_MOST)))
        np.add.at(found, rows, table[column].to_numpy(float))
        sums.append(found)
    return sums[0], sums[1]


def _present(table: pd.DataFrame) -> list[str | None]:
    """Return the different categories of the requests."""
    category = table["category"].cat
    return [None if code < 0 else category.categories[code] for code in np.unique(category.codes)]


def _resampled(side: tuple[Values, Values], rng: np.random.Generator) -> tuple[Values, Values]:
    times = draw_counts(rng, side[0].shape[1], RESAMPLES_OF_CHANGE).T.astype(np.float64)
    return side[0] @ times, side[1] @ times


def _figure(value: float, samples: Values, definition: str, metric: PooledMetric, n: int) -> Figure:
    interval = None
    if n >= PROMPTS_MIN:
        method = f"bootstrap percentiles, unit: cluster; {RESAMPLES_OF_CHANGE} resamples of each side"
        interval = percentile_interval(samples, method)
    return Figure(value=value, unit=metric.unit, definition=definition, n=n, interval=interval, source="engine")


def _category(name: str | None, index: int, parts: ChangeParts) -> CategoryChange:
    old, new = (float(values[index]) for values in parts.levels)
    return CategoryChange(
        category=name,
        reference_share=float(parts.shares[0][index]),
        current_share=float(parts.shares[1][index]),
        reference=None if np.isnan(old) else old,
        current=None if np.isnan(new) else new,
        mix=float(parts.mix[index]),
        drafter=float(parts.drafter[index]),
    )
