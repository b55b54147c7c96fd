"""The rows of several points as one table, as far as they are believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from specbench_api.outcome.summary import PointSummary
from specbench_api.plan.plan import Plan, Point
from specbench_client.metrics.frame import stacked, tidy
from specbench_client.metrics.lists import POINT_ALONE
from specbench_client.trust.drafting import believed
from specbench_client.trust.evidence import PointEvidence

Parts = Iterable[pd.DataFrame]
"""The records of a point, cut anywhere; read once."""


def rows_of(plan: Plan, points: Sequence[PointSummary], records: Mapping[str, Parts]) -> pd.DataFrame:
    """Tidy rows of these points, in their order, without what a single point's checks ask for.

    `records`: the point's hash → its records.
    """
    return stacked([_rows(plan, point, records[point.hash]) for point in points])


def _rows(plan: Plan, summary: PointSummary, parts: Parts) -> pd.DataFrame:
    """One point's rows. Acceptance that was only inferred, and that counters refute, is taken out."""
    point = Point(
        hash=summary.hash, arm=summary.arm, workload=summary.workload, level=summary.level, repeat=summary.repeat
    )
    rows = believed(PointEvidence(plan, point, tidy(parts, point.hash), summary.self_watch, summary.counters))
    return rows.drop(columns=list(POINT_ALONE))
