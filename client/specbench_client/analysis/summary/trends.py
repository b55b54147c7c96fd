"""How the figures of a cell change over the windows of a soak test, and where a running server restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import ArmOrder, Level
from specbench_client.analysis.statistics.fitted_line import fit_line
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import CounterDeltas, PointSummary, Trend
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.catalog import CACHED_SHARE
from specbench_client.metrics.steady_window import OUTPUT_TPS, OUTPUT_TPS_UNIT
from specbench_client.metrics.time_per_token import TPOT_MS_POOLED
from specbench_client.numpy_columns import Values
from specbench_client.trust.checks.comparison import divided_repeats, repeats_apart
from specbench_client.trust.checks.trends import is_decay
from specbench_client.trust.evidence import Spans


@dataclass(frozen=True)
class TrendFigure:
    """A figure that is followed over time: its name in results, its name and unit for people."""

    name: str
    label: str
    unit: str
    is_share: bool = False
    """Whether it changes by a difference; a share may begin at 0, of which nothing can be relative."""


ACCEPTANCE = TrendFigure(EMITTED_POOLED.name, "acceptance length", "tokens/step")
FAILURES = TrendFigure("failed_share", "failed requests", "ratio", is_share=True)
KV_CACHE = TrendFigure("kv_cache_usage", "KV cache in use", "ratio", is_share=True)
FIGURES = (
    ACCEPTANCE,
    TrendFigure(TPOT_MS_POOLED.name, "time per output token", TPOT_MS_POOLED.unit),
    TrendFigure(OUTPUT_TPS, "throughput", OUTPUT_TPS_UNIT),
    TrendFigure(CACHED_SHARE.name, "prompt tokens from the cache", CACHED_SHARE.unit, is_share=True),
    FAILURES,
    KV_CACHE,
)
RELATIVE_CHANGE = "slope × time from the first window to the last ÷ the fitted value in the first window; at least −1"
SHARE_CHANGE = "slope × time from the first window to the last: a difference of two shares"
LOOKS_FROM = 12
"""Fewest windows after which a soak test may end."""
LOOK_LEVEL = 0.996
"""Level of the interval that ends a soak test, which is looked at after every window: `benchmarks/intervals.md`."""
_S_PER_HOUR = 3600.0
_METHOD = "t averaged over AR(1) coefficients, weighted by restricted likelihood"


def trends_of(points: Sequence[PointSummary]) -> list[Trend]:
    """Return the trend of each figure that enough windows have. `points`: the windows of one arm, in any order."""
    windows = _Windows.of(points)
    found = [_trend(windows, figure) for figure in FIGURES]
    return [trend for trend in found if trend is not None]


def acceptance_trend(points: Sequence[PointSummary], level: float = LEVEL) -> Trend | None:
    """Return the trend of the acceptance length; `points` as of `trends_of`."""
    return _trend(_Windows.of(points), ACCEPTANCE, level)


def reduced_to_acceptance(point: PointSummary) -> PointSummary:
    """Return a window with what `acceptance_trend` needs: the whole summaries of a thousand windows have 76 MB."""
    acceptance = {name: figure for name, figure in point.figures.items() if name == ACCEPTANCE.name}
    return point.model_copy(update={"figures": acceptance, "findings": []})


def has_decayed(points: Sequence[PointSummary]) -> bool:
    """Return whether a soak test may end: its acceptance length has fallen, however often this is asked."""
    trend = acceptance_trend(points, LOOK_LEVEL) if len(points) >= LOOKS_FROM else None
    return trend is not None and is_decay(trend)


def windows_after_decay(plan: Plan, points: Sequence[PointSummary]) -> set[str]:
    """Return the points that a stop rule leaves out: the further windows of arms that have decayed."""
    if plan.stop != "WhenDecayed":
        return set()
    measured = {point.hash for point in points}
    decayed = {arm.name for arm in plan.arms if has_decayed([point for point in points if point.arm == arm.name])}
    return {point.hash for point in plan.points if point.arm in decayed} - measured


@dataclass(frozen=True)
class _Windows:
    """The windows of one arm in their order, and the process of the engine that served each of them."""

    points: Sequence[PointSummary]
    hours: Values
    """Time of each window's middle: they follow each other without a pause."""
    processes: NDArray[np.intp]
    """Number of the engine process of each window, from 0. A window in which the engine restarted has its own."""
    restarts: int

    @classmethod
    def of(cls, points: Sequence[PointSummary]) -> _Windows:
        """Return the windows of these points, which may be in any order."""
        ordered = sorted(points, key=lambda point: point.repeat)
        lengths_s = np.array([each.client_health.duration_s or 0.0 for each in ordered])
        processes, restarts = [0] * len(ordered), sum(_restarted_within(each) for each in ordered[:1])
        others = _are_other_processes(ordered)
        for index, (before, after) in enumerate(pairwise(ordered), start=1):
            is_new = _restarted_within(after) or others[index - 1]
            restarts += is_new
            processes[index] = processes[index - 1] + (is_new or _restarted_within(before))
        middles_h = (np.cumsum(lengths_s) - lengths_s / 2) / _S_PER_HOUR
        return cls(ordered, middles_h, np.array(processes, dtype=np.intp), restarts)

    def series(self, figure: TrendFigure) -> Values:
        """Return the figure of each window, shape (windows,); NaN where it is missing."""
        if figure is FAILURES:
            return np.array([each.counts.failed_requests / max(each.counts.requests, 1) for each in self.points])
        if figure is KV_CACHE:
            found = [each.kv_cache_usage for each in self.points]
        else:
            figures = (each.figures.get(figure.name) for each in self.points)
            found = [None if each is None else each.value for each in figures]
        return np.array([np.nan if each is None else each for each in found])


def _restarted_within(window: PointSummary) -> bool:
    return window.counters is not None and window.counters.restarted


def with_divided_rounds(plan: Plan, points: Sequence[PointSummary], spans: Spans) -> list[PointSummary]:
    """Return the points in their order, with a finding where something divides a round of interleaved arms.

    That is other repeats between the arms' points of its repeat: the run was continued after one server had failed.
    Of a server that keeps running it is also another process than before in the round. A restart between two rounds
    divides none.
    `points`: in the plan's order, which is that of measurement unless loads were added or points were lost.
    """
    ordered = sorted(points, key=lambda point: spans[point.hash]) if all(p.hash in spans for p in points) else points
    causes = dict[str, str]()
    for arm in plan.arms if plan.load.order is ArmOrder.INTERLEAVED and len(plan.arms) > 1 else ():
        if plan.alternates and plan.keeps_running:
            causes |= _restarts(plan, [point for point in ordered if point.arm == arm.name])
        if not arm.is_baseline:
            causes |= _out_of_turn(arm.name, ordered, spans)
    return [_with_division(point, causes[point.hash]) if point.hash in causes else point for point in points]


def _restarts(plan: Plan, ordered: Sequence[PointSummary]) -> dict[str, str]:
    """Return the points of an arm that another process served than earlier ones of their round, with this cause."""
    found, firsts = dict[str, str](), dict[tuple[str, Level, int], int]()
    for point, process in zip(ordered, accumulate(_are_other_processes(ordered), initial=0), strict=False):
        if process != firsts.setdefault((point.workload, point.level, plan.round_of(point.repeat)), process):
            found[point.hash] = f"the server restarted between {plan.round_in_words(point.repeat)}, which are one round"
    return found


def _out_of_turn(arm: str, points: Sequence[PointSummary], spans: Spans) -> dict[str, str]:
    """Return the points of an arm whose repeat others divide from the baseline's, with this cause."""
    at_place = dict[tuple[str, Level], list[PointSummary]]()
    for point in points:
        if point.arm in (arm, BASELINE_NAME) and point.hash in spans:
            at_place.setdefault((point.workload, point.level), []).append(point)
    found = dict[str, str]()
    for turns in at_place.values():
        divided = divided_repeats(turns, spans)
        for point in turns:
            if point.arm == arm and point.repeat in divided:
                cause = "others came between it and the baseline's"
                found[point.hash] = f"repeat {point.repeat + 1} was not measured in turns: {cause}"
    return found


def _with_division(point: PointSummary, cause: str) -> PointSummary:
    finding = Finding(
        check=repeats_apart.name,
        severity=Severity.WARNING,
        message=cause,
        arm=point.arm,
        workload=point.workload,
        load=point.level.label,
        point=point.hash,
    )
    return point.model_copy(update={"findings": [*point.findings, finding]})


def _are_other_processes(ordered: Sequence[PointSummary]) -> list[bool]:
    """Return whether another process served each point than the one before it, without the first point."""
    starts = [each.counters.process_started_s if each.counters else None for each in ordered]
    return [
        _is_other_process(before, after, starts[:index], starts[index:])
        for index, (before, after) in enumerate(pairwise(ordered), start=1)
    ]


def _is_other_process(
    before: PointSummary, after: PointSummary, old: Sequence[float | None], new: Sequence[float | None]
) -> bool:
    """Return whether another process of the engine served the later window.

    `old`, `new`: when the process of each window up to the earlier one, and from the later one on, started.

    A running server is not launched by specbench, and launches of the client do not restart it, so the start of its
    process decides where it is reported: one that is seen before and after others has not restarted, as several
    processes behind one address answer in turn. Where it is not, counters that fell between the windows show a restart.
    """
    if old[-1] is not None and new[0] is not None:
        return new[0] > old[-1] and new[0] not in old and old[-1] not in new
    return before.engine_launch != after.engine_launch or _counters_fell(before.counters, after.counters)


def _counters_fell(before: CounterDeltas | None, after: CounterDeltas | None) -> bool:
    """Return whether a counter was lower when the later window began than when the earlier one ended."""
    if before is None or after is None:
        return False
    readings = (
        (before.output_tokens_total, after.output_tokens_total, after.output_tokens),
        (before.prompt_tokens_total, after.prompt_tokens_total, after.prompt_tokens),
    )
    return any(
        ended is not None and total is not None and gained is not None and total - gained < ended
        for ended, total, gained in readings
    )


def _trend(windows: _Windows, figure: TrendFigure, level: float = LEVEL) -> Trend | None:
    values = windows.series(figure)
    line = fit_line(values, windows.hours, level, windows.processes)
    if line is None or not (figure.is_share or line.start > 0):
        return None
    scale = line.duration if figure.is_share else line.duration / line.start
    # No figure can lose more than all of it, though a line can fall below 0, or above 1 as a share.
    most = 1.0 if figure.is_share else np.inf
    change, low, high = (max(each * scale, -1.0) for each in (line.slope, line.bounds.low, line.bounds.high))
    return Trend(
        name=figure.name,
        start=min(max(line.start, 0.0), most),
        end=min(max(line.end, 0.0), most),
        change=Figure(
            value=change,
            unit="ratio",
            definition=SHARE_CHANGE if figure.is_share else RELATIVE_CHANGE,
            n=int(np.isfinite(values).sum()),
            interval=FigureInterval(low=low, high=high, level=level, method=_METHOD, freedom=line.freedom),
            source="both",
        ),
        hours=line.duration,
        restarts=windows.restarts,
    )
