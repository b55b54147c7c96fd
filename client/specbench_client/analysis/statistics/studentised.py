"""The bootstrap-t interval of a ratio of sums: for means whose requests have a long tail.

Twenty draws of a long tail seldom hold its far end, and those that do not have both a small mean and a small spread. So
the error divided by its own estimated standard error is skewed, and Student's quantiles are not its own. Here they are
resampled: each resample of prompts has its ratio and the standard error of that ratio from its own prompts, and

    t* = (ratio* − ratio) / error*,   the interval: ratio − t*(97.5 %) × error  to  ratio − t*(2.5 %) × error

(Efron 1982; Hall 1988, "Theoretical Comparison of Bootstrap Confidence Intervals": second-order correct on both
sides). The standard error is that of a ratio in a stratified sample: √(Σ n / (n − 1) × (Σ e² − (Σ e)² / n)) / Σ under,
over the strata of n prompts, with e = over − ratio × under of a prompt.
"""

from __future__ import annotations

import numpy as np

from specbench_client.analysis.statistics.bootstrap import FINITE_SHARE, LEVEL, PROMPTS_MIN, RESAMPLES, Bounds, Layout
from specbench_client.analysis.statistics.draws import sums
from specbench_client.metrics.frame import Values

TAIL = (1 - LEVEL) / 2


def studentised(over: Values, under: Values, layout: Layout, seed: int) -> Bounds | None:
    """Return the interval of Σ over / Σ under (repeats × prompts each) by chance in prompts; None: too few of them."""
    sizes = np.bincount(layout.stratum_of).astype(np.float64)
    if layout.prompts < PROMPTS_MIN or sizes.min() < PROMPTS_MIN:
        return None
    moments = _moments(over.sum(axis=0), under.sum(axis=0), layout)
    drawn = sums([each[np.newaxis] for each in moments], layout.stratum_of, seed, RESAMPLES)
    found, errors = _ratio_and_error(drawn.reshape(RESAMPLES, -1, _MOMENTS), sizes)
    value, error = (float(each[0]) for each in _ratio_and_error(moments.sum(axis=1).reshape(1, -1, _MOMENTS), sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = (found - value) / errors
    known = quotients[np.isfinite(quotients)]
    if known.size < FINITE_SHARE * RESAMPLES:
        return None
    low, high = (float(each) for each in np.percentile(known, [100 * TAIL, 100 * (1 - TAIL)]))
    return Bounds(value - high * error, value - low * error)


_MOMENTS = 5


def _moments(over: Values, under: Values, layout: Layout) -> Values:
    """(strata × moments) × prompts: what a standard error is made of, 0 for the prompts of other strata."""
    each = np.stack([over, under, over**2, over * under, under**2])
    within = layout.stratum_of == np.arange(layout.strata)[:, np.newaxis]
    return np.asarray((within[:, np.newaxis] * each).reshape(-1, layout.prompts), dtype=np.float64)


def _ratio_and_error(moments: Values, sizes: Values) -> tuple[Values, Values]:
    """Ratio and standard error of each row of rows × strata × moments. `sizes`: prompts of each stratum."""
    over, under, over_over, over_under, under_under = np.moveaxis(moments, 2, 0)
    total = under.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = over.sum(axis=1) / total
        rate = ratio[:, np.newaxis]
        residuals = over - rate * under
        squares = over_over - 2 * rate * over_under + rate**2 * under_under
        spread = (sizes / (sizes - 1) * (squares - residuals**2 / sizes)).sum(axis=1)
        return ratio, np.sqrt(np.maximum(spread, 0.0)) / total
