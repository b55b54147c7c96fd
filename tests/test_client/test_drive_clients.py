"""Several clients send each load together: two of them in this process, with their own worker processes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbench_api.outcome.layout import manifest_key
from specbench_api.outcome.summary import PointSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.drive.group import GroupResult, drive_group
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.load.client_link import ClientClock, ClientLost
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_testing.simulated_groups import RunningSimulator, plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process
SLOW = SimulatorConfig(time_scale=1)  # a request takes 1/16 s, long enough to act while it runs
CLOSED = {"concurrency": [4], "repeats": 1, "warmupRequests": 2, "clients": 2}
OPEN = {"rate": [40], "slots": 8, "repeats": 1, "warmupRequests": 2, "clients": 2}
WITHIN_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "results")


def plan_with(tmp_path: Path, load: dict[str, Any], count: int = 24) -> Plan:
    return plan_of(write_prompts(tmp_path / "p.jsonl", count=count), {"spec.load": load})


def options_in(tmp_path: Path, client: int, **changed: Any) -> DriveOptions:
    attempt = f"1-a{f'-c{client}' if client else ''}"
    options = DriveOptions(attempt, tmp_path / f"spool-{client}", client_index=client, join_within_s=WITHIN_S)
    return replace(options, **changed)


def start(
    plan: Plan, engine: RunningSimulator, store: FolderStore, options: DriveOptions
) -> asyncio.Task[GroupResult]:
    return asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))


async def drive(
    tmp_path: Path, plan: Plan, store: FolderStore, config: SimulatorConfig | None = None, **second: Any
) -> list[str]:
    """Measure the first group with all clients; return the ids of the requests that the engine received."""
    async with simulator(tmp_path / "truth.jsonl", config) as engine:
        clients = [
            start(plan, engine, store, options_in(tmp_path, client, **(second if client else {})))
            for client in range(plan.load.clients)
        ]
        await asyncio.gather(*clients)
        return engine.received()


def summary_of(plan: Plan, store: FolderStore) -> PointSummary:
    points = PointStore(store, Path("unused"))
    manifest = points.manifest(plan.groups[0].points[0].hash)
    assert manifest is not None
    return points.read_summary(manifest)


async def test_two_clients_send_every_request_of_a_closed_loop_once(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_with(tmp_path, CLOSED)

    received = await drive(tmp_path, plan, store, SLOW)

    assert set(Counter(received).values()) == {1}
    records = records_of(plan, store, [plan.groups[0].points[0].hash])
    assert Counter(measured_rows(records).prompt_id) == Counter(f"q{number}" for number in range(24))
    assert {"-c1-" in request for request in records.request_id} == {True, False}, "both clients sent requests"
    summary = summary_of(plan, store)
    assert (summary.counts.conversations, summary.client.clients, summary.client.workers) == (24, 2, 2)
    assert summary.client.reached_concurrency == pytest.approx(4, rel=0.2)
