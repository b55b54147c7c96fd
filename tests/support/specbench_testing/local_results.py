"""A synthetic run stored in a results folder: plan, records, summaries and manifests, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.plan.plan import Plan, Point
from specbench_client.documents.manifest import PointProvenance
from specbench_client.documents.record import Record
from specbench_client.documents.summary import PointSummary
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
) -> Plan:
    """Store the first `points` points of the world's plan (None: all) as the run `uid`; return its plan.

    `edit` changes the stored records; the points' summaries are computed before it.
    """
    plan = world.plan.model_copy(update={"namespace": "local", "uid": uid})
    store = FolderStore(results / run_root(plan.namespace, plan.name, uid))
    store.put(PLAN, plan.to_json().encode())
    kept = PointStore(store)
    for point in plan.points[:points]:
        summary, frame = point_of(world, point)
        store_point(kept, summary, edit(point, frame), observed)
    return plan


def store_point(
    points: PointStore,
    summary: PointSummary,
    records: pd.DataFrame,
    observed: PointProvenance = OBSERVED,
) -> None:
    """Store the records, the summary and the manifest of a point."""
    of = {name: getattr(summary, name) for name in ("hash", "arm", "workload", "level", "repeat")}
    writer = points.open(Point(**of), "a")
    for row in records.to_dict("records"):
        writer.add(Record(**{str(name): value for name, value in row.items()}))
    points.commit(summary, "a", [writer.finish()], SPAN, observed)
