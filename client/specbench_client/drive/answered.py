"""A stored run's answers: of which arms and cells there are some, and their records. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN
from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.oracle.records import COLUMNS, measured
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.point import PointStore
from specbench_client.store.store import Refusal, Store


@dataclass(frozen=True)
class Chosen:
    """Whose answers: a workload and a load level's label, each None for the first."""

    workload: str | None = None
    load: str | None = None


@dataclass(frozen=True)
class Answered:
    """A stored run. `workload`, `load`: of which its answers are read."""

    plan: Plan
    store: Store
    workload: str
    load: str

    @property
    def simulated(self) -> bool:
        """Whether no engine was measured."""
        return self.plan.engine.kind is EngineKind.SIMULATOR

    @property
    def words(self) -> str:
        """Which answers, for titles."""
        return f"{self.plan.name}, {self.workload}, load {self.load}"

    def points(self, arm: str) -> list[Point]:
        """The arm's points of this cell, measured or not."""
        wanted = (arm, self.workload, self.load)
        return [each for each in self.plan.points if (each.arm, each.workload, each.level.label) == wanted]

    def records(self, arm: str) -> pd.DataFrame:
        """The measured answers of all repeats; empty where none has a manifest. Blocks. Raises NotDurable."""
        points = PointStore(self.store, Path())
        manifests = points.manifests([point.hash for point in self.points(arm)])
        parts = [
            part.assign(point=name)
            for name, manifest in manifests.items()
            for part in points.read_frames(manifest, COLUMNS)
        ]
        return measured(pd.concat(parts, ignore_index=True)) if parts else pd.DataFrame(columns=COLUMNS)

    def fingerprints(self, arm: str) -> set[str]:
        """Of the prompts that the arm's points were measured with. Raises NotDurable."""
        manifests = PointStore(self.store, Path()).manifests([point.hash for point in self.points(arm)])
        return {manifest.observed.dataset_fingerprint for manifest in manifests.values()}


def read_answered(store: Store, chosen: Chosen) -> Answered:
    """The run whose root the store is. Raises BadInput where it has no such workload or load."""
    try:
        plan = Plan.from_json(store.get(PLAN) or b"")
    except ValidationError as error:
        what = "is damaged, or was written by another version of specbench"
        raise NotDurable(f"{store.uri(PLAN)}: {what}: its records are still there", Refusal.DAMAGED) from error
    workload = _one_of("--workload", chosen.workload, list(dict.fromkeys(each.workload for each in plan.points)))
    levels = sorted((each.level for each in plan.points if each.workload == workload), key=lambda level: level.order)
    load = _one_of("--load", chosen.load, list(dict.fromkeys(level.label for level in levels)))
    return Answered(plan, store, workload, load)


def _one_of(flag: str, wanted: str | None, there: Sequence[str]) -> str:
    if wanted is None:
        return there[0]
    if wanted not in there:
        raise BadInput(f"{flag} {wanted}: the run has {', '.join(there)}")
    return wanted
