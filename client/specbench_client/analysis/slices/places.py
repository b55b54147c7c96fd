"""All steps of a cell whose place is known, as one table of sums; what slices of steps are cut from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.walk import Walk

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Places:
    """One entry a row of the cell and class of place: see `metrics.walk`. `row`: which row of the cell it is of."""

    row: Codes
    position: Codes
    context: Codes
    part: Codes
    steps: Values
    tokens: Values
    share: float | None
    """Of the rows that tell their steps, the share that could be placed; None where none tells them."""

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Places:
        """Read them from steady tidy rows. Rows whose acceptance is not believed tell no steps any more."""
        telling = (numbers(rows, "steps") >= 1) & rows["acceptance_source"].notna().to_numpy(bool)
        walks: list[Walk | None] = list(rows["walk"])
        told = [(row, walk) for row, walk in enumerate(walks) if walk is not None and telling[row]]
        sizes = [walk.shape[1] for _, walk in told]
        flat = np.concatenate([walk for _, walk in told], axis=1) if told else np.empty((5, 0), dtype=np.int32)
        position, context, part = (flat[index].astype(np.intp) for index in range(3))
        steps, tokens = (flat[index].astype(np.float64) for index in (3, 4))
        share = len(told) / int(telling.sum()) if telling.any() else None
        row = np.repeat(np.array([row for row, _ in told], dtype=np.intp), sizes)
        return cls(row, position, context, part, steps, tokens, share)

    def among(self, mine: Mask) -> Places:
        """Return the entries of these rows alone. `mine`: one flag a row of the cell."""
        return self._where(mine[self.row])

    def _where(self, kept: Mask) -> Places:
        columns = (self.row, self.position, self.context, self.part)
        row, position, context, part = (column[kept] for column in columns)
        return Places(row, position, context, part, self.steps[kept], self.tokens[kept], self.share)
