"""The steps of a cell whose place is known, as tables of sums, a piece of its rows each; slices are cut from them.

Classes are few and steps are many: whoever sums over them does so piece by piece. The sums are of whole numbers, so
they are the same however the rows are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specbench_client.metrics.frame import Mask, numbers, walks
from specbench_client.metrics.rows import Columns, pieces
from specbench_client.metrics.walk import THOUGHT, classes

Codes = NDArray[np.integer]
Dimension = Literal["position", "context", "part"]


@dataclass(frozen=True)
class Places:
    """One entry a row and class of place: see `metrics.walk`. `row`: which row of the cell it is of."""

    row: Codes
    position: Codes
    context: Codes
    part: Codes
    steps: Codes
    tokens: Codes

    def of(self, dimension: Dimension) -> Codes:
        """Return the class of each entry."""
        return {"position": self.position, "context": self.context, "part": self.part}[dimension]


@dataclass(frozen=True)
class Steps:
    """The steps of steady tidy rows. `mine`: which rows are meant, one flag a row; None for all."""

    rows: Columns
    mine: Mask | None = None

    def pieces(self) -> Iterator[Places]:
        """Yield the steps of one piece of the rows after the other."""
        begun = 0
        for piece in pieces(self.rows):
            size = len(piece)
            meant = _telling(piece) if self.mine is None else _telling(piece) & self.mine[begun : begun + size]
            yield _places(piece, meant, begun)
            begun += size

    def among(self, mine: Mask) -> Steps:
        """Return the steps of these rows alone, of all rows that there are."""
        return Steps(self.rows, mine)

    @cached_property
    def share(self) -> float | None:
        """Of the rows that tell their steps, the share that could be placed; None where none tells them."""
        told = [(_telling(piece), walks(piece).known) for piece in pieces(self.rows)]
        telling = sum(int(tells.sum()) for tells, _ in told)
        return sum(int((tells & known).sum()) for tells, known in told) / telling if telling else None

    @cached_property
    def thoughts(self) -> bool:
        """Whether any step wrote a thought."""
        return any(bool((piece.part == THOUGHT).any()) for piece in self.pieces())


def _telling(rows: Columns) -> Mask:
    """Which rows tell their steps: those whose acceptance is not believed do not any more."""
    telling: Mask = (numbers(rows, "steps") >= 1) & rows["acceptance_source"].notna().to_numpy(np.bool_)
    return telling


def _places(rows: Columns, meant: Mask, begun: int) -> Places:
    """The steps of these rows, of which the first has the number `begun` in the cell."""
    kept = walks(rows)
    codes, steps, tokens = (field[meant[kept.owner]] for field in kept.fields)
    return Places(kept.owner[meant[kept.owner]] + begun, *classes(codes), steps, tokens)
