"""Collects the pairs with the baseline at each place of a curve, and measures speed-up and acceptance length there.

On a declared axis (temperature, draft length, load) the place belongs to a whole cell. On a measured axis (a length) it
belongs to each request: requests are sorted into classes around 1,024, 2,048, … (from 2^(k − 1/2) to 2^(k + 1/2)), so
that prompts of a nominal length are in one class with any tokenizer. A class pools cells of the curve with different
prompts or different limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AxisKind
from specbench_client.analysis.curves.grouping import CurveCell, dataset_of
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.analysis.estimates.speedups import (
    OVER_PAIRS,
    SPEEDUP,
    PairedSpeedup,
    complete_pairs,
    paired_speedup,
)
from specbench_client.analysis.statistics.log_ratio import LogRatio, log_ratio
from specbench_client.metrics.decode_speed import later_tokens
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs, pair_requests
from specbench_client.metrics.tidy_frame import Mask, Values, numbers


@dataclass(frozen=True)
class PairedSample:
    """Pairs at one place of a curve. `cells`: where they come from."""

    place: float
    label: str
    pairs: Pairs
    cells: Sequence[CurveCell]

    @property
    def drafts(self) -> int:
        """Largest number of draft tokens per step of its arms."""
        return max(cell.arm.most_drafts for cell in self.cells)


def paired(cell: CurveCell, baseline: pd.DataFrame) -> Pairs:
    """Pair the cell's requests with these rows of the baseline."""
    return pair_requests(rows_in(cell.result, cell.key), baseline)


def rows_in(result: StoredResult, key: tuple[str, str, str]) -> pd.DataFrame:
    """Read the rows of a cell whose records are stored."""
    return load_rows(result.plan, result.points_of(key), result.records)


def paired_samples(kind: AxisKind, cells: Sequence[tuple[CurveCell, Pairs]]) -> list[PairedSample]:
    """Return the samples of one curve, the smallest place first; on a declared axis one per cell."""
    if kind.place is None:
        return _by_class(kind, cells)
    found = [
        PairedSample(place, f"{place:g}", pairs, [cell])
        for cell, pairs in cells
        if (place := kind.place(cell.arm, cell.workload, cell.level)) is not None
    ]
    return sorted(found, key=lambda sample: sample.place)


def _by_class(kind: AxisKind, cells: Sequence[tuple[CurveCell, Pairs]]) -> list[PairedSample]:
    named = [_named(index, cell, pairs) for index, (cell, pairs) in enumerate(cells)]
    rows = pd.concat(named, ignore_index=True)
    lengths = rows[kind.column + BASELINE].to_numpy(np.float64)
    known: Mask = np.asarray(lengths >= 1, dtype=np.bool_)
    classes = np.where(known, np.round(np.log2(np.where(known, lengths, 1.0))), -1.0)
    return list(_of_classes(rows, lengths, classes, [cell for cell, _ in cells]))


def _of_classes(
    rows: pd.DataFrame, lengths: Values, classes: Values, cells: Sequence[CurveCell]
) -> Iterator[PairedSample]:
    for each in np.unique(classes[classes >= 0]):
        mine = classes == each
        inside = rows[mine].reset_index(drop=True)
        place = float(np.exp(np.log(lengths[mine]).mean()))
        sources = [cells[index] for index in sorted(set(inside["cell"]))]
        yield PairedSample(place, f"about {2**each:,.0f}", Pairs(inside, len(inside), 0), sources)


def _named(index: int, cell: CurveCell, pairs: Pairs) -> pd.DataFrame:
    """Return the pairs with the index of their cell, and with prompt ids that differ between datasets."""
    prefix = dataset_of(cell)[:16]
    table = pairs.table
    return table.assign(cell=index, prompt_id=[f"{prefix}/{prompt}" for prompt in table["prompt_id"]])


LENGTH_DEFINITION = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {OVER_PAIRS}"


@dataclass(frozen=True)
class MeasuredSample:
    """Speed-up and acceptance length at one place. `length`: None if the engine does not report its steps."""

    sample: PairedSample
    compared: PairedSpeedup
    length: LogRatio | None

    @property
    def seed(self) -> int:
        """Seed of its resamples."""
        return self.sample.cells[0].workload.sampling.seed


def measure_sample(sample: PairedSample) -> MeasuredSample:
    """Measure speed-up and acceptance length over the same pairs."""
    seed = sample.cells[0].workload.sampling.seed
    side = sample.pairs.side(ARM)
    steps = numbers(side, "steps")
    rows, parts = complete_pairs(sample.pairs, [later_tokens(side), np.where(steps >= 1, steps, np.nan)])
    return MeasuredSample(sample, paired_speedup(SPEEDUP, sample.pairs, seed), log_ratio(rows, parts, (1, -1), seed))
