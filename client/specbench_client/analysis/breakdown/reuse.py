"""Reuse of the prompt cache, paired with the baseline, and the split of the net speed-up into drafting and reuse.

A lost token has to be computed again, which delays its request and all others in flight: they share the step of its
prefill. In an open loop, more requests are in flight then, which delay one another. So the arm's requests are replayed
on a model of its engine (`engine_replay`), as they were and with the baseline's reuse. With E the sums of E2E
latencies, R that of the first replay and R' that of the second one,

    net = E_b / E_a = drafting × reuse,    reuse = R' / R

Without a model that describes the arm there is no split, and `SplitMissing` is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.reuse import Reuse, ReuseSlice, SplitMissing
from specbench_client.analysis.breakdown.breakdown import BreakdownClass, token_classes
from specbench_client.analysis.breakdown.engine_replay import fit_engine, replay
from specbench_client.analysis.breakdown.engine_steps import cached_tokens, point_steps
from specbench_client.analysis.estimates.speedups import OVER_PAIRS, pair_layout, sum_pairs
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.intervals import value_and_interval
from specbench_client.analysis.statistics.log_ratio import LogRatio, LogRatioInputs, SumsFunction
from specbench_client.analysis.statistics.row_layout import CellSums
from specbench_client.metrics.latency import E2E_MS
from specbench_client.metrics.pairing import ARM, BASELINE, JoinedRows, Pairs, PairSide
from specbench_client.metrics.rows import Columns, Rows
from specbench_client.metrics.tidy_frame import Values, numbers

HIT_SHARE = f"Prompt tokens from the cache over all prompt tokens, {OVER_PAIRS}"
COMPUTED_RATIO = f"Σ max(input_tokens − cached_tokens, 1) of the arm ÷ that of the baseline, {OVER_PAIRS}"
LOST_TOKENS = f"Σ(cached_tokens of the baseline − those of the arm) / pairs, {OVER_PAIRS}"
TOKEN_MS = (
    "Cost of a prompt token that was not cached, at the depth of the lost ones, in a linear model of the arm's steps,"
    f" fitted to their durations, which are the times between arrivals of chunks (chunk_ns), {OVER_PAIRS}"
)
LOST_MS = f"lost_tokens × token_ms, {OVER_PAIRS}"
NET = f"Σ e2e of the baseline ÷ Σ e2e of the arm, e2e = last_token_ns − intended_ns, {OVER_PAIRS}"
REUSE = (
    "Σ e2e of the arm's requests if they are replayed on the model of its steps with the baseline's reuse ÷ the same"
    f" with their own reuse, {OVER_PAIRS}"
)
DRAFTING = f"net ÷ reuse: the speed-up with the baseline's reuse, {OVER_PAIRS}"
DEFINITIONS = (
    ("hit_share", "ratio", HIT_SHARE),
    ("baseline_hit_share", "ratio", HIT_SHARE),
    ("computed_ratio", "ratio", COMPUTED_RATIO),
    ("lost_tokens", "tokens", LOST_TOKENS),
    ("token_ms", "ms/token", TOKEN_MS),
    ("lost_ms", "ms", LOST_MS),
    ("net", "ratio", NET),
    ("drafting", "ratio", DRAFTING),
    ("reuse", "ratio", REUSE),
)
"""Name, unit and definition of each figure, for the reference documentation."""
NEED_MODEL = ("token_ms", "lost_ms", "drafting", "reuse")
"""Figures that need the model of the arm's steps."""
REPLAY_ERROR_MAX = 0.1
"""Largest error of the replayed E2E latency; beyond it the model does not describe the arm."""
REPLAYED_MIN = 0.95
"""Smallest share of answered requests with known chunks and cached tokens. The replay lacks the load of the others."""
NUDGE = 0.01
"""Relative change of the cost of a token, for its effect on a replay."""
TURNS_MAX = 8
"""Turns that have their own slice; later ones are one slice."""
DEPTHS = (0, 1, 256, 1024, 4096)
"""Lower bounds of the classes of depth, in tokens."""
_TOKENS = ("arm_cached", "arm_input", "arm_computed", "baseline_cached", "baseline_input", "baseline_computed")
"""Sums over pairs. At least one token of each request is computed, so that the ratio exists if all are cached."""
_SPLIT = ("pairs", "lost", "arm_e2e", "baseline_e2e", "token", "cost", "slope")
"""Of each pair: lost tokens, latencies, influence on the cost of a token, cost of lost reuse and its slope on that."""
Sums = Mapping[str, Values]


def reuse_of(pairs: Pairs, arm: Rows, seed: int, *, closed: bool) -> tuple[Reuse | None, SplitMissing | None]:
    """Return the reuse of a cell's arm, None if no pair has cached tokens on both sides; and why it is not split.

    `arm`: all rows of the cell, of which `pairs` are made. `closed`: whether its load is a closed loop.
    """
    tokens = _token_inputs(pairs, seed)
    if tokens is None:
        return None, _not_reported(pairs)
    token_ms, sums, missing = _split_sums(pairs, arm, closed=closed)
    split = LogRatioInputs.of(_SPLIT, sums, seed)

    def token(sums: Sums) -> Values:
        return token_ms + sums["token"] / sums["pairs"]

    def with_baseline_reuse(sums: Sums) -> Values:
        """Sum of the arm's E2E latencies; not finite if it is not positive."""
        e2e = sums["arm_e2e"] - sums["cost"] - (token(sums) - token_ms) * sums["slope"]
        return np.where(e2e > 0, e2e, np.nan)

    turns = [BreakdownClass(number, f"{number + 1}") for number in range(TURNS_MAX)]
    turns.append(BreakdownClass(TURNS_MAX, f"{TURNS_MAX + 1} and more"))
    depth = np.maximum(*(cached_tokens(PairSide(pairs.rows, side)) for side in (ARM, BASELINE)))
    turn = np.where(np.isnan(depth), np.nan, np.minimum(numbers(pairs.rows, "turn"), TURNS_MAX))
    depth_class = np.where(np.isnan(depth), np.nan, np.digitize(depth, DEPTHS) - 1.0)
    found = Reuse(
        hit_share=_linear(tokens, lambda sums: sums["arm_cached"] / sums["arm_input"], "ratio", HIT_SHARE, (0, 1)),
        baseline_hit_share=_linear(
            tokens, lambda sums: sums["baseline_cached"] / sums["baseline_input"], "ratio", HIT_SHARE, (0, 1)
        ),
        computed_ratio=_figure(tokens.log_of(_log_computed_ratio), COMPUTED_RATIO),
        lost_tokens=_linear(split, lambda sums: sums["lost"] / sums["pairs"], "tokens", LOST_TOKENS),
        lost_ms=_linear(split, lambda sums: token(sums) * sums["lost"] / sums["pairs"], "ms", LOST_MS),
        token_ms=_linear(split, token, "ms/token", TOKEN_MS),
        net=_figure(split.log_of(lambda sums: np.log(sums["baseline_e2e"] / sums["arm_e2e"])), NET),
        drafting=_figure(split.log_of(lambda sums: np.log(sums["baseline_e2e"] / with_baseline_reuse(sums))), DRAFTING),
        reuse=_figure(split.log_of(lambda sums: np.log(with_baseline_reuse(sums) / sums["arm_e2e"])), REUSE),
        by_turn=_slices(pairs, turn, turns, seed),
        by_depth=_slices(pairs, depth_class, token_classes(DEPTHS), seed),
    )
    # A cost beyond the whole latency has no factor.
    return found, missing or (SplitMissing.REPLAY_DIFFERS if found.reuse.value is None else None)


def _not_reported(pairs: Pairs) -> SplitMissing:
    """Return which side reports no cached tokens."""
    arm, baseline = (not np.isnan(cached_tokens(PairSide(pairs.rows, side))).all() for side in (ARM, BASELINE))
    if arm == baseline:
        return SplitMissing.NOT_REPORTED
    return SplitMissing.BASELINE_NOT_REPORTED if arm else SplitMissing.ARM_NOT_REPORTED


def _token_inputs(pairs: Pairs, seed: int) -> LogRatioInputs | None:
    def parts(arm: PairSide, baseline: PairSide) -> Sequence[Values]:
        found = []
        for side in (arm, baseline):
            cached, prompt = cached_tokens(side), numbers(side, "input_tokens")
            found += [cached, prompt, np.maximum(prompt - cached, 1.0)]
        return found

    sums = sum_pairs(pairs, len(_TOKENS), parts)
    return LogRatioInputs.of(_TOKENS, sums, seed) if sums.counts.any() else None


def _log_computed_ratio(sums: Sums) -> Values:
    return np.log(sums["arm_computed"] / sums["baseline_computed"])


def _split_sums(pairs: Pairs, arm: Rows, *, closed: bool) -> tuple[float, CellSums, SplitMissing | None]:
    """Return the cost of a computed token in ms, the sums of the split, and why it is missing.

    What the split needs is NaN, or 0 in the sums, if it is not found.
    """
    sides = (PairSide(pairs.rows, ARM), PairSide(pairs.rows, BASELINE))
    assert isinstance(pairs.rows, JoinedRows)
    at = pairs.rows.left
    lost = np.subtract(*(cached_tokens(side) for side in sides[::-1]))
    e2e = [E2E_MS.values(side) for side in sides]
    found = _costs(arm, pairs.rows.baseline, at, lost, e2e[0], closed=closed)
    missing = found if isinstance(found, SplitMissing) else None
    token_ms, costs = (np.nan, [np.zeros(len(arm))] * 3) if isinstance(found, SplitMissing) else found
    sums = CellSums(pair_layout(pairs), len(_SPLIT))
    sums.add([np.ones(lost.size), lost, *e2e, *(each[at] for each in costs)])
    return token_ms, sums, missing


def _costs(
    arm: Rows, baseline: Columns, at: NDArray[np.int32], lost: Values, e2e: Values, *, closed: bool
) -> tuple[float, list[Values]] | SplitMissing:
    """Return the cost of a token in ms, each row's influence on it, and the cost of lost reuse with its slope on it.

    Without a model that describes the arm: the reason.
    `at`, `lost` and `e2e`: row of the arm, lost tokens and latency of each pair. The others have the shape (rows,).
    """
    points = point_steps(arm, closed=closed)
    computed, size = numbers(arm, "input_tokens") - cached_tokens(arm), len(arm)
    known = ~np.isnan(lost + e2e + computed[at])
    if not known.any():
        return SplitMissing.NO_LATENCIES
    replayable = np.zeros(size, dtype=np.bool_)
    for point in points:
        replayable[point.rows] = True
    known &= replayable[at]
    if not known.any() or replayable.sum() < REPLAYED_MIN * (~np.isnan(E2E_MS.values(arm))).sum():
        return SplitMissing.TOO_FEW_STEPS
    paired = np.zeros(size, dtype=np.bool_)
    paired[at[known]] = True
    if np.ptp(computed[paired]) == 0:
        return SplitMissing.SAME_COMPUTED_TOKENS
    # Requests without a partner lose the same share of what they compute.
    share = max(float(lost[known].sum() / max(computed[paired].sum(), 1.0)), -1.0)
    filler = numbers(arm, "filler") > 0
    less = np.where(filler, _lost_by_fillers(arm, baseline), share * np.nan_to_num(computed))
    less[at[known]] = lost[known]
    tokens = np.abs(less[paired])
    before = (numbers(arm, "input_tokens") - computed + less / 2)[paired]
    fit = fit_engine(points, size, float(np.average(before, weights=tokens if tokens.any() else None)))
    if isinstance(fit, SplitMissing):
        return fit
    replayed, cost, nudged_cost = (np.full(size, np.nan) for _ in range(3))
    for point, costs in zip(points, fit.by_point, strict=True):
        nudged = replace(costs, token=costs.token * (1 + NUDGE))
        kept = np.maximum(point.computed - less[point.rows], 0.0)
        replayed[point.rows] = replay(point, costs, point.computed)
        cost[point.rows] = replayed[point.rows] - replay(point, costs, kept)
        nudged_cost[point.rows] = replay(point, nudged, point.computed) - replay(point, nudged, kept)
    scale = e2e[known].sum() / replayed[at[known]].sum()
    if not abs(1 / scale - 1) <= REPLAY_ERROR_MAX:  # Also if it is NaN.
        return SplitMissing.REPLAY_DIFFERS
    # What the model leaves out, as pauses of the engine, lengthens both replays alike.
    slope = (nudged_cost - cost) / (fit.costs.token * NUDGE)
    influence = np.where(paired, fit.influence - fit.influence[paired].mean(), 0.0)
    return fit.costs.token, [influence * paired.sum(), scale * cost, scale * slope]


def _lost_by_fillers(arm: Columns, baseline: Columns) -> Values:
    """Return the tokens that each filler of the arm lost, 0 for other rows, shape (rows,).

    Fillers are no pairs, so each is compared with the baseline's filler of the same place in its point.
    """
    lost, theirs = np.zeros(len(arm)), _fillers_by_point(baseline)
    prompt, cached, hits = numbers(arm, "input_tokens"), cached_tokens(arm), cached_tokens(baseline)
    for point, rows in _fillers_by_point(arm).items():
        others = theirs.get(point)
        if others is not None:
            place = np.minimum(np.arange(rows.size), others.size - 1)
            lost[rows] = np.minimum(hits[others[place]], prompt[rows]) - cached[rows]
    return np.nan_to_num(lost)


def _fillers_by_point(rows: Columns) -> dict[float, NDArray[np.intp]]:
    """Return the rows of fillers by repeat, in the order in which they began."""
    repeats, fillers = numbers(rows, "repeat"), numbers(rows, "filler") > 0
    order = np.argsort(numbers(rows, "intended_ns"), kind="stable")
    order = order[fillers[order]]
    return {repeat: order[repeats[order] == repeat] for repeat in np.unique(repeats[order]).tolist()}


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
