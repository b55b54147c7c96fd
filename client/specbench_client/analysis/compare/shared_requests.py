"""The requests that two results share: the rows and pairs of each side, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.estimates.speedups import pair_layout
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout, layout_of
from specbench_client.metrics.pairing import HISTORY, ROW, Pairs, iter_by_prompt, keyed_requests
from specbench_client.metrics.rows import Table, group_numbers, join_tables
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER
from specbench_client.numpy_columns import Mask, Values

# Two results share the requests that both answered, and each of them has the same weight on both sides.
#
# A request is identified by its prompt, its pass over the prompts, its turn, and its history (all earlier replies; a
# later turn with another history is another prompt). Requests that only one side answered are left out. If one side
# answered a request in more repeats than the other, because of its number of repeats or of the edges of its steady
# state, each of these rows has less weight: otherwise its mix might have more of the slow prompts, and look slower.

REQUEST_KEY = ["prompt_id", "pass", "turn", HISTORY]
"""The columns that identify a request."""
RequestNumbers = NDArray[np.int32]
"""The number of each row's request, shape (rows,): the same on both sides; −1 for rows that are in no figure."""


@dataclass(frozen=True)
class MeasuredArm:
    """Rows of one arm at one workload and load over all repeats, and their pairs with the baseline of the same run."""

    rows: Table
    pairs: Pairs | None


@dataclass(frozen=True)
class ComparedArm:
    """One arm on both sides."""

    before: MeasuredArm
    after: MeasuredArm

    @cached_property
    def by_request(self) -> tuple[NumberedRows, NumberedRows]:
        """The rows of both sides."""
        rows = self.before.rows, self.after.rows
        numbers = _number_requests(rows)
        before, after = (NumberedRows(*each, layout_of(each[0])) for each in zip(rows, numbers, strict=True))
        return before, after

    @cached_property
    def by_pair(self) -> tuple[NumberedRows, NumberedRows] | None:
        """The pairs of both sides; None if one has no baseline."""
        if self.before.pairs is None or self.after.pairs is None:
            return None
        assert all(side.rows.where is None for side in (self.before, self.after)), "pairs have indices of these rows"
        before, after = (
            NumberedRows(pairs, side.requests[pairs.arm.where], pair_layout(pairs))
            for side, pairs in zip(self.by_request, (self.before.pairs, self.after.pairs), strict=True)
        )
        return before, after


@dataclass(frozen=True)
class NumberedRows:
    """Rows or pairs of one side, with the number of each one's request."""

    rows: Table | Pairs
    requests: RequestNumbers
    layout: RowLayout

    def pieces(self, of: RequestParts) -> Iterator[tuple[slice, Sequence[Values]]]:
        """Yield the parts of the rows, piece by piece, and where the piece is."""
        start = 0
        for piece in self.rows.pieces():
            some = slice(start, start + len(piece))
            yield some, of(piece)
            start = some.stop


RequestParts = Callable[[Any], Sequence[Values]]
"""Returns the numbers of each row, or of each pair, that a figure is computed from, shape (rows,) each."""


def _number_requests(
    sides: tuple[Table, Table],
) -> tuple[RequestNumbers, RequestNumbers]:
    """Number the steady requests of both sides, a few prompts at a time; not later turns with an unknown history."""
    before, after = (np.full(len(side), -1, dtype=np.int32) for side in sides)
    count = 0
    for places in iter_by_prompt(sides):
        keyed = [keyed_requests(rows, at) for rows, at in zip(sides, places, strict=True)]
        known = [each.among(each.known(HISTORY)) for each in keyed]
        rows, both = [each.array(ROW) for each in known], join_tables(known)
        numbers = group_numbers(*(both.column(name) for name in REQUEST_KEY)).astype(np.int32) + np.int32(count)
        before[rows[0]], after[rows[1]] = np.split(numbers, [rows[0].size])
        count = max(count, int(numbers.max(initial=count - 1)) + 1)
    return before, after


@dataclass(frozen=True)
class SharedRows:
    """The rows of one side that have all parts, and whose requests the other side has too."""

    of: NumberedRows
    mask: Mask
    times: NDArray[np.int32]
    """In how many of these rows each request is, shape (requests,)."""

    def weights(self, rows: slice | Mask) -> Values:
        """Return the weights of these rows: a request has the same weight on both sides, shape (rows,)."""
        return np.asarray(1.0 / np.maximum(self.times[self.of.requests[rows]], 1), dtype=np.float64)

    def sums(self, of: RequestParts, parts: int) -> tuple[RowLayout, list[Values]]:
        """Return the weighted sums of each part, shape (repeats, prompts), and their layout."""
        sums = CellSums(self.of.layout, parts)
        for some, each in self.of.pieces(of):
            weights = np.where(self.mask[some], self.weights(some), np.nan)
            sums.add([part * weights for part in each])
        return sums.among_known()


def shared_rows(sides: tuple[NumberedRows, NumberedRows], of: RequestParts) -> tuple[SharedRows, SharedRows] | None:
    """Return the rows of the requests that both sides have, without missing parts; None if there are none."""
    known, times = [], []
    most = max(int(side.requests.max(initial=-1)) for side in sides) + 1
    for side in sides:
        mask = side.requests >= 0
        for some, parts in side.pieces(of):
            mask[some] &= ~np.isnan(np.stack(parts)).any(axis=0)
        known.append(mask)
        times.append(_counts(side.requests, mask, most))
    common = (times[0] > 0) & (times[1] > 0)
    if not common.any():
        return None
    before, after = (
        SharedRows(side, mask & common[side.requests], count)
        for side, mask, count in zip(sides, known, times, strict=True)
    )
    return before, after


def _counts(requests: RequestNumbers, mask: Mask, most: int) -> NDArray[np.int32]:
    """Count the rows of each request among those selected by a mask."""
    counts = np.zeros(most, dtype=np.int32)
    for start in range(0, requests.size, NUMBERS_TOGETHER):
        some = slice(start, start + NUMBERS_TOGETHER)
        np.add.at(counts, requests[some][mask[some]], 1)
    return counts
