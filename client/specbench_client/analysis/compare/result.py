"""A stored run as one side of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench_api.outcome.comparison import Side
from specbench_api.outcome.launched import Launched
from specbench_api.outcome.manifest import Observed
from specbench_api.outcome.summary import Cell, PointSummary, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.rows import Parts

CellKey = tuple[str, str, str]
"""Arm, workload, and the load level's label."""


@dataclass(frozen=True)
class Result:
    """Everything that was kept of it. Where its points are gone, the summary alone speaks."""

    uri: str
    plan: Plan
    summary: RunSummary
    points: Mapping[str, PointSummary]
    """By hash, of the points whose manifest is there."""
    observed: Mapping[str, Observed]
    """By hash, of the same points."""
    records: Mapping[str, Parts]
    """By hash, of the same points; read when asked for."""
    launches: tuple[Launched, ...]

    @property
    def side(self) -> Side:
        """As documents name it."""
        told = self.summary
        return Side(
            uri=self.uri,
            namespace=told.namespace,
            name=told.name,
            uid=told.uid,
            created=told.created,
            simulated=told.simulated,
            trustworthy=told.trustworthy,
            verdict=told.verdict,
        )

    @property
    def cells(self) -> dict[CellKey, Cell]:
        """By arm, workload and load, in the summary's order."""
        return {(cell.arm, cell.workload, cell.level.label): cell for cell in self.summary.cells}

    def points_of(self, key: CellKey) -> list[PointSummary]:
        """The points of a cell whose records are there, in the plan's order."""
        mine = [point for point in self.plan.points if (point.arm, point.workload, point.level.label) == key]
        return [self.points[point.hash] for point in mine if point.hash in self.points]

    def observed_of(self, workload: str) -> list[Observed]:
        """What was seen at the points of a workload."""
        mine = (point.hash for point in self.plan.points if point.workload == workload)
        return [self.observed[point] for point in mine if point in self.observed]
