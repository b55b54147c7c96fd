"""One figure on both sides of a comparison: its value before and after over common requests, and the log ratio.

There may be millions of rows, which are read piece by piece: a row has a number of 4 bytes for its request and another
for its repeat and prompt, and a percentile holds its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from specbench_client.analysis.compare.shared_requests import (
    ComparedArm,
    NumberedRows,
    RequestParts,
    SharedRows,
    shared_rows,
)
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import (
    BLOCK_VALUES,
    ChosenInterval,
    ResamplingLayout,
    draw_counts,
    draw_resamples,
    expanded_percentiles,
)
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.analysis.statistics.effects import Effect, combined_distances, figure_effect, log_of_product
from specbench_client.analysis.statistics.intervals import with_prompts
from specbench_client.analysis.statistics.level import LEVEL, Z, t_quantile
from specbench_client.analysis.statistics.row_layout import RowLayout
from specbench_client.documents.figure import Figure
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE, too_few_requests
from specbench_client.metrics import steady_window, time_per_token
from specbench_client.metrics.metric_types import RatioMetric, RequestMetric
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER, piecewise
from specbench_client.numpy_columns import Values


def draw_sides(
    layout: ResamplingLayout, repeats: tuple[int, int], seed: int, resamples: int | None = None
) -> Iterator[tuple[Values, Values, Values]]:
    """Yield blocks of draws of repeats before, of repeats after, and of prompts, which both sides share.

    Each block has the shapes (resamples, repeats), (resamples, repeats) and (resamples, prompts). `resamples` is
    RESAMPLES by default.
    """
    generators = [np.random.default_rng((seed, side)) for side in (1, 2)]
    for _, prompts in draw_resamples(layout.stratum_of, layout.repeats, seed, resamples or bootstrap.RESAMPLES):
        size = len(prompts)
        before, after = (draw_counts(rng, many, size) for rng, many in zip(generators, repeats, strict=True))
        yield before.astype(np.float64), after.astype(np.float64), prompts.astype(np.float64)


IN_COMMON = "over the requests that both results answered in the steady state"
PERCENTILE_RESAMPLES = 1000
PERCENTILE_RESAMPLES_MIN = 200
BEYOND_MIN = 5
"""With fewer requests beyond it, a percentile is nearly the extreme value, and resampling gives no valid interval."""
AT_ONCE_VALUES = 1_000_000
"""Weights of resampled requests in memory at a time."""
ROUNDING = 1e-9
"""Relative tolerance for rounding in sums of weights such as 1/3."""


@dataclass(frozen=True)
class FigureOnBothSides:
    """A figure on both sides. `effect`: after / before."""

    before: float
    after: float
    effect: Effect
    repeats: tuple[int, int]


FigureComparer = Callable[[ComparedArm, int], FigureOnBothSides | None]
"""Called with both sides and a seed; returns the figure on both sides, or None if it is not available."""


OF_SUMMARIES = (
    "from the intervals of two summaries, as if independent: without their records, prompts that both results share"
    " are not paired, and the interval is wider than necessary"
)
NORMAL_FREEDOM = 1e6
"""Degrees of freedom at which Student's t is practically the normal distribution."""


def compare_summaries(
    before: Figure | None, after: Figure | None, repeats: tuple[int, int]
) -> FigureOnBothSides | None:
    """Compare two figures by their intervals; too few repeats give no interval, as with records.

    The intervals were computed with some t quantile; dividing by the normal quantile makes the errors too large, never
    too small.
    """
    if not before or not after or not before.value or not after.value:
        return None
    old, new = figure_effect(before, repeats[0]), figure_effect(after, repeats[1])
    if old is None or new is None:
        return None
    effect = Effect(new.value - old.value, min(before.n, after.n), min(repeats))
    below, above = (each / Z for each in combined_distances(new, old))
    at_level = all(figure.interval is None or figure.interval.level == LEVEL for figure in (before, after))
    usable = at_level and math.isfinite(below) and math.isfinite(above)
    if effect.repeats >= MIN_REPEATS_TO_COMPARE and usable:
        effect = effect.with_errors(below, above, NORMAL_FREEDOM, OF_SUMMARIES)
    return FigureOnBothSides(before.value, after.value, effect, repeats)


def ratio(of: RatioMetric) -> FigureComparer:
    """Return the comparer of a ratio of sums over requests."""
    return lambda both, seed: _of_sums(both.by_request, of.parts, (1, -1), seed)


def speedup(both: ComparedArm, seed: int) -> FigureOnBothSides | None:
    """Compare the speed-ups over the baseline of each run, see `analysis.estimates.speedups`."""
    sides = both.by_pair
    return None if sides is None else _of_sums(sides, _speedup_parts, (1, -1, -1, 1), seed)


def percentile(of: RequestMetric, percent: int) -> FigureComparer:
    """Return the comparer of a percentile over requests; with too few requests beyond it, there is no interval."""
    return lambda both, seed: _of_percentile(both, of.values, percent, seed)


def output_tps(both: ComparedArm, _seed: int) -> FigureOnBothSides | None:
    """Compare the throughput of the steady windows; its unit is the repeat, because it does not belong to prompts."""
    sides = [steady_window.window_throughput(side.rows) for side in (both.before, both.after)]
    if not all(tokens.sum() > 0 and seconds.size for tokens, seconds in sides):
        return None
    values = [float(tokens.sum() / seconds.sum()) for tokens, seconds in sides]
    with np.errstate(divide="ignore"):
        repeats = [np.log(tokens / seconds) for tokens, seconds in sides]
    sizes = (repeats[0].size, repeats[1].size)
    effect = Effect(float(np.log(values[1] / values[0])), min(sizes), min(sizes))
    return FigureOnBothSides(values[0], values[1], over_repeats(effect, repeats[0], repeats[1]), sizes)


def _speedup_parts(pairs: Pairs) -> list[Values]:
    return [part for rows in (pairs.arm, pairs.baseline) for part in time_per_token.STREAM_TPS.parts(rows)]


def _of_sums(
    sides: tuple[NumberedRows, NumberedRows], of: RequestParts, signs: tuple[int, ...], seed: int
) -> FigureOnBothSides | None:
    """Compare a product of the parts' sums, each to the power of its sign."""
    shared = shared_rows(sides, of)
    if shared is None:
        return None
    (layout, before), (other, after) = (side.sums(of, len(signs)) for side in shared)
    logs = [log_of_product(np.array([matrix.sum() for matrix in side]), signs) for side in (before, after)]
    if not np.isfinite(logs).all():
        return None
    repeats = layout.repeats, other.repeats
    effect = Effect(float(logs[1] - logs[0]), layout.prompts, min(repeats))
    of_repeats = [
        log_of_product(np.stack([matrix.sum(axis=1) for matrix in side], axis=1), signs) for side in (before, after)
    ]
    if (layout.anytime or other.anytime) and np.isfinite(np.concatenate(of_repeats)).all():
        whole = [[matrix.sum(axis=0, keepdims=True) for matrix in side] for side in (before, after)]
        prompts = expanded_percentiles(effect.value, _log_samples(whole, signs, layout, (1, 1), seed), layout)
        runs = of_stopped_runs(effect, (of_repeats[0], of_repeats[1]), (layout.turns, other.turns))
        widened = with_prompts(runs.chosen, runs.value, [before[0], after[0]], prompts, effect.value)
        logs, effect = [each.mean() for each in of_repeats], replace(runs, chosen=widened)
    else:
        samples = _log_samples([before, after], signs, layout, repeats, seed)
        effect = _with_interval(effect, layout, repeats, samples, (of_repeats[0], of_repeats[1]))
    return FigureOnBothSides(float(np.exp(logs[0])), float(np.exp(logs[1])), effect, repeats)


@dataclass(frozen=True)
class SortedValues:
    """The values of one side, ascending, each with its weight, and the repeat and prompt of its request."""

    ordered: Values
    weights: Values
    layout: RowLayout

    @classmethod
    def of(cls, shared: SharedRows, values: Values) -> SortedValues:
        """Sort the values of the shared rows; `values` are those of all rows, shape (rows,)."""
        layout = shared.of.layout.of_rows(shared.mask)
        kept, weights = values[shared.mask], shared.weights(shared.mask)
        order = np.argsort(kept, kind="stable").astype(np.int32)
        return cls(kept[order], weights[order], replace(layout, cell_of=layout.cell_of[order]))

    def percentile(self, percent: int, repeat: int | None = None) -> float:
        """Return the interpolated weighted percentile; equal to numpy's if all weights are equal."""
        values, weights = self.ordered, self.weights
        if repeat is not None:
            mine = self.layout.cell_of // np.int32(self.layout.prompts) == repeat
            values, weights = values[mine], weights[mine]
        below = np.cumsum(weights)
        below -= weights
        return float(np.interp(below[-1] * percent / 100, below, values))

    def percentiles(self, repeats: Values, prompts: Values, percent: int) -> Values:
        """Return the weighted percentile of each resample, shape (resamples,); NaN if nothing was drawn.

        It is the smallest value up to which there is enough weight, which is how often the request's repeat and prompt
        were drawn. `repeats` and `prompts` are these counts, shape (resamples, repeats) and (resamples, prompts).
        """
        drawn = (repeats[:, :, np.newaxis] * prompts[:, np.newaxis, :]).reshape(len(prompts), -1)
        pieces = [slice(start, start + NUMBERS_TOGETHER) for start in range(0, self.ordered.size, NUMBERS_TOGETHER)]
        sums = np.cumsum([self._weights(drawn, some).sum(axis=1) for some in pieces], axis=0)
        target = sums[-1] * (percent / 100) * (1 - ROUNDING)
        reached = np.argmax(sums >= target, axis=0)
        found = np.full(len(prompts), np.nan)
        for piece in np.unique(reached):
            mine = reached == piece
            before = sums[piece - 1][mine] if piece else np.zeros(int(mine.sum()))
            weights = before[:, np.newaxis] + np.cumsum(self._weights(drawn[mine], pieces[piece]), axis=1)
            places = (weights < target[mine, np.newaxis]).sum(axis=1) + pieces[piece].start
            found[mine] = self.ordered[np.minimum(places, self.ordered.size - 1)]
        return np.where(sums[-1] > 0, found, np.nan)

    def _weights(self, drawn: Values, some: slice) -> Values:
        return drawn[:, self.layout.cell_of[some]] * self.weights[some]


def _of_percentile(
    both: ComparedArm, of: Callable[[Table], Values], percent: int, seed: int
) -> FigureOnBothSides | None:
    shared = shared_rows(both.by_request, lambda rows: [of(rows)])
    if shared is None:
        return None
    before, after = (
        SortedValues.of(each, piecewise(side.rows, of))
        for each, side in zip(shared, (both.before, both.after), strict=True)
    )
    values = [side.percentile(percent) for side in (before, after)]
    smallest, largest = (pick(side.ordered.size for side in (before, after)) for pick in (min, max))
    if min(values) <= 0 or too_few_requests(percent, smallest):
        return None
    layout, repeats = before.layout, (before.layout.repeats, after.layout.repeats)
    effect = Effect(float(np.log(values[1] / values[0])), layout.prompts, min(repeats))
    if smallest * min(percent, 100 - percent) / 100 >= BEYOND_MIN:
        resamples = max(PERCENTILE_RESAMPLES_MIN, min(PERCENTILE_RESAMPLES, BLOCK_VALUES // largest))
        samples = _percentile_samples(before, after, percent, seed, resamples)
        logs = [
            np.log([side.percentile(percent, repeat) for repeat in range(many)])
            for side, many in zip((before, after), repeats, strict=True)
        ]
        effect = _with_interval(effect, layout, repeats, samples, (logs[0], logs[1]))
    return FigureOnBothSides(values[0], values[1], effect, repeats)


def _percentile_samples(before: SortedValues, after: SortedValues, percent: int, seed: int, resamples: int) -> Values:
    """Log ratios, shape (resamples,)."""
    at_once = max(1, AT_ONCE_VALUES // min(max(before.ordered.size, after.ordered.size), NUMBERS_TOGETHER))
    found = []
    for drawn in draw_sides(before.layout, (before.layout.repeats, after.layout.repeats), seed, resamples):
        for start in range(0, len(drawn[2]), at_once):
            first, second, prompts = (each[start : start + at_once] for each in drawn)
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = [
                    np.log(side.percentiles(each, prompts, percent))
                    for side, each in ((before, first), (after, second))
                ]
            found.append(logs[1] - logs[0])
    return np.concatenate(found)


def _log_samples(
    sides: Sequence[list[Values]], signs: tuple[int, ...], layout: ResamplingLayout, repeats: tuple[int, int], seed: int
) -> Values:
    """Return the log ratio in each resample, shape (resamples,). `sides`: the parts' sums, before and after."""
    before, after = sides
    return np.concatenate(
        [
            log_of_product(_sums(after, drawn[1], drawn[2]), signs)
            - log_of_product(_sums(before, drawn[0], drawn[2]), signs)
            for drawn in draw_sides(layout, repeats, seed)
        ]
    )


def _sums(matrices: list[Values], repeats: Values, prompts: Values) -> Values:
    return np.stack([((repeats @ matrix) * prompts).sum(axis=1) for matrix in matrices], axis=1)


# The interval of a change between two results. Two standard errors are computed and the larger one is used, as for the
# speed-up of one run:
#
# - over prompts: the bootstrap, with a common draw of prompts, because both results have the same ones, and a separate
#   draw of repeats for each side, because their repeats are unrelated;
# - over repeats: Welch's, sqrt(s1² / n1 + s2² / n2) of the repeats' own logs, with Welch-Satterthwaite's degrees of
#   freedom. It includes the variation between whole runs, which prompts alone understate.
#
# If a run stops when its speed-up is decided, neither is valid for its speed-up: the confidence sequences of both sides
# are combined instead, and the variation of prompts is added if the repeats of a side share them.

REPEATS_MOST = 100
"""Maximum number of repeats to recommend."""


def _with_interval(
    effect: Effect,
    layout: ResamplingLayout,
    repeats: tuple[int, int],
    samples: Values,
    of_repeats: tuple[Values, Values],
) -> Effect:
    """Return the effect with the wider interval; none without the prompts' one: repeats do not generalise to others."""
    within = " within categories" if layout.stratified else ""
    method = (
        f"bootstrap, unit: prompt; {samples.size} resamples of {repeats[0]} repeats before,"
        f" {repeats[1]} after, and {layout.prompts} prompts{within} that both results share"
    )
    bounds = expanded_percentiles(effect.value, samples, layout)
    if bounds is None:
        return effect
    prompts = replace(effect, chosen=ChosenInterval(bounds, method, layout.prompts - layout.strata))
    whole = over_repeats(effect, *of_repeats)
    return whole if whole.chosen is not None and sum(whole.distances) > sum(prompts.distances) else prompts


def over_repeats(effect: Effect, before: Values, after: Values) -> Effect:
    """Return the effect with Welch's interval from the repeats' own logs; none if a side has fewer than two values."""
    if min(before.size, after.size) < 2 or not np.isfinite([*before, *after]).all():
        return effect
    variances = (float(before.var(ddof=1)), float(after.var(ddof=1)))
    parts = (variances[0] / before.size, variances[1] / after.size)
    error = float(np.sqrt(sum(parts)))
    method = f"Welch's t, unit: repeat; {before.size} repeats before and {after.size} after"
    found = effect.with_errors(error, error, _freedom(parts, (before.size, after.size)), method)
    return replace(found, run_variance=sum(variances))


def of_stopped_runs(effect: Effect, sides: tuple[Values, Values], turns: tuple[Values | None, Values | None]) -> Effect:
    """Return the mean effect of the repeats, with an interval from their logs; a side stopped when it was decided.

    The interval at `LEVEL` is MOVER (`analysis.statistics.effects`) from two confidence sequences; other levels scale
    it by Student's t. There is none as long as a sequence is unbounded. `turns`: `ResamplingLayout.turns` of each side.
    """
    effect = replace(effect, value=float(sides[1].mean() - sides[0].mean()))
    before, after = (confidence_sequence(each, order) for each, order in zip(sides, turns, strict=True))
    if before is None or after is None:
        return effect
    widths = [each.bounds.high - each.bounds.low for each in (before, after)]
    freedom = before.freedom + after.freedom
    error = math.hypot(*widths) / 2 / t_quantile(freedom)
    counts = f"{sides[0].size} repeats before and {sides[1].size} after"
    method = f"MOVER from two anytime-valid confidence sequences (mixture t), unit: repeat; {counts}"
    return effect.with_errors(error, error, freedom, method)


def repeats_to_decide(effect: Effect, limit: float, confidence: float) -> int | None:
    """Return about how many repeats on each side would separate the value from the limit, at the same estimates.

    It is the smallest n for which t(2n − 2) × sqrt((s1² + s2²) / n) is less than the distance. None if prompts and
    not repeats dominate the uncertainty, or if more than `REPEATS_MOST` would be needed.
    """
    if effect.run_variance is None:
        return None
    counts = np.arange(2, REPEATS_MOST + 1)
    reach = scipy.special.stdtrit(2 * counts - 2, confidence) * np.sqrt(effect.run_variance / counts)
    found = counts[reach < abs(effect.value - limit)]
    return int(found[0]) if found.size else None


def _freedom(parts: tuple[float, float], sizes: tuple[int, int]) -> float:
    """Welch-Satterthwaite's degrees of freedom; n1 + n2 − 2 if neither side has any variation."""
    if sum(parts) <= 0:
        return float(sum(sizes) - 2)
    under = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return float(sum(parts) ** 2 / under)
