"""Reuse of the prompt cache, paired with the baseline: shares of cached prompt tokens, and how many were computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_client.analysis.breakdown.breakdown import BreakdownClass, token_classes
from specbench_client.analysis.estimates.cell_figures import figure_interval
from specbench_client.analysis.estimates.speedups import OVER_PAIRS, sum_pairs
from specbench_client.analysis.statistics.effects import LogRatioInputs
from specbench_client.analysis.statistics.intervals import value_and_interval
from specbench_client.documents.breakdown import Reuse, ReuseMissing, ReuseSlice
from specbench_client.documents.figure import Figure
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Values

HIT_SHARE = f"Prompt tokens from the cache over all prompt tokens, {OVER_PAIRS}"
KEPT_SHARE = (
    "Cached prompt tokens of the arm ÷ those of the baseline, over the requests of which either side has any,"
    f" {OVER_PAIRS}"
)
COMPUTED_RATIO = f"Σ max(input_tokens − cached_tokens, 1) of the arm ÷ that of the baseline, {OVER_PAIRS}"
DEFINITIONS = (
    ("hit_share", HIT_SHARE),
    ("baseline_hit_share", HIT_SHARE),
    ("kept_share", KEPT_SHARE),
    ("computed_ratio", COMPUTED_RATIO),
)
"""Name and definition of each figure, for the reference documentation."""
TURNS_MAX = 8
"""Turns that have their own slice; later ones are one slice."""
DEPTHS = (0, 1, 256, 1024, 4096)
"""Lower bounds of the classes of depth, in tokens."""
_SIDES = ("arm", "baseline")
_PARTS = ("cached", "input", "computed")
"""Sums over pairs, of each side. At least one token of each request is computed, so that the ratio always exists."""


def reuse_of(pairs: Pairs, seed: int) -> Reuse | ReuseMissing:
    """Compare an arm's reuse with the baseline's; return the reason if no pair has cached tokens on both sides."""
    inputs = _token_inputs(pairs, seed)
    if inputs is None:
        return _not_reported(pairs)
    turns = [BreakdownClass(number, f"{number + 1}") for number in range(TURNS_MAX)]
    turns.append(BreakdownClass(TURNS_MAX, f"{TURNS_MAX + 1} and more"))
    depth = np.maximum(*(_cached_tokens(rows) for rows in (pairs.arm, pairs.baseline)))
    turn = np.where(np.isnan(depth), np.nan, np.minimum(numbers(pairs.arm, "turn"), TURNS_MAX))
    depth_class = np.where(np.isnan(depth), np.nan, np.digitize(depth, DEPTHS) - 1.0)
    return Reuse(
        hit_share=_share(inputs, "cached_arm", "input_arm", HIT_SHARE),
        baseline_hit_share=_share(inputs, "cached_baseline", "input_baseline", HIT_SHARE),
        kept_share=_kept_share(pairs.among(depth > 0), seed) if (depth > 0).any() else None,
        computed_ratio=_computed_ratio(inputs),
        by_turn=_slices(pairs, turn, turns, seed),
        by_depth=_slices(pairs, depth_class, token_classes(DEPTHS), seed),
    )


def _not_reported(pairs: Pairs) -> ReuseMissing:
    """Return which side reports no cached tokens."""
    arm, baseline = (not np.isnan(_cached_tokens(rows)).all() for rows in (pairs.arm, pairs.baseline))
    if arm == baseline:
        return ReuseMissing.NOT_REPORTED
    return ReuseMissing.BASELINE_NOT_REPORTED if arm else ReuseMissing.ARM_NOT_REPORTED


def _cached_tokens(rows: Table) -> Values:
    """Return the cached prompt tokens of each row; NaN if more are recorded than the prompt has. Shape (rows,)."""
    cached, prompt = numbers(rows, "cached_tokens"), numbers(rows, "input_tokens")
    return np.where((cached <= prompt) & (prompt > 0), cached, np.nan)


def _token_inputs(pairs: Pairs, seed: int) -> LogRatioInputs | None:
    def parts(arm: Table, baseline: Table) -> Sequence[Values]:
        found = []
        for rows in (arm, baseline):
            cached, prompt = _cached_tokens(rows), numbers(rows, "input_tokens")
            found += [cached, prompt, np.maximum(prompt - cached, 1.0)]
        return found

    names = [f"{part}_{side}" for side in _SIDES for part in _PARTS]
    sums = sum_pairs(pairs, len(names), parts)
    return LogRatioInputs.of(names, sums, seed) if sums.counts.any() else None


def _slices(pairs: Pairs, codes: Values, classes: Sequence[BreakdownClass], seed: int) -> list[ReuseSlice]:
    """Return a slice for every class that has any pairs. `codes`: the class of each pair, shape (pairs,)."""
    found = []
    for each in classes:
        among = codes == each.code
        inputs = _token_inputs(pairs.among(among), seed) if among.any() else None
        if inputs is None:
            continue
        totals = {name: float(matrix.sum()) for name, matrix in inputs.matrices.items()}
        hit_share, baseline_hit_share = (totals[f"cached_{side}"] / totals[f"input_{side}"] for side in _SIDES)
        found.append(
            ReuseSlice(
                label=each.label,
                pairs=int(among.sum()),
                hit_share=hit_share,
                baseline_hit_share=baseline_hit_share,
                computed_ratio=_computed_ratio(inputs),
            )
        )
    return found


def _computed_ratio(inputs: LogRatioInputs) -> Figure:
    ratio = inputs.log_ratio({"computed_arm": 1, "computed_baseline": -1})
    assert ratio is not None, "every request computes a token"
    # A ratio of counted tokens, not of times: like the shares, it has an interval over prompts with one repeat, too.
    return ratio.figure(COMPUTED_RATIO).model_copy(update={"interval": ratio.interval(), "missing": ""})


def _kept_share(reused: Pairs, seed: int) -> Figure | None:
    """Return how much of the baseline's reuse the arm has; None if the baseline has none.

    `reused`: the pairs in which either side reads from its cache. The first repeat after a start often has none.
    """
    inputs = _token_inputs(reused, seed)
    if inputs is None or not inputs.matrices["cached_baseline"].any():
        return None
    return _share(inputs, "cached_arm", "cached_baseline", KEPT_SHARE, most=np.inf)


def _share(inputs: LogRatioInputs, over: str, under: str, definition: str, most: float = 1.0) -> Figure:
    """Return a share, which may be 0, so that its interval is not computed on the log scale."""
    value, chosen = value_and_interval(inputs.ratio(over, under), inputs.layout)
    interval = figure_interval(chosen) if chosen else None
    return Figure(
        value=value, unit="ratio", definition=definition, n=inputs.layout.prompts, interval=interval, source="both"
    ).within(0.0, most)
