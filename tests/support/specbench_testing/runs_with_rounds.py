"""Runs in a folder to which rounds are added, measured in a synthetic world."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from specbench_api.plan.plan import EngineGroup, Plan, Point
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.drive.resume import claim_store
from specbench_client.local import executor
from specbench_client.local.executor import LocalOptions, execute_locally
from specbench_client.local.local_runs import find_local_run
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.stored_runs.run import Run
from specbench_testing.local_results import OBSERVED, store_point
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, point_of


@dataclass
class Retried:
    """A run in a folder that measures rounds again. No server answers."""

    world: SyntheticRun
    corruptions: Corruptions
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    measured: list[Point] = field(default_factory=list)
    interrupted_after: int | None = None
    prompts: int = OBSERVED.prompts
    """How many prompts the dataset has."""
    lines: list[str] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """The plan of the command, without added rounds."""
        return self.world.plan.model_copy(update={"namespace": "local"})

    def run(self, retries: int) -> Run:
        """Find the run, and measure what it lacks."""
        run = find_local_run(FolderStore(self.folder), self.plan)
        self.measured.clear()
        self.monkeypatch.setattr(executor, "_launch_with_retries", self._measure)
        options = LocalOptions(self.folder, self.folder, 1.0, on_estimate=self.lines.append, retries=retries)
        asyncio.run(execute_locally(run, options))
        return run

    async def _measure(self, run: Run, group: EngineGroup, _: LocalOptions) -> None:
        claim_store(run.plan, run.store)
        for point in group.points:
            if point.hash in PointStore(run.store).measured([point.hash]):
                continue
            if len(self.measured) == self.interrupted_after:
                raise KeyboardInterrupt
            used = PromptCoverage(
                source="s", rows=self.prompts, requested=self.prompts, used=self.prompts, turns=self.prompts
            )
            observed = OBSERVED.model_copy(update={"prompts": self.prompts, "coverage": used})
            store_point(PointStore(run.store), *point_of(self.world, point, self.corruptions), observed)
            self.measured.append(point)
