"""A synthetic run stored in a results folder: plan, records, summaries and manifests, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.outcome.manifest import PointProvenance
from specbench_api.outcome.record import Record
from specbench_api.outcome.summary import PointSummary
from specbench_api.plan.plan import Plan, Point
from specbench_client.metrics.tidy_frame import COLUMNS, stored_columns, tidy
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_testing.synthetic_records import SyntheticRun, point_of

OBSERVED = PointProvenance(dataset_fingerprint="f", prompts=1, client_version="0", launch="0-a")
Edit = Callable[[Point, pd.DataFrame], pd.DataFrame]
SPAN = MeasurementSpan(0, "2030-01-02T03:04:05Z", "2030-01-02T03:05:05Z")


def store_results(
    world: SyntheticRun,
    results: Path,
    uid: str,
    points: int | None = None,
    *,
    edit: Edit = lambda _, frame: frame,
    observed: PointProvenance = OBSERVED,
    rows: bool = False,
) -> Plan:
    """Store the first `points` points of the world's plan (None: all) as the run `uid`; return its plan.

    `edit` changes the stored records; the points' summaries are computed before it. `rows`: whether tidy rows are
    stored too, as a client does.
    """
    plan = world.plan.model_copy(update={"namespace": "local", "uid": uid})
    store = FolderStore(results / run_root(plan.namespace, plan.name, uid))
    store.put(PLAN, plan.to_json().encode())
    kept = PointStore(store, results.parent / "spool")
    for point in plan.points[:points]:
        summary, frame = point_of(world, point)
        store_point(kept, summary, edit(point, frame), observed, rows=rows)
    return plan


def store_point(
    points: PointStore,
    summary: PointSummary,
    records: pd.DataFrame,
    observed: PointProvenance = OBSERVED,
    *,
    rows: bool = False,
) -> None:
    """Store the records, the summary and the manifest of a point."""
    writer = points.open(summary.hash, "a")
    for row in records.to_dict("records"):
        writer.add(Record(**{str(name): value for name, value in row.items()}))
    files = writer.flush()
    if rows:
        tidied = tidy(writer.spooled(COLUMNS), summary.hash)
        files += points.put_rows(summary.hash, "a", stored_columns(tidied))
    points.commit(summary, "a", files, SPAN, observed)
    writer.discard_spool()
