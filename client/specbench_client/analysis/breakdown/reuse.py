"""Reuse of the prompt cache, paired with the baseline, and the split of the net speed-up into drafting and reuse.

A lost token has to be computed again. What that costs is measured within the run: the slope of TTFT over the computed
prompt tokens of a request, with an intercept for each side. A prefill shares its step with all requests in flight and
delays each of them equally, so the cost of a computed token, summed over requests, is the slope times the mean number
of requests in flight: c. With E the sums of E2E latencies and L the lost tokens,

    net = E_b / E_a = drafting × reuse,    drafting = E_b / (E_a − c L),    reuse = (E_a − c L) / E_a

E_a − c L is what the arm would take with the baseline's reuse at the same number of requests in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.reuse import Reuse, ReuseSlice
from specbench_client.analysis.breakdown.breakdown import BreakdownClass, token_classes
from specbench_client.analysis.estimates.speedups import OVER_PAIRS, sum_pairs
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.intervals import value_and_interval
from specbench_client.analysis.statistics.log_ratio import LogRatio, LogRatioInputs, SumsFunction
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs, PairSide
from specbench_client.metrics.tidy_frame import Values, numbers

HIT_SHARE = f"Prompt tokens from the cache over all prompt tokens, {OVER_PAIRS}"
COMPUTED_RATIO = f"Σ(input_tokens − cached_tokens) of the arm ÷ that of the baseline, {OVER_PAIRS}"
LOST_TOKENS = f"Σ(cached_tokens of the baseline − those of the arm) / pairs, {OVER_PAIRS}"
TOKEN_MS = (
    "Slope of TTFT over computed prompt tokens, input_tokens − cached_tokens: least squares with an intercept for each"
    f" side, {OVER_PAIRS}"
)
LOST_MS = f"lost_tokens × token_ms, {OVER_PAIRS}"
NET = f"Σ e2e of the baseline ÷ Σ e2e of the arm, e2e = last_token_ns − intended_ns, {OVER_PAIRS}"
REUSE = (
    "(Σ e2e of the arm − c × lost tokens) ÷ Σ e2e of the arm, c = token_ms × mean requests in flight (the concurrency"
    f" of a closed loop), {OVER_PAIRS}"
)
DRAFTING = f"net ÷ reuse: the speed-up with the baseline's reuse, {OVER_PAIRS}"
TURNS_MAX = 8
"""Turns that have their own slice; later ones are one slice."""
DEPTHS = (0, 1, 256, 1024, 4096)
"""Lower bounds of the classes of depth, in tokens."""
_TOKENS = ("arm_cached", "arm_input", "baseline_cached", "baseline_input")
_MOMENTS = ("x", "y", "xx", "xy")
_SPLIT = (
    "pairs", "lost", "arm_e2e", "baseline_e2e",
    *(f"{side}_{moment}" for side in ("arm", "baseline") for moment in _MOMENTS),
)  # fmt: skip
Sums = Mapping[str, Values]


def reuse_of(pairs: Pairs, in_flight: float | None, seed: int) -> Reuse | None:
    """Return the reuse of a cell's arm; None if no pair has cached tokens on both sides.

    `in_flight`: mean number of requests in flight; None if it is not known.
    """
    tokens = _token_inputs(pairs, seed)
    if tokens is None:
        return None
    split = LogRatioInputs.of(_SPLIT, sum_pairs(pairs, len(_SPLIT), _SplitParts(pairs)), seed)
    streams = np.nan if in_flight is None else in_flight
    turns = [BreakdownClass(number, f"{number + 1}") for number in range(TURNS_MAX)]
    turns.append(BreakdownClass(TURNS_MAX, f"{TURNS_MAX + 1} and more"))
    depth = np.maximum(*(numbers(pairs.rows, f"cached_tokens{side}") for side in (ARM, BASELINE)))
    turn = np.where(np.isnan(depth), np.nan, np.minimum(numbers(pairs.rows, "turn"), TURNS_MAX))
    depth_class = np.where(np.isnan(depth), np.nan, np.digitize(depth, DEPTHS) - 1.0)
    return Reuse(
        hit_share=_linear(tokens, lambda sums: sums["arm_cached"] / sums["arm_input"], "ratio", HIT_SHARE, (0, 1)),
        baseline_hit_share=_linear(
            tokens, lambda sums: sums["baseline_cached"] / sums["baseline_input"], "ratio", HIT_SHARE, (0, 1)
        ),
        computed_ratio=_figure(tokens.log_of(_log_computed_ratio), COMPUTED_RATIO),
        lost_tokens=_linear(split, lambda sums: sums["lost"] / sums["pairs"], "tokens", LOST_TOKENS),
        lost_ms=_linear(split, lambda sums: _slope(sums) * sums["lost"] / sums["pairs"], "ms", LOST_MS),
        token_ms=_linear(split, _slope, "ms/token", TOKEN_MS),
        net=_figure(split.log_of(lambda sums: np.log(sums["baseline_e2e"] / sums["arm_e2e"])), NET),
        drafting=_figure(
            split.log_of(lambda sums: np.log(sums["baseline_e2e"] / _with_baseline_reuse(sums, streams))), DRAFTING
        ),
        reuse=_figure(split.log_of(lambda sums: np.log(_with_baseline_reuse(sums, streams) / sums["arm_e2e"])), REUSE),
        by_turn=_slices(pairs, turn, turns, seed),
        by_depth=_slices(pairs, depth_class, token_classes(DEPTHS), seed),
    )


def _token_inputs(pairs: Pairs, seed: int) -> LogRatioInputs | None:
    def parts(arm: PairSide, baseline: PairSide) -> Sequence[Values]:
        return [numbers(side, name) for side in (arm, baseline) for name in ("cached_tokens", "input_tokens")]

    sums = sum_pairs(pairs, len(_TOKENS), parts)
    return LogRatioInputs.of(_TOKENS, sums, seed) if sums.counts.any() else None


def _log_computed_ratio(sums: Sums) -> Values:
    computed = (sums[f"{side}_input"] - sums[f"{side}_cached"] for side in ("arm", "baseline"))
    return np.subtract(*(np.log(each) for each in computed))


class _SplitParts:
    """What is summed of each pair for the split; computed tokens and TTFT relative to their means, for accuracy."""

    def __init__(self, pairs: Pairs) -> None:
        self._means = [
            [float(np.nanmean(each)) if np.isfinite(each).any() else 0.0 for each in _computed_and_ttft(side)]
            for side in (pairs.side(ARM), pairs.side(BASELINE))
        ]

    def __call__(self, arm: PairSide, baseline: PairSide) -> Sequence[Values]:
        lost = numbers(baseline, "cached_tokens") - numbers(arm, "cached_tokens")
        moments = []
        for side, means in zip((arm, baseline), self._means, strict=True):
            x, y = (each - mean for each, mean in zip(_computed_and_ttft(side), means, strict=True))
            moments += [x, y, x * x, x * y]
        return [np.ones(len(lost)), lost, E2E_MS.values(arm), E2E_MS.values(baseline), *moments]


def _computed_and_ttft(side: PairSide) -> tuple[Values, Values]:
    return numbers(side, "input_tokens") - numbers(side, "cached_tokens"), TTFT_MS.values(side)


def _slope(sums: Sums) -> Values:
    """TTFT in ms per computed token; not finite if computed tokens do not vary."""
    xy = sum(sums[f"{side}_xy"] - sums[f"{side}_x"] * sums[f"{side}_y"] / sums["pairs"] for side in ("arm", "baseline"))
    xx = sum(sums[f"{side}_xx"] - sums[f"{side}_x"] ** 2 / sums["pairs"] for side in ("arm", "baseline"))
    return np.asarray(xy / np.where(xx > 0, xx, np.nan), dtype=np.float64)


def _with_baseline_reuse(sums: Sums, in_flight: float) -> Values:
    """Sum of the arm's E2E latencies with the baseline's reuse; not finite if it is not positive."""
    e2e = sums["arm_e2e"] - _slope(sums) * in_flight * sums["lost"]
    return np.where(e2e > 0, e2e, np.nan)


def _slices(pairs: Pairs, codes: Values, classes: Sequence[BreakdownClass], seed: int) -> list[ReuseSlice]:
    """Return a slice for every class that has any pairs. `codes`: the class of each pair, shape (pairs,)."""
    found = []
    for each in classes:
        among = codes == each.code
        inputs = _token_inputs(pairs.among(among), seed) if among.any() else None
        if inputs is None:
            continue
        totals = {name: float(matrix.sum()) for name, matrix in inputs.matrices.items()}
        shares = [totals[f"{side}_cached"] / max(totals[f"{side}_input"], 1.0) for side in ("arm", "baseline")]
        ratio = _figure(inputs.log_of(_log_computed_ratio), COMPUTED_RATIO)
        found.append(
            ReuseSlice(
                label=each.label,
                pairs=int(among.sum()),
                hit_share=shares[0],
                baseline_hit_share=shares[1],
                computed_ratio=ratio,
            )
        )
    return found


def _figure(ratio: LogRatio | None, definition: str) -> Figure:
    return ratio.figure(definition) if ratio else Figure(unit="ratio", definition=definition, n=0, source="both")


def _linear(
    inputs: LogRatioInputs,
    of: SumsFunction,
    unit: str,
    definition: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> Figure:
    """Return a figure that is no ratio of two positive sums, so that its interval is not computed on the log scale."""
    found = inputs.resampled(of) if inputs.layout.prompts else None
    if found is None or not np.isfinite(found.value):
        return Figure(unit=unit, definition=definition, n=0, source="both")
    value, chosen = value_and_interval(found, inputs.layout)
    interval = None
    if chosen:
        low, high = (float(np.clip(bound, *limits)) for bound in (chosen.bounds.low, chosen.bounds.high))
        interval = FigureInterval(low=low, high=high, level=LEVEL, method=chosen.method)
    return Figure(
        value=value, unit=unit, definition=definition, n=inputs.layout.prompts, interval=interval, source="both"
    )
