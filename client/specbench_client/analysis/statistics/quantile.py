"""Intervals of percentiles: that of a share, turned round.

The p-th percentile is the value below which a share p of the requests lies. So the interval is made for that share, as
for any other ratio (`analysis.statistics.levels`), and its two ends are looked up among the values (Woodruff 1952,
"Confidence Intervals for Medians and Other Position Measures"). Drawing values anew instead, as is usual, cannot see
beyond the largest of them: of 20 prompts, its 95 % intervals of a 95th percentile hold the truth in three of four
experiments.

A share near 0 or 1 is no normal variable. Its uncertainty is told as that of so many independent requests, the
effective number n* = p (1 − p) (z / half-width)² (Korn and Graubard 1998, "Confidence Intervals for Proportions with
Small Expected Number of Positive Counts"). Its bounds are Jeffreys' for n*. Requests of one prompt are hardly
independent, so n* lies near the number of prompts where prompts differ much, and near the number of requests where they
do not.

Beyond the 90th percentile and below the 10th few values lie, and which of them is the bound decides: of 80, a 95th
percentile lies beyond the second largest in 8.6 %, and beyond the largest in 1.7 %. Bounds of the share that was found
miss that. So there the test is turned round: the value of rank k among n* lies below the percentile with the chance
I_p(k, n* + 1 − k), and the ranks sought are those where that is 97.5 % and 2.5 %, fractions among them (Hutson 1999,
"Calculating Nonparametric Confidence Intervals for Quantiles Using Fractional Order Statistics").

Where all prompts lie below the percentile with a chance of more than 2.5 % (p to the power of their number), there is
no upper bound among the values, and no interval is given: a median needs 6 prompts, a 95th percentile 72, a 99th 368.
Their number decides and not n*, which is an estimate: intervals that are given where it happens to be large are those
that are too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from specbench_client.analysis.statistics.bootstrap import LEVEL, Bounds, Chosen, Layout
from specbench_client.analysis.statistics.levels import Levels, ratio_influence, resampled, share_interval
from specbench_client.metrics.frame import Values

TAIL = (1 - LEVEL) / 2
Z = float(special.ndtri(1 - TAIL))
RANKED_BELOW = 0.1
"""Share on the smaller side below which ranks are taken: few values lie there, and one more or less decides."""


def percentile_intervals(values: Values, layout: Layout, percents: Sequence[int], seed: int) -> list[Chosen | None]:
    """Return an interval for each percentile of the values, or None where nothing can be said. One draw serves all."""
    found = [float(np.percentile(values, percent)) for percent in percents]
    below = [(values <= each).astype(np.float64) for each in found]
    matrices = [layout.matrix(each) for each in (*below, np.ones_like(values))]
    sums = resampled(matrices, layout, seed)
    asked = matrices[-1].sum(axis=1)
    intervals: list[Chosen | None] = []
    for index, percent in enumerate(percents):
        share = float(below[index].mean())
        with np.errstate(divide="ignore", invalid="ignore"):
            samples, repeats = sums[:, index] / sums[:, -1], matrices[index].sum(axis=1) / asked
        levels = Levels(share, samples, ratio_influence(matrices[index], matrices[-1]), repeats)
        chosen = share_interval(levels, layout)
        told = chosen is not None and layout.prompts >= prompts_needed(percent / 100)
        intervals.append(_looked_up(values, percent / 100, chosen) if chosen and told else None)
    return intervals


def effective(share: float, chosen: Chosen, requests: int) -> float:
    """Return the number of independent requests whose share would be as uncertain; never more than there are."""
    half = (chosen.bounds.high - chosen.bounds.low) / 2
    return float(requests) if half <= 0 else min(float(requests), share * (1 - share) * (Z / half) ** 2)


def prompts_needed(share: float) -> int:
    """Return how many prompts lie all on one side of this share of the population in no more than 2.5 %."""
    return int(np.ceil(np.log(TAIL) / np.log(max(share, 1 - share))))


def ranks(share: float, independent: float) -> Bounds:
    """Return the fractional ranks among so many independent values, from 1, between which the percentile lies."""

    def beyond(rank: float, chance: float) -> float:
        return float(special.betainc(rank, independent + 1 - rank, share)) - chance

    low, high = 1e-6, independent + 1 - 1e-6
    return Bounds(
        optimize.brentq(beyond, low, high, args=(1 - TAIL,)), optimize.brentq(beyond, low, high, args=(TAIL,))
    )


def jeffreys(share: float, independent: float) -> Bounds:
    """Return Jeffreys' bounds of a share of so many independent requests."""
    below, above = share * independent + 0.5, (1 - share) * independent + 0.5
    low, high = (float(special.betaincinv(below, above, tail)) for tail in (TAIL, 1 - TAIL))
    return Bounds(low, high)


def _looked_up(values: Values, share: float, chosen: Chosen) -> Chosen:
    """Places among the values in order, from 0 to 1, and what stands there."""
    independent = effective(share, chosen, values.size)
    if min(share, 1 - share) < RANKED_BELOW:
        found = ranks(share, independent)
        each = [(rank - 0.5) * values.size / independent - 0.5 for rank in (found.low, found.high)]
        places = np.clip(np.array(each) / (values.size - 1), 0.0, 1.0)
    else:
        bounds = jeffreys(share, independent)
        places = np.array([bounds.low, bounds.high])
    low, high = np.percentile(values, 100 * places)
    method = f"share below it, looked up among the values (Woodruff; Korn and Graubard); {chosen.method}"
    return Chosen(Bounds(float(low), float(high)), method, chosen.freedom)
