"""A run by `specbench run` on a real engine: its results, and each point with its records and engine counters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from specbench_api.outcome.summary import CounterDeltas, PointSummary
from specbench_testing.engine_witness import WitnessedLaunch, witnessed_launches

FINISHED = (0, 3)


@dataclass(frozen=True)
class Point:
    """The summary of a point, and every request of its load, including fillers, because the engine counts them."""

    summary: PointSummary
    records: pd.DataFrame

    @property
    def counters(self) -> CounterDeltas:
        assert self.summary.counters is not None
        return self.summary.counters

    def total(self, column: str) -> int:
        """The sum over all requests."""
        return int(self.records[column].sum())


@dataclass(frozen=True)
class RealRun:
    """The results, and the points by arm."""

    answer: dict[str, Any]
    points: dict[str, list[Point]]

    @property
    def checks(self) -> set[str]:
        """Names of the checks with findings."""
        return {finding["check"] for finding in self.answer["findings"]}


def run_here(folder: Path, spec: Mapping[str, Any], prompts: Sequence[str], timeout_s: float) -> RealRun:
    """Measure in this folder with the command line."""
    rows = [{"id": f"p{number}", "category": "text", "prompt": text} for number, text in enumerate(prompts)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": "real"},
        "spec": {"results": {"s3": {"bucket": "bench-results"}}, **spec},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    specbench = str(Path(sys.executable).with_name("specbench"))
    command = [specbench, "run", "run.yaml", "--results", "out", "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode in FINISHED, done.stderr
    points: dict[str, list[Point]] = {}
    for path in sorted((folder / "out").rglob("points/*/summary.json")):
        point = _point(path)
        points.setdefault(point.summary.arm, []).append(point)
    return RealRun(json.loads(done.stdout), points)


def launches_by_arm(run: RealRun, folder: Path) -> dict[str, WitnessedLaunch]:
    """The recorded launch of each arm, found by the ids of its requests."""
    found = witnessed_launches(folder)
    return {
        arm: next(one for one in found if {each.request_id for each in one.exchanges} >= set(point.records.request_id))
        for arm, (point,) in run.points.items()
    }


def _point(path: Path) -> Point:
    files = sorted(path.parents[2].glob(f"records/*/*/{path.parent.name}-*.parquet"))
    records = pd.concat(pd.read_parquet(file) for file in files)
    return Point(PointSummary.model_validate_json(path.read_text()), records[records.phase != "warmup"])
