"""From cells to what one place of a curve rests on: pairs with the baseline of the own run, and where they lie.

A declared place (a temperature, a draft length, a load) is a whole cell's. A measured one (a length) is that of each
request: requests are sorted into classes that are one power of two wide on either side of 1,024, 2,048, … (from
2^(k − 1/2) to 2^(k + 1/2)), so that prompts of a nominal length fall into one class however the tokenizer counts them.
Classes pool the cells of a curve that have other prompts or other limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.curves.against import Against
from specbench_client.analysis.curves.identity import Cell, dataset_of
from specbench_client.analysis.estimates.rows import rows_of
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.pairing import BASELINE, Pairs, pair


@dataclass(frozen=True)
class Sample:
    """Pairs of one place. `cells`: where they come from."""

    place: float
    label: str
    pairs: Pairs
    cells: Sequence[Cell]

    @property
    def drafts(self) -> int:
        """Most draft tokens a step of any of its arms."""
        return max(cell.arm.most_drafts for cell in self.cells)


def paired(cell: Cell, baseline: pd.DataFrame) -> Pairs:
    """The cell's pairs with these rows."""
    return pair(rows_in(cell.result, cell.key), baseline)


def rows_in(result: Result, key: tuple[str, str, str]) -> pd.DataFrame:
    """The rows of a cell of the result, whose records are there."""
    return rows_of(result.plan, result.points_of(key), result.records)


def sampled(against: Against, cells: Sequence[tuple[Cell, Pairs]]) -> list[Sample]:
    """The samples of one curve's cells, the smallest place first. Of a declared axis: one a cell."""
    if against.place is None:
        return _by_class(against, cells)
    found = [
        Sample(place, f"{place:g}", pairs, [cell])
        for cell, pairs in cells
        if (place := against.place(cell.arm, cell.workload, cell.level)) is not None
    ]
    return sorted(found, key=lambda sample: sample.place)


def _by_class(against: Against, cells: Sequence[tuple[Cell, Pairs]]) -> list[Sample]:
    named = [_named(index, cell, pairs) for index, (cell, pairs) in enumerate(cells)]
    rows = pd.concat(named, ignore_index=True)
    lengths = rows[against.column + BASELINE].to_numpy(np.float64)
    known: Mask = np.asarray(lengths >= 1, dtype=np.bool_)
    classes = np.where(known, np.round(np.log2(np.where(known, lengths, 1.0))), -1.0)
    return list(_of_classes(rows, lengths, classes, [cell for cell, _ in cells]))


def _of_classes(rows: pd.DataFrame, lengths: Values, classes: Values, cells: Sequence[Cell]) -> Iterator[Sample]:
    for each in np.unique(classes[classes >= 0]):
        mine = classes == each
        held = rows[mine].reset_index(drop=True)
        place = float(np.exp(np.log(lengths[mine]).mean()))
        of = [cells[index] for index in sorted(set(held["cell"]))]
        yield Sample(place, f"about {2**each:,.0f}", Pairs(held, len(held), 0), of)


def _named(index: int, cell: Cell, pairs: Pairs) -> pd.DataFrame:
    """Pairs with the cell that they are of, whose prompts are told apart from those of other data sets."""
    prefix = dataset_of(cell)[:16]
    table = pairs.table
    return table.assign(cell=index, prompt_id=[f"{prefix}/{prompt}" for prompt in table["prompt_id"]])
