"""All steps of a cell whose place is known, as one table of sums; what slices of steps are cut from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.frame import Mask, numbers, walks
from specbench_client.metrics.walk import classes

Codes = NDArray[np.integer]


@dataclass(frozen=True)
class Places:
    """One entry a row of the cell and class of place: see `metrics.walk`. `row`: which row of the cell it is of."""

    row: Codes
    position: Codes
    context: Codes
    part: Codes
    steps: Codes
    tokens: Codes
    share: float | None
    """Of the rows that tell their steps, the share that could be placed; None where none tells them."""

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Places:
        """Read them from steady tidy rows. Rows whose acceptance is not believed tell no steps any more."""
        telling = (numbers(rows, "steps") >= 1) & rows["acceptance_source"].notna().to_numpy(bool)
        kept = walks(rows)
        codes, steps, tokens = kept.fields
        share = int((kept.known & telling).sum()) / int(telling.sum()) if telling.any() else None
        places = cls(kept.owner, *classes(codes), steps, tokens, share)
        return places if telling.all() else places.among(telling)

    def among(self, mine: Mask) -> Places:
        """Return the entries of these rows alone. `mine`: one flag a row of the cell."""
        return self._where(mine[self.row])

    def _where(self, kept: Mask) -> Places:
        columns = (self.row, self.position, self.context, self.part)
        row, position, context, part = (column[kept] for column in columns)
        return Places(row, position, context, part, self.steps[kept], self.tokens[kept], self.share)
