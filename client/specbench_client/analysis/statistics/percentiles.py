"""Intervals of percentiles, by inverting the interval of a share.

The p-th percentile is the value below which a share p of the values is found. So the interval is computed for that
share, as for any other ratio (`analysis.statistics.intervals`), and its two ends are looked up among the values
(Woodruff 1952, "Confidence Intervals for Medians and Other Position Measures"). Resampling the values instead, as is
common, cannot reach beyond the largest of them: with 20 prompts, its 95 % intervals of a 95th percentile cover the true
value in three of four experiments.

A share near 0 or 1 is not normally distributed. Its uncertainty is expressed as that of an effective number of
independent requests, n* = p (1 − p) (z / half-width)² (Korn and Graubard 1998, "Confidence Intervals for Proportions
with Small Expected Number of Positive Counts"), and its bounds are Jeffreys' for n*. Requests of one prompt are hardly
independent, so n* is near the number of prompts if prompts differ much, and near the number of requests if they do not.

Beyond the 90th percentile, or below the 10th, there are few values, and it matters which of them is the bound: of 80
values, a 95th percentile is beyond the second largest in 8.6 % of cases, and beyond the largest in 1.7 %. Bounds of the
estimated share miss that. So there the test is inverted: the value of rank k among n* is below the percentile with
probability I_p(k, n* + 1 − k), and the bounds are the fractional ranks with probability 97.5 % and 2.5 % (Hutson 1999,
"Calculating Nonparametric Confidence Intervals for Quantiles Using Fractional Order Statistics").

If all prompts are below the percentile with a probability of more than 2.5 % (p to the power of their number), there is
no upper bound among the values, and no interval is given: a median needs 6 prompts, a 95th percentile 72, a 99th 368.
Their number decides and not n*, which is an estimate: intervals given only when n* happens to be large would be those
that are too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from specbench_client.analysis.statistics.bootstrap import ChosenInterval, IntervalBounds
from specbench_client.analysis.statistics.intervals import (
    ratio_influence,
    resample_sums,
    share_interval,
)
from specbench_client.analysis.statistics.level import TAIL, Z
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER
from specbench_client.numpy_columns import Values

RANKED_TAIL = 10
"""Percent on the smaller side up to which ranks are used, because few values are there and single ones matter."""


def percentile_intervals(
    values: Values, layout: RowLayout, percents: Sequence[int], seed: int
) -> list[ChosenInterval | None]:
    """Return an interval for each percentile of the values, shape (rows,), or None if there are too few prompts.

    All percentiles use common draws.
    """
    found = percentiles_of(values, percents)
    below = CellSums(layout, len(percents) + 1)
    for start in range(0, values.size, NUMBERS_TOGETHER):
        some = values[start : start + NUMBERS_TOGETHER]
        below.add([*((some <= each).astype(np.float64) for each in found), np.ones_like(some)])
    matrices = below.matrices
    sums = resample_sums(matrices, layout, seed)
    intervals: list[ChosenInterval | None] = []
    for index, percent in enumerate(percents):
        share = float(matrices[index].sum() / values.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = sums[:, index] / sums[:, -1]
        chosen = share_interval(share, samples, ratio_influence(matrices[index], matrices[-1]), layout)
        enough = layout.prompts >= prompts_needed(percent / 100)
        intervals.append(_looked_up(values, percent, chosen) if chosen and enough else None)
    return intervals


def percentiles_of(values: Values, percents: Sequence[float]) -> list[float]:
    """Return percentiles of the values, shape (rows,), by linear interpolation; one copy of them is in memory."""
    return [float(each) for each in np.percentile(values.copy(), list(percents), overwrite_input=True)]


def effective(share: float, chosen: ChosenInterval, requests: int) -> float:
    """Return the number of independent requests whose share would be as uncertain; at most the number of requests."""
    half = (chosen.bounds.high - chosen.bounds.low) / 2
    return float(requests) if half <= 0 else min(float(requests), share * (1 - share) * (Z / half) ** 2)


def prompts_needed(share: float) -> int:
    """Return the number of prompts at which all are on one side of this percentile with at most 2.5 % probability."""
    return int(np.ceil(np.log(TAIL) / np.log(max(share, 1 - share))))


def ranks(share: float, independent: float) -> IntervalBounds:
    """Return the fractional ranks, from 1, among this many independent values that bound the percentile."""

    def beyond(rank: float, chance: float) -> float:
        return float(scipy.special.betainc(rank, independent + 1 - rank, share)) - chance

    low, high = 1e-6, independent + 1 - 1e-6
    return IntervalBounds(
        scipy.optimize.brentq(beyond, low, high, args=(1 - TAIL,)),
        scipy.optimize.brentq(beyond, low, high, args=(TAIL,)),
    )


def jeffreys(share: float, independent: float) -> IntervalBounds:
    """Return Jeffreys' bounds of a share among this many independent requests."""
    below, above = share * independent + 0.5, (1 - share) * independent + 0.5
    low, high = (float(scipy.special.betaincinv(below, above, tail)) for tail in (TAIL, 1 - TAIL))
    return IntervalBounds(low, high)


def _looked_up(values: Values, percent: int, chosen: ChosenInterval) -> ChosenInterval:
    """Convert the interval of the share below to positions among the sorted values, from 0 to 1, and look them up."""
    share = percent / 100
    independent = effective(share, chosen, values.size)
    if min(percent, 100 - percent) <= RANKED_TAIL:
        found = ranks(share, independent)
        each = [(rank - 0.5) * values.size / independent - 0.5 for rank in (found.low, found.high)]
        positions = np.clip(np.array(each) / (values.size - 1), 0.0, 1.0)
    else:
        bounds = jeffreys(share, independent)
        positions = np.array([bounds.low, bounds.high])
    low, high = percentiles_of(values, list(100 * positions))
    inverted = "interval of the share of values below it, mapped to percentiles (Woodruff; Korn and Graubard)"
    method = f"{inverted}; {chosen.method}"
    return ChosenInterval(IntervalBounds(low, high), method, chosen.freedom)
