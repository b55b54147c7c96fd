"""A stored run's arms beside its baseline: the pairs of one cell, for what is asked of them afterwards."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.estimates.rows import rows_of
from specbench_client.drive.answered import Answered
from specbench_client.drive.conclude import Kept
from specbench_client.metrics.pairing import Pairs, pair
from specbench_client.store.point import PointStore


def pairs_of(run: Answered) -> dict[str, Pairs]:
    """Of each arm that was measured beside a measured baseline. Blocks. Raises NotDurable."""
    arms = [arm.name for arm in run.plan.arms if not arm.is_baseline]
    baseline = _rows(run, BASELINE_NAME)
    if baseline is None:
        return {}
    measured = {arm: _rows(run, arm) for arm in arms}
    return {arm: pair(rows, baseline) for arm, rows in measured.items() if rows is not None}


def _rows(run: Answered, arm: str) -> pd.DataFrame | None:
    points = PointStore(run.store, Path())
    manifests = points.manifests([point.hash for point in run.points(arm)])
    if not manifests:
        return None
    summaries = [points.read_summary(manifest) for manifest in manifests.values()]
    return rows_of(run.plan, summaries, Kept(points, manifests))
