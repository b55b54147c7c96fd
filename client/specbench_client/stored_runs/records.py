"""Reads the records of a stored run: one cell's answers and pairs, or all records as one Parquet table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow.parquet as pq

from specbench_api.outcome.summary import PointSummary
from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.estimates.point_rows import RoundsLeftOut, load_rows
from specbench_client.analysis.what_if.answers import COLUMNS, measured_answers
from specbench_client.columns import arrays_in_memory
from specbench_client.errors import BadInput
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Rows
from specbench_client.store.points import PointStore
from specbench_client.store.records import FILE_SCHEMA
from specbench_client.store.store import Store
from specbench_client.stored_runs.stored_documents import read_plan
from specbench_client.stored_runs.stored_points import StoredRecords


@dataclass(frozen=True)
class CellSelection:
    """Selects a workload and a load level by its label; None for the first."""

    workload: str | None = None
    load: str | None = None


@dataclass(frozen=True)
class StoredRun:
    """A stored run, of which the answers of one workload and load are read."""

    plan: Plan
    store: Store
    workload: str
    load: str

    @property
    def simulated(self) -> bool:
        """Whether the engine was the simulator."""
        return self.plan.engine.kind is EngineKind.SIMULATOR

    @property
    def words(self) -> str:
        """Name of the run, workload and load, for titles and messages."""
        return f"{self.plan.name}, {self.workload}, load {self.load}"

    def points(self, arm: str) -> list[Point]:
        """Return the arm's points of this cell, measured or not."""
        cell = (arm, self.workload, self.load)
        return [each for each in self.plan.points if (each.arm, each.workload, each.level.label) == cell]

    def records(self, arm: str) -> pd.DataFrame:
        """Return the measured answers of all repeats; empty if no point has a manifest. Blocks. Raises NotDurable."""
        points = PointStore(self.store)
        manifests = points.manifests([point.hash for point in self.points(arm)])
        parts = [
            pd.DataFrame({**part, "point": name})
            for name, manifest in manifests.items()
            for part in points.read_columns(manifest, COLUMNS)
        ]
        return measured_answers(pd.concat(parts, ignore_index=True)) if parts else pd.DataFrame(columns=COLUMNS)

    def fingerprints(self, arm: str) -> set[str]:
        """Return the fingerprints of the prompts that the arm was measured with. Raises NotDurable."""
        manifests = PointStore(self.store).manifests([point.hash for point in self.points(arm)])
        return {manifest.observed.dataset_fingerprint for manifest in manifests.values()}


def open_stored_run(store: Store, chosen: CellSelection) -> StoredRun:
    """Load the run whose root the store is. Raises BadInput if it has no such workload or load, NotDurable."""
    plan = read_plan(store)
    workload = _one_of("--workload", chosen.workload, list(dict.fromkeys(each.workload for each in plan.points)))
    levels = sorted((each.level for each in plan.points if each.workload == workload), key=lambda level: level.order)
    load = _one_of("--load", chosen.load, list(dict.fromkeys(level.label for level in levels)))
    return StoredRun(plan, store, workload, load)


def _one_of(flag: str, requested: str | None, available: Sequence[str]) -> str:
    if requested is None:
        return available[0]
    if requested not in available:
        raise BadInput(f"{flag} {requested}: the run has {', '.join(available)}")
    return requested


def pairs_with_baseline(run: StoredRun) -> dict[str, Pairs]:
    """Return the cell's pairs of each measured arm with a measured baseline. Blocks. Raises NotDurable."""
    points = PointStore(run.store)
    manifests = {arm.name: points.manifests([each.hash for each in run.points(arm.name)]) for arm in run.plan.arms}
    measured = {arm: [points.read_summary(each) for each in of.values()] for arm, of in manifests.items() if of}
    theirs = measured.pop(BASELINE_NAME, [])

    def rows_of(arm: str, compared: list[PointSummary]) -> Rows:
        return load_rows(run.plan, compared, StoredRecords(points, manifests[arm]), arrays_in_memory())

    if not theirs or not measured:
        return {}
    baseline = rows_of(BASELINE_NAME, theirs)
    return {
        arm: pair_requests(rows_of(arm, RoundsLeftOut.of(run.plan, [*theirs, *mine]).kept(mine)), baseline, run.plan)
        for arm, mine in measured.items()
    }


def records_parquet(plan: Plan, store: Store) -> bytes:
    """Return all records of points with a manifest as one Parquet file, in the plan's order. Blocks.

    Raises NotDurable.
    """
    points, sink = PointStore(store), io.BytesIO()
    manifests = points.manifests([point.hash for point in plan.points])
    with pq.ParquetWriter(sink, FILE_SCHEMA, compression="zstd") as writer:
        for point in plan.points:
            if point.hash in manifests:
                for records in points.read_tables(manifests[point.hash], FILE_SCHEMA.names):
                    writer.write_table(records)
    return sink.getvalue()
