"""Inputs for driving a group: prompts in a file, a plan, and our simulator as a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.server import SimulatorServer, TruthFile, choose_dialect
from specbench_client.store.points import PointStore
from specbench_client.store.store import Store
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.resources import run_of

UID = "11111111-2222-3333-4444-555555555555"


def write_prompts(file: Path, count: int = 6, turns: int = 1, text: str = "Tell me about") -> Path:
    """A prompts file of `count` prompts in two categories."""
    rows = [
        {
            "id": f"q{number}",
            "category": ("writing", "coding")[number % 2],
            "turns": [f"{text} number {number}, part {turn}." for turn in range(turns)],
        }
        for number in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def plan_of(prompts: Path, edits: Mapping[str, Any] | None = None) -> Plan:
    """A small plan on the simulator: one repeat, concurrency 2, two warm-up requests, short answers."""
    run = run_of(
        {
            "spec.workloads[0].dataset.uri": str(prompts),
            "spec.workloads[0].output": {"maxTokens": 12},
            "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 2},
            **(edits or {}),
        }
    )
    named = run.metadata.model_copy(update={"uid": UID, "namespace": "local"})
    return expand(run.model_copy(update={"metadata": named}))


@dataclass(frozen=True)
class RunningSimulator:
    """A simulator that serves in this process, and the requests that it received."""

    url: str
    truth: Path
    server: ClosingTestServer

    def received(self) -> list[str]:
        """Ids of the answered requests in the order in which they ended."""
        lines = self.truth.read_text().splitlines() if self.truth.exists() else []
        return [json.loads(line)["request_id"] for line in lines]

    async def stop(self) -> None:
        """Stop like an engine that goes away: connections are cut and nothing listens."""
        await self.server.close()


@asynccontextmanager
async def simulator(
    truth: Path, config: SimulatorConfig | None = None, dialect: str = "vllm"
) -> AsyncIterator[RunningSimulator]:
    """A simulator on a free port of 127.0.0.1."""
    simulator_config = config or SimulatorConfig(time_scale=0)
    server = ClosingTestServer(
        SimulatorServer(
            SimulatedEngine(simulator_config), choose_dialect(dialect, simulator_config), TruthFile(truth)
        ).application(),
        host="127.0.0.1",
    )
    await server.start_server()
    try:
        yield RunningSimulator(str(server.make_url("")).rstrip("/"), truth, server)
    finally:
        await server.close()


def records_of(plan: Plan, store: Store, hashes: Sequence[str] | None = None) -> pd.DataFrame:
    """All records in the manifests, verified, with the point's hash as a column."""
    points = PointStore(store)
    simulator_config = hashes if hashes is not None else [point.hash for point in plan.points]
    found = points.manifests(simulator_config).items()
    frames: list[pd.DataFrame] = [
        part.to_pandas().assign(point=point)
        for point, manifest in found
        for part in points.read_files(manifest.hash, manifest.files)
    ]
    return pd.concat(frames, ignore_index=True)
