"""Reuse of the prompt cache, paired with the baseline, and the split of the net speed-up into drafting and reuse.

A lost token has to be computed again, which delays its request and all others in flight: they share the step of its
prefill. With E the sums of E2E latencies, c the time of a computed token, and D the sum over the pairs of lost tokens ×
the arm's requests in flight,

    net = E_b / E_a = drafting × reuse,    drafting = E_b / (E_a − c D),    reuse = (E_a − c D) / E_a

E_a − c D is what the arm would take with the baseline's reuse and the same number of requests in flight. In an open
loop, where a slower engine has more of them, lost reuse costs more than that, and it is part of drafting.

c is the slope of TTFT over the prompt tokens that are computed in the step of the first token: those of the request and
of others with the same step. Prompts that are computed while the request waits are a second variable, because prompts
often alternate between long and short ones. Each side has its own intercept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.reuse import Reuse, ReuseSlice
from specbench_client.analysis.breakdown.breakdown import BreakdownClass, token_classes
from specbench_client.analysis.estimates.speedups import OVER_PAIRS, pair_layout, sum_pairs
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.intervals import value_and_interval
from specbench_client.analysis.statistics.log_ratio import LogRatio, LogRatioInputs, SumsFunction
from specbench_client.analysis.statistics.row_layout import CellSums
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.pairing import ARM, BASELINE, JoinedRows, Pairs, PairSide
from specbench_client.metrics.rows import Columns
from specbench_client.metrics.tidy_frame import Values, numbers

HIT_SHARE = f"Prompt tokens from the cache over all prompt tokens, {OVER_PAIRS}"
COMPUTED_RATIO = f"Σ(input_tokens − cached_tokens) of the arm ÷ that of the baseline, {OVER_PAIRS}"
LOST_TOKENS = f"Σ(cached_tokens of the baseline − those of the arm) / pairs, {OVER_PAIRS}"
TOKEN_MS = (
    "Slope of TTFT over the prompt tokens, input_tokens − cached_tokens, that are computed in the step of the first"
    " token: least squares with an intercept for each side, and with the prompts computed while the request waits as a"
    f" second variable, {OVER_PAIRS}"
)
LOST_MS = f"lost_tokens × token_ms, {OVER_PAIRS}"
NET = f"Σ e2e of the baseline ÷ Σ e2e of the arm, e2e = last_token_ns − intended_ns, {OVER_PAIRS}"
REUSE = (
    "(Σ e2e − token_ms × Σ(lost tokens × requests in flight)) ÷ Σ e2e of the arm, with the requests in flight when the"
    f" request begins, {OVER_PAIRS}"
)
DRAFTING = f"net ÷ reuse: the speed-up with the baseline's reuse, {OVER_PAIRS}"
NONE = 1e-9
"""A variance that is a smaller share of another one is 0."""
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
NEED_VARIATION = ("token_ms", "lost_ms", "drafting", "reuse")
"""Figures that are missing if computed tokens do not vary."""
SAME_STEP = 0.5
"""First tokens that are at most this share of a step apart are from the same step."""
TURNS_MAX = 8
"""Turns that have their own slice; later ones are one slice."""
DEPTHS = (0, 1, 256, 1024, 4096)
"""Lower bounds of the classes of depth, in tokens."""
_TOKENS = ("arm_cached", "arm_input", "baseline_cached", "baseline_input")
_MOMENTS = ("x", "o", "y", "xx", "xo", "oo", "xy", "oy")
_SPLIT = (
    "pairs", "lost", "delays", "arm_e2e", "baseline_e2e",
    *(f"{side}_{moment}" for side in ("arm", "baseline") for moment in _MOMENTS),
)  # fmt: skip
Sums = Mapping[str, Values]


def reuse_of(pairs: Pairs, arm: Columns, baseline: Columns, seed: int) -> Reuse | None:
    """Return the reuse of a cell's arm; None if no pair has cached tokens on both sides.

    `arm` and `baseline`: all rows of both cells, of which `pairs` are made.
    """
    tokens = _token_inputs(pairs, seed)
    if tokens is None:
        return None
    split = LogRatioInputs.of(_SPLIT, _split_sums(pairs, arm, baseline), seed)
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
        lost_ms=_linear(split, lambda sums: _token_ms(sums) * sums["lost"] / sums["pairs"], "ms", LOST_MS),
        token_ms=_linear(split, _token_ms, "ms/token", TOKEN_MS),
        net=_figure(split.log_of(lambda sums: np.log(sums["baseline_e2e"] / sums["arm_e2e"])), NET),
        drafting=_figure(
            split.log_of(lambda sums: np.log(sums["baseline_e2e"] / _with_baseline_reuse(sums))), DRAFTING
        ),
        reuse=_figure(split.log_of(lambda sums: np.log(_with_baseline_reuse(sums) / sums["arm_e2e"])), REUSE),
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


@dataclass(frozen=True)
class _Prefills:
    """Prompt tokens computed around each row of a cell, and the requests in flight when it begins, shape (rows,)."""

    together: Values
    """Tokens computed in the step of its first token, its own included; NaN if its own are not known."""
    before: Values
    """Tokens of others that were computed while it waited for that step."""
    in_flight: Values
    """Requests in flight when it begins, itself included."""

    @classmethod
    def of(cls, rows: Columns) -> _Prefills:
        """Compute them, one point after the other, from all its requests."""
        columns = ("intended_ns", "first_token_ns", "last_token_ns", "input_tokens", "cached_tokens", "chunks")
        begun, first, last, prompt, cached, chunks = (numbers(rows, name) for name in columns)
        computed, found = prompt - cached, cls(*(np.full(len(rows), np.nan) for _ in range(3)))
        near = SAME_STEP * np.nansum(last - first) / max(np.nansum(chunks - 1), 1.0)
        points = numbers(rows, "repeat")
        for point in np.unique(points):
            at = np.flatnonzero((points == point) & ~np.isnan(last - first))
            order = at[np.argsort(first[at], kind="stable")]
            until = np.concatenate([[0.0], np.cumsum(np.nan_to_num(computed[order]))])

            def tokens_by(time: Values, firsts: Values = first[order], until: Values = until) -> Values:
                return until[np.searchsorted(firsts, time, side="right")]

            together = tokens_by(first[at] + near) - tokens_by(np.maximum(first[at] - near, begun[at]))
            found.together[at] = np.where(np.isnan(computed[at]), np.nan, together)
            found.before[at] = tokens_by(first[at] + near) - tokens_by(begun[at]) - together
            started, ended = (np.searchsorted(np.sort(each[at]), begun[at], side="right") for each in (begun, last))
            found.in_flight[at] = started - ended
        return found


def _split_sums(pairs: Pairs, arm: Columns, baseline: Columns) -> CellSums:
    """Sum the parts of the split; token counts and TTFT are relative to their means, for accuracy."""
    sides = (PairSide(pairs.rows, ARM), PairSide(pairs.rows, BASELINE))
    assert isinstance(pairs.rows, JoinedRows)
    around = (_Prefills.of(arm), _Prefills.of(baseline))
    at = (pairs.rows.left, pairs.rows.right)
    cached, e2e, ttft = ([each(side) for side in sides] for each in (_cached, E2E_MS.values, TTFT_MS.values))
    lost = cached[1] - cached[0]
    parts = [np.ones(len(lost)), lost, lost * around[0].in_flight[at[0]], *e2e]
    for prefills, rows, late in zip(around, at, ttft, strict=True):
        x, o, y = (_centred(each) for each in (prefills.together[rows], prefills.before[rows], late))
        parts += [x, o, y, x * x, x * o, o * o, x * y, o * y]
    sums = CellSums(pair_layout(pairs), len(_SPLIT))
    sums.add(parts)
    return sums


def _cached(side: PairSide) -> Values:
    return numbers(side, "cached_tokens")


def _centred(values: Values) -> Values:
    known = values[~np.isnan(values)]
    return values - known.mean() if known.size else values


def _token_ms(sums: Sums) -> Values:
    """Time of a computed token in ms; not finite if computed tokens do not vary."""

    def spread(one: str, other: str) -> Values:
        """Sum of products of deviations from each side's mean, over both sides."""
        sides = ("arm", "baseline")
        each = [
            sums[f"{side}_{one}{other}"] - sums[f"{side}_{one}"] * sums[f"{side}_{other}"] / sums["pairs"]
            for side in sides
        ]
        return np.asarray(each[0] + each[1], dtype=np.float64)

    xx, xo, oo, xy, oy = spread("x", "x"), spread("x", "o"), spread("o", "o"), spread("x", "y"), spread("o", "y")
    on_before = np.where(oo > 0, 1 / np.where(oo > 0, oo, 1.0), 0.0)
    free = xx - xo * xo * on_before
    return np.asarray((xy - xo * oy * on_before) / np.where(free > NONE * xx, free, np.nan), dtype=np.float64)


def _with_baseline_reuse(sums: Sums) -> Values:
    """Sum of the arm's E2E latencies with the baseline's reuse; not finite if it is not positive."""
    e2e = sums["arm_e2e"] - _token_ms(sums) * sums["delays"]
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
