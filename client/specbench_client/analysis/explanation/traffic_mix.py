"""Projects measured speed-ups and acceptance lengths onto another traffic mix.

A mix is shares w_c of requests. A mean request of category c has T_c tokens and E_c seconds of stream time with the
arm, T₀_c and E₀_c with the baseline, (T_c − 1) later tokens and s_c steps. Tokens and seconds of the mix are sums over
its requests, so the measured ratios of sums stay ratios of sums:

    speed-up = (Σ w·T / Σ w·E) ÷ (Σ w·T₀ / Σ w·E₀)          acceptance length = Σ w·(T − 1) / Σ w·s

If both sides answered alike, the speed-up is 1 / Σ (τ_c / S_c), the harmonic mean of the categories' speed-ups S_c with
their shares τ_c of the *baseline's time*. The acceptance length is the mean with their shares of *steps*, or the
harmonic mean with their shares of tokens. A mean of speed-ups by shares of requests is neither, and too large.

The interval is that of every other ratio (`analysis.statistics.intervals`), with prompts resampled within their
category; for the measured mix it equals the interval of the speed-up. The projection assumes that a request of a
category takes as long as it did among the categories of the measured mix, which the records cannot show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.estimates.speedups import missing_speedup as no_speedup
from specbench_client.analysis.estimates.speedups import pair_layout
from specbench_client.analysis.statistics.bootstrap import ResamplingLayout
from specbench_client.analysis.statistics.effects import resampled_effect
from specbench_client.analysis.statistics.intervals import ResampledFigure, resample_sums
from specbench_client.analysis.statistics.row_layout import CellSums
from specbench_client.documents.explanation import MixCategory, MixEstimate, MixPrediction
from specbench_client.documents.figure import Figure
from specbench_client.documents.summary import Cell
from specbench_client.errors import BadInput, EvidenceInsufficient
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import distinct_texts, has_text
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.metrics.time_per_token import timed_tokens
from specbench_client.numpy_columns import Values

# A sum over the mix is Σ w · (sum over a category's requests ÷ their number), where w is the category's share of the
# mix's requests. So a prompt counts w ÷ (its category's share of the measured requests) times as much as it was
# measured. If a category of few prompts is most of the mix, these prompts determine the interval's degrees of freedom.

PARTS = ("tokens", "time", "tokens_baseline", "time_baseline", "requests", "later", "steps", "with_steps")
"""What is summed; the last three over the requests with reported steps."""
_TOKENS, _TIME, BASELINE_TOKENS, BASELINE_TIME, _REQUESTS, _LATER, _STEPS, _WITH_STEPS = range(len(PARTS))
MixExponents = Mapping[int, int]
"""Exponents of the mix's sums in a ratio, by the index of the part."""
SPEED: MixExponents = {_TOKENS: 1, _TIME: -1, BASELINE_TOKENS: -1, BASELINE_TIME: 1}
ACCEPTANCE: MixExponents = {_LATER: 1, _STEPS: -1}


@dataclass(frozen=True)
class MixSums:
    """The sums of each category by repeat and prompt, and the weight of each category."""

    layout: ResamplingLayout
    matrices: Values
    """Shape (categories, parts, repeats, prompts)."""
    weights: Values
    """Shape (categories,)."""

    @classmethod
    def of(cls, layout: ResamplingLayout, matrices: Values, shares: Mapping[str, float]) -> MixSums:
        """Weigh the sums of each category by its share."""
        weights = np.array(list(shares.values()))
        requests = matrices[:, _REQUESTS].sum(axis=1)
        counts_more = (weights / requests.sum(axis=1))[requests.argmax(axis=0)]
        return cls(replace(layout, weight_of=counts_more), matrices, weights)

    @property
    def whole(self) -> Values:
        """Sums of each category, shape (categories, parts)."""
        return np.asarray(self.matrices.sum(axis=(2, 3)), dtype=np.float64)

    @property
    def means(self) -> Values:
        """Means per request of each category, shape (categories, parts)."""
        return _means(self.whole)

    def ratios(self, powers: MixExponents) -> Values:
        """Return a ratio within each category, shape (categories,); not finite where a sum is missing."""
        return np.asarray(np.exp(_log(self.means, powers)), dtype=np.float64)

    def levels(self, powers: MixExponents, seed: int) -> ResampledFigure | None:
        """Return a log ratio of the mix's sums with its resamples; None if a sum is missing."""
        value = float(_log(self._mixed(self.whole), powers))
        if not np.isfinite(value):
            return None
        categories, parts, _, prompts = self.matrices.shape
        drawn = resample_sums(list(self.matrices.reshape(categories * parts, -1, prompts)), self.layout, seed)
        by_repeat = np.moveaxis(self.matrices.sum(axis=3), 2, 0)
        samples, repeats = (
            _log(self._mixed(each), powers) for each in (drawn.reshape(-1, categories, parts), by_repeat)
        )
        return ResampledFigure(value, samples, self._influence(powers), repeats)

    def _mixed(self, sums: Values) -> Values:
        """Weigh the categories: shape (…, categories, parts) to (…, parts)."""
        return np.asarray((_means(sums) * self.weights[:, np.newaxis]).sum(axis=-2), dtype=np.float64)

    def _influence(self, powers: MixExponents) -> Values:
        """Return the influence of each repeat × prompt on the log ratio, shape (repeats, prompts).

        It changes its category's mean by (sum − mean × requests) ÷ requests of the category, the mix's sum by w times
        that, and the log by that over the mix's sum.
        """
        mixed, means, moved = self._mixed(self.whole), self.means, np.zeros(self.matrices.shape[2:])
        for part, power in powers.items():
            counted = _counted(part)
            for mine, mean, weight in zip(self.matrices, means, self.weights, strict=True):
                deviation = mine[part] - mean[part] * mine[counted]
                moved += power * weight / mixed[part] * deviation / mine[counted].sum()
        return moved


def _counted(part: int) -> int:
    """Return the index of the part with the number of requests over which a part is summed."""
    return _REQUESTS if part < _LATER else _WITH_STEPS


def _means(sums: Values) -> Values:
    """Divide sums by their numbers of requests; shape (…, parts) stays the same."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / sums[..., [_counted(part) for part in range(len(PARTS))]], dtype=np.float64)


def _log(sums: Values, powers: MixExponents) -> Values:
    """Return Σ power × log(sum): shape (…, parts) to (…)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(sums[..., list(powers)]) * np.array(list(powers.values()))
    return np.asarray(logs.sum(axis=-1), dtype=np.float64)


SPEEDUP = (
    "Predicted for the mix: (Σ w·T / Σ w·E) of the arm ÷ (Σ w·T / Σ w·E) of the baseline, w: share of requests, T and"
    " E: tokens and stream time of a category's mean request, over paired requests"
)
LENGTH = "Predicted for the mix: Σ w·(T − 1) / Σ w·s, w: share of requests, s: steps of a category's mean request"


def normalized_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Return shares that sum to 1, without those of 0. At least one must be positive."""
    whole = sum(shares.values())
    return {name: value / whole for name, value in shares.items() if value > 0}


def request_shares(shares: Mapping[str, float], pairs: Pairs) -> dict[str, float] | None:
    """Convert shares of output tokens to shares of requests, with the baseline's mean answer length by category.

    None if the baseline's answers of a category have no tokens, or their tokens were not counted.
    """
    answers = {name: numbers(pairs.of_category(name).baseline, "tokens") for name in shares}
    counted = {name: tokens[~np.isnan(tokens)] for name, tokens in answers.items()}
    if any(not tokens.sum() > 0 for tokens in counted.values()):
        return None
    return normalized_shares({name: share / float(counted[name].mean()) for name, share in shares.items()})


def project_mix(pairs: Pairs, shares: Mapping[str, float], seed: int) -> MixEstimate | None:
    """Project an arm onto a mix; None if a category has no pair with all parts. `shares`: of requests, summing to 1."""
    by_category = _sums_by_category(_of_mix(pairs, shares), shares)
    if not all(each.counts.any() for each in by_category):
        return None
    counts = np.sum([each.counts for each in by_category], axis=0)
    known = np.ix_(counts.any(axis=1), counts.any(axis=0))
    matrices = np.array([[matrix[known] for matrix in each.matrices] for each in by_category])
    sums = MixSums.of(by_category[0].layout.of_cells(counts), matrices, shares)
    return MixEstimate(
        speedup=_figure(SPEEDUP, "ratio", sums, SPEED, seed),
        acceptance_length=_figure(LENGTH, "tokens/step", sums, ACCEPTANCE, seed).within(1.0),
        categories=_mix_categories(list(shares), sums),
    )


def _of_mix(pairs: Pairs, shares: Mapping[str, float]) -> Pairs:
    found = pairs.baseline.codes("category")
    in_mix = np.array([*(text in shares for text in found.texts), False])
    return pairs.among(in_mix[found.codes])


def _sums_by_category(pairs: Pairs, categories: Collection[str]) -> list[CellSums]:
    """Sum the parts of each category's pairs, piece by piece; pairs with an impossible or unknown time are left out."""
    layout = pair_layout(pairs)
    found = [CellSums(layout, len(PARTS)) for _ in categories]
    for piece in pairs.pieces():
        parts = _parts(piece)
        whole = (parts[:4] > 0).all(axis=0)  # False for NaN
        for name, sums in zip(categories, found, strict=True):
            mine = whole & has_text(piece.baseline, "category", name)
            sums.add([np.where(mine, part, np.nan) for part in parts])
    return found


def _parts(pairs: Pairs) -> Values:
    """Return the parts of each pair, shape (len(PARTS), pairs)."""
    (tokens, time), (baseline, baseline_time) = (
        (timed_tokens(rows), numbers(rows, "last_token_ns") - numbers(rows, "intended_ns"))
        for rows in (pairs.arm, pairs.baseline)
    )
    later, steps = numbers(pairs.arm, "tokens") - 1, numbers(pairs.arm, "steps")
    reported = ~np.isnan(steps)
    acceptance = (np.where(reported, each, 0.0) for each in (later, steps, 1.0))
    return np.stack([tokens, time, baseline, baseline_time, np.ones(len(pairs)), *acceptance])


def _figure(definition: str, unit: str, sums: MixSums, powers: MixExponents, seed: int) -> Figure:
    levels = sums.levels(powers, seed)
    if levels is None:
        return Figure(unit=unit, definition=definition, n=0, source="both")
    return resampled_effect(levels, sums.layout).figure(definition, unit)


def _mix_categories(names: Sequence[str], sums: MixSums) -> list[MixCategory]:
    means, speedups, lengths = sums.means, sums.ratios(SPEED), sums.ratios(ACCEPTANCE)
    tokens, time = (sums.weights * means[:, place] for place in (BASELINE_TOKENS, BASELINE_TIME))
    return [
        MixCategory(
            category=name,
            requests_share=float(sums.weights[place]),
            tokens_share=float(tokens[place] / tokens.sum()),
            time_share=float(time[place] / time.sum()),
            acceptance_length=float(lengths[place]) if np.isfinite(lengths[place]) else None,
            speedup=float(speedups[place]),
        )
        for place, name in enumerate(names)
    ]


@dataclass(frozen=True)
class TrafficMix:
    """Shares by category, of requests or of output tokens; they need not sum to 1."""

    shares: Mapping[str, float]
    by_tokens: bool = False


def predict_mix(result: StoredResult, cells: Sequence[Cell], mix: TrafficMix) -> list[MixPrediction]:
    """Project each of these cells onto the mix. Raises BadInput for categories that were not measured."""
    cells = [cell for cell in cells if cell.arm != BASELINE_NAME and cell.speedup is not None]
    if not cells:
        remedy = "measure its arms together with a baseline"
        raise EvidenceInsufficient(
            f"this run compared nothing with a baseline, so it has no speed-up: {remedy}", "NotCompared"
        )
    return [found for cell in cells if (found := _predicted(result, cell, mix)) is not None]


def _predicted(result: StoredResult, cell: Cell, mix: TrafficMix) -> MixPrediction | None:
    pairs = _pairs(result, cell)
    if pairs is None:
        return None
    _reject_missing(mix.shares, pairs, cell)
    seed = result.plan.workload(cell.workload).sampling.seed
    shares = request_shares(normalized_shares(mix.shares), pairs) if mix.by_tokens else normalized_shares(mix.shares)
    found = project_mix(pairs, shares, seed) if shares else None
    if found is None:
        return None
    measured = cell.speedup or no_speedup("speedup")
    place = {"arm": cell.arm, "workload": cell.workload, "load": cell.level.label}
    return MixPrediction(**dict(found), **place, measured_speedup=measured, valid=cell.valid)


def _pairs(result: StoredResult, cell: Cell) -> Pairs | None:
    """Return the cell's pairs; None if its records or the baseline's are gone."""
    sides = [result.points_of((arm, cell.workload, cell.level.label)) for arm in (cell.arm, BASELINE_NAME)]
    if not all(sides):
        return None
    arm, baseline = (result.rows_of(points) for points in sides)
    return pair_requests(arm, baseline, result.plan)


def _reject_missing(shares: Mapping[str, float], pairs: Pairs, cell: Cell) -> None:
    measured = distinct_texts(pairs.baseline, "category")
    missing = sorted(set(shares) - set(measured))
    if missing:
        known = ", ".join(measured) or "none: its prompts have no category"
        what = f"{', '.join(missing)} of the mix was not measured on workload {cell.workload}"
        remedy = f"measured are {known}: measure it, or choose another workload with --workload"
        raise BadInput(f"{what} (arm {cell.arm} at {cell.level.label}): {remedy}", "CategoryMissing")


def cells_of(result: StoredResult, workload: str | None) -> Sequence[Cell]:
    """Return the cells of one workload, or all cells. Raises BadInput if there is no such workload."""
    names = [each.name for each in result.plan.workloads]
    if workload is not None and workload not in names:
        raise BadInput(f"--workload {workload}: this run has {', '.join(names)}", "NoSuchWorkload")
    return [cell for cell in result.summary.cells if workload in (None, cell.workload)]
