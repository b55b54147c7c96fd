"""The pairs with the baseline at each place of a curve, and what is measured over them.

On a declared axis (temperature, draft length, load) the place belongs to a whole cell. On a measured axis (a length) it
belongs to each request: requests are sorted into classes around 1,024, 2,048, … (from 2^(k − 1/2) to 2^(k + 1/2)), so
that prompts of a nominal length are in one class with any tokenizer. A class pools cells of the curve with different
prompts or different limits.

Rows are in column stores. In memory are the pairs of one cell, on a measured axis those of one curve: 12 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.stored_result import CellKey
from specbench_client.analysis.curves.axes import AxisKind
from specbench_client.analysis.curves.grouping import CellGroup, CurveCell, dataset_of
from specbench_client.analysis.estimates.speedups import (
    OVER_PAIRS,
    SPEEDUP,
    PairedSpeedup,
    paired_speedup,
    sum_pairs,
)
from specbench_client.analysis.statistics.log_ratio import LogRatio, log_ratio
from specbench_client.metrics.decode_speed import later_tokens
from specbench_client.metrics.pairing import BASELINE, Pairs, PairSide, pair_requests
from specbench_client.metrics.rows import Columns, LazyColumns, Rows, TextCodes, iter_pieces, text_codes
from specbench_client.metrics.tidy_frame import Values, numbers

LENGTH_DEFINITION = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {OVER_PAIRS}"


@dataclass(frozen=True)
class MeasuredSample:
    """Speed-up and acceptance length at one place. `length`: None if the engine does not report its steps."""

    place: float
    label: str
    cells: Sequence[CurveCell]
    """Where its pairs come from."""
    pairs: int
    compared: PairedSpeedup
    length: LogRatio | None

    @property
    def seed(self) -> int:
        """Seed of its resamples."""
        return self.cells[0].workload.sampling.seed

    @property
    def drafts(self) -> int:
        """Largest number of draft tokens per step of its arms."""
        return max(cell.arm.most_drafts for cell in self.cells)


def measured_samples(kind: AxisKind, groups: Sequence[CellGroup]) -> list[list[MeasuredSample]]:
    """Return the samples of each curve, the smallest place first; on a declared axis one per cell."""
    if kind.place is None:
        return [list(_by_class(kind, group.cells)) for group in groups]
    slots: dict[tuple[int, str, str], list[CurveCell]] = {}
    for cell in (cell for group in groups for cell in group.cells):
        slots.setdefault((id(cell.result), *cell.key[1:]), []).append(cell)
    found: dict[int, MeasuredSample] = {}
    for cells in slots.values():
        baseline = _rows_of(cells[0], (BASELINE_NAME, *cells[0].key[1:]))
        for cell in cells:
            place = kind.place(cell.arm, cell.workload, cell.level)
            if place is not None:
                pairs = pair_requests(_rows_of(cell, cell.key), baseline, cell.result.plan)
                found[id(cell)] = _measured(place, f"{place:g}", [cell], pairs)
    each = ([found[id(cell)] for cell in group.cells if id(cell) in found] for group in groups)
    return [sorted(samples, key=lambda sample: sample.place) for samples in each]


def _rows_of(cell: CurveCell, key: CellKey) -> Rows:
    return cell.result.rows_of(cell.result.points_of(key))


def _measured(place: float, label: str, cells: Sequence[CurveCell], pairs: Pairs) -> MeasuredSample:
    """Measure speed-up and acceptance length over the same pairs."""
    seed = cells[0].workload.sampling.seed
    length = log_ratio(sum_pairs(pairs, 2, _length_parts), (1, -1), seed)
    return MeasuredSample(place, label, cells, len(pairs.rows), paired_speedup(SPEEDUP, pairs, seed), length)


def _length_parts(arm: PairSide, _: PairSide) -> list[Values]:
    steps = numbers(arm, "steps")
    return [later_tokens(arm), np.where(steps >= 1, steps, np.nan)]


def _by_class(kind: AxisKind, cells: Sequence[CurveCell]) -> Iterator[MeasuredSample]:
    pairs = [
        pair_requests(_rows_of(cell, cell.key), _rows_of(cell, (BASELINE_NAME, *cell.key[1:])), cell.result.plan)
        for cell in cells
    ]
    classes = [_classes(numbers(each.rows, kind.column + BASELINE)) for each in pairs]
    for number in np.unique(np.concatenate(classes)):
        if number >= 0:
            inside = [each.among(mine == number) for each, mine in zip(pairs, classes, strict=True)]
            sources = [(cell, each) for cell, each in zip(cells, inside, strict=True) if len(each.rows)]
            pooled = PooledPairs([(f"{dataset_of(cell)[:16]}/", each.rows) for cell, each in sources])
            place = float(np.exp(np.log(numbers(pooled, kind.column + BASELINE)).mean()))
            alternating, anytime = all(each.alternating for each in inside), any(each.anytime for each in inside)
            together = Pairs(pooled, len(pooled), 0, alternating, anytime)
            yield _measured(place, f"about {2 ** int(number):,.0f}", [cell for cell, _ in sources], together)


def _classes(lengths: Values) -> NDArray[np.int8]:
    """Return the class of each length, shape (pairs,): the nearest power of 2; −1 if the length is not known."""
    known = lengths >= 1
    return np.where(known, np.round(np.log2(np.where(known, lengths, 1.0))), -1.0).astype(np.int8)


@dataclass(frozen=True)
class PooledPairs(LazyColumns):
    """The pairs of several cells as one table. Prompts of different datasets are different prompts.

    `cells`: a prefix of the names of the prompts, and the pairs, of each cell.
    """

    cells: Sequence[tuple[str, Columns]]
    vocabularies: dict[str, dict[str, int]] = field(default_factory=dict)
    """The code of each text, by column; extended by `codes`, and the same in all pieces."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.cells)

    def __contains__(self, name: object) -> bool:
        return all(name in rows for _, rows in self.cells)

    def __getitem__(self, name: str) -> pd.Series:
        if len(self.cells) == 1 and name != "prompt_id":
            return self.cells[0][1][name]
        if name == "prompt_id":
            found = self.codes(name)
            return pd.Series(found.texts[found.codes], dtype=object)
        return pd.concat([rows[name] for _, rows in self.cells], ignore_index=True)

    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes."""
        known = self.vocabularies.setdefault(name, {})
        codes = []
        for prefix, rows in self.cells:
            found = text_codes(rows, name)
            texts = (f"{prefix}{text}" if name == "prompt_id" else str(text) for text in found.texts)
            numbers_of = np.array([*(known.setdefault(text, len(known)) for text in texts), -1], dtype=np.int32)
            codes.append(numbers_of[found.codes])
        return TextCodes(np.concatenate(codes), np.array([*known], dtype=np.object_))

    def pieces(self) -> Iterator[PooledPairs]:
        """Yield the pairs piece by piece."""
        for prefix, rows in self.cells:
            for piece in iter_pieces(rows):
                yield PooledPairs([(prefix, piece)], self.vocabularies)
