"""A stored run as one side of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.comparison import ComparedResult
from specbench_api.outcome.manifest import PointProvenance
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.outcome.summary import Cell, PointSummary, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.point_rows import RecordParts, load_rows
from specbench_client.columns import NewArrayStore, arrays_in_memory
from specbench_client.metrics.rows import Rows

CellKey = tuple[str, str, str]
"""Arm, workload, and the load level's label."""


@dataclass(frozen=True)
class StoredResult:
    """Everything that is stored of a run. If its points were deleted, only the summary is available."""

    uri: str
    plan: Plan
    summary: RunSummary
    points: Mapping[str, PointSummary]
    """By hash, the points whose manifest is stored."""
    observed: Mapping[str, PointProvenance]
    """By hash, the provenance of the same points."""
    records: Mapping[str, RecordParts]
    """By hash, the records of the same points; read on access."""
    launches: tuple[LaunchRecord, ...]
    array_store: NewArrayStore = arrays_in_memory
    """Where the rows of a cell are stored while it is compared."""

    @property
    def side(self) -> ComparedResult:
        """Describe the result as in documents."""
        summary = self.summary
        return ComparedResult(
            uri=self.uri,
            namespace=summary.namespace,
            name=summary.name,
            uid=summary.uid,
            created=summary.created,
            simulated=summary.simulated,
            trustworthy=summary.trustworthy,
            headline=summary.headline,
        )

    @property
    def cells(self) -> dict[CellKey, Cell]:
        """By arm, workload and load, in the summary's order."""
        return {(cell.arm, cell.workload, cell.level.label): cell for cell in self.summary.cells}

    def points_of(self, key: CellKey) -> list[PointSummary]:
        """Return the points of a cell's figures whose records are stored, in the plan's order."""
        cell = self.cells.get(key)
        return [self.points[point] for point in (cell.points if cell else ()) if point in self.points]

    def rows_of(self, points: Sequence[PointSummary]) -> Rows:
        """Return the tidy rows of points of one cell, of which at most one block is in memory."""
        return load_rows(self.plan, points, self.records, self.array_store())

    def observed_of(self, workload: str) -> list[PointProvenance]:
        """Return the provenance of a workload's points."""
        planned = (point.hash for point in self.plan.points if point.workload == workload)
        return [self.observed[point] for point in planned if point in self.observed]
