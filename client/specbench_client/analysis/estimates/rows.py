"""The rows of several points as one table, as far as they are believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import pandas as pd

from specbench_api.outcome.summary import PointSummary
from specbench_api.plan.plan import Plan, Point
from specbench_client.metrics.blocks import Block, Words, laid_down, stacked, with_columns
from specbench_client.metrics.frame import tidied, tidy
from specbench_client.metrics.lists import POINT_ALONE
from specbench_client.metrics.rows import Rows
from specbench_client.shelf import Shelf
from specbench_client.trust.drafting import DRAFTING, believed
from specbench_client.trust.evidence import PointEvidence

Parts = Iterable[pd.DataFrame]
"""The records of a point, cut anywhere; read once."""


def rows_of(plan: Plan, points: Sequence[PointSummary], records: Mapping[str, Parts]) -> pd.DataFrame:
    """Tidy rows of these points, in their order, without what a single point's checks ask for.

    `records`: the point's hash → its records.
    """
    return stacked([_rows(plan, point, records[point.hash]) for point in points])


def rows_laid_down(plan: Plan, points: Sequence[PointSummary], records: Mapping[str, Parts], shelf: Shelf) -> Rows:
    """The same rows, laid on the shelf part by part: no more of them than a block is held."""
    words: dict[str, Words] = {}
    return Rows([block for point in points for block in _blocks(plan, point, records[point.hash], shelf, words)])


def _rows(plan: Plan, summary: PointSummary, parts: Parts) -> pd.DataFrame:
    """One point's rows."""
    rows = _believed(plan, summary, tidy(parts, summary.hash))
    return rows.drop(columns=list(POINT_ALONE))


def _blocks(plan: Plan, summary: PointSummary, parts: Parts, shelf: Shelf, words: dict[str, Words]) -> list[Block]:
    """One point's rows, laid down."""
    frames = (rows.drop(columns=list(POINT_ALONE)) for rows in tidied(parts, summary.hash))
    blocks = laid_down(frames, summary.hash, shelf, words)
    asked = Rows(blocks).read(DRAFTING)
    rows = _believed(plan, summary, asked)
    if rows is asked:
        return blocks
    begins = accumulate((block.size for block in blocks), initial=0)
    return [
        with_columns(block, rows.iloc[begun : begun + block.size], shelf, words)
        for block, begun in zip(blocks, begins, strict=False)
    ]


def _believed(plan: Plan, summary: PointSummary, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without acceptance that was only inferred and that counters refute; the very same where none is."""
    point = Point(
        hash=summary.hash, arm=summary.arm, workload=summary.workload, level=summary.level, repeat=summary.repeat
    )
    return believed(PointEvidence(plan, point, rows, summary.self_watch, summary.counters))
