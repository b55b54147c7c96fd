"""What analyses read of a stored run. `stored_runs.run.Run` reads it from a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.documents.comparison import ComparedResult
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.documents.summary import Cell, PointSummary, RunConclusion, RunSummary
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import PointRecords

CellKey = tuple[str, str, str]
"""Arm, workload, and the load level's label."""


class StoredResult(ABC):
    """A stored run as analyses see it. If its points were deleted, only the summary is available."""

    @property
    @abstractmethod
    def uri(self) -> str: ...

    @property
    @abstractmethod
    def plan(self) -> Plan: ...

    @property
    @abstractmethod
    def summary(self) -> RunSummary: ...

    @property
    @abstractmethod
    def manifests(self) -> Mapping[str, Manifest]:
        """By hash, the manifests of the measured points."""

    @property
    @abstractmethod
    def point_summaries(self) -> Mapping[str, PointSummary]:
        """By hash, the summaries of the same points."""

    @property
    @abstractmethod
    def records(self) -> PointRecords:
        """By hash, the records of the same points; read on access."""

    @property
    @abstractmethod
    def launches(self) -> Sequence[LaunchRecord]: ...

    @property
    def side(self) -> ComparedResult:
        """Describe the result as in documents."""
        shared = self.summary.model_dump(include=set(RunConclusion.model_fields))
        return ComparedResult(uri=self.uri, **shared)

    @property
    def cells_by_key(self) -> dict[CellKey, Cell]:
        """By arm, workload and load, in the summary's order."""
        return {(cell.arm, cell.workload, cell.level.label): cell for cell in self.summary.cells}

    def points_of(self, key: CellKey) -> list[PointSummary]:
        """Return the points of a cell's figures whose records are stored, in the plan's order."""
        cell, stored = self.cells_by_key.get(key), self.point_summaries
        return [stored[point] for point in (cell.points if cell else ()) if point in stored]

    def rows_of(self, points: Sequence[PointSummary]) -> Table:
        """Return the tidy rows of points of one cell; many are on disk."""
        return load_rows(self.plan, points, self.records)

    def observed_of(self, workload: str) -> list[PointProvenance]:
        """Return the provenance of a workload's points."""
        planned = (point.hash for point in self.plan.points if point.workload == workload)
        return [self.manifests[point].observed for point in planned if point in self.manifests]
