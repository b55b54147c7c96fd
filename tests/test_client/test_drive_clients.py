"""Several clients send each load together: two of them in this process, with their own worker processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbench_api.outcome.layout import ended_key, manifest_key
from specbench_api.plan.plan import Plan
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import PointSummary
from specbench_client.drive import group
from specbench_client.drive.group import GroupResult, drive_group
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.load.client_link import PINGS, ClientClock, ClientLost
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.faults import parse_faults
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
    options = DriveOptions(attempt, client_index=client, join_within_s=WITHIN_S)
    return replace(options, **changed)


def start(plan: Plan, engine: RunningSimulator, store: FolderStore, options: DriveOptions) -> asyncio.Task[GroupResult]:
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
    points = PointStore(store)
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
    summary, health = summary_of(plan, store), summary_of(plan, store).client_health
    assert (summary.counts.conversations, health.clients, health.workers) == (24, 2, 2)
    assert (health.reached_concurrency or 0) > 2, "more than the streams of one client"
    assert (health.warmup_requests or 0) >= 4, "the warm-up of both"
    progress = json.loads(store.get("progress.json") or b"")
    assert (progress["requestsDone"], progress["requestsTotal"]) == (24, 24)


async def test_all_clients_end_together_when_an_arm_has_decayed(
    tmp_path: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only client 0 has the summaries of the windows."""
    load = {"order": "Soak", "durationSeconds": 1, "repeats": 3, "stop": "WhenDecayed"}
    plan = plan_with(tmp_path, {**CLOSED, **load})
    monkeypatch.setattr(group, "has_decayed", lambda windows: len(windows) == 1)

    await drive(tmp_path, plan, store, SLOW)

    points = [point.hash for point in plan.groups[0].points]
    assert PointStore(store).measured(points) == {points[0]}
    assert list(store.keys("ended/")) == [ended_key(0, 1)]


async def test_two_clients_send_exactly_the_schedule_of_one(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_with(tmp_path, OPEN)
    (point,) = plan.groups[0].points
    times = load_arrival_plan(plan, Path()).times(point, 24)
    assert times is not None

    await drive(tmp_path, plan, store)

    manifest = PointStore(store).manifest(point.hash)
    assert manifest is not None
    records = measured_rows(records_of(plan, store, [point.hash])).set_index("prompt_id")
    assert sorted(records.index) == sorted(f"q{number}" for number in range(24))
    intended = records.loc[[f"q{number}" for number in range(24)], "intended_ns"].to_numpy() - manifest.load_started_ns
    error_ms = summary_of(plan, store).client_health.clock_error_ms
    assert error_ms is not None
    assert np.abs(intended - times).max() <= error_ms * 1e6


async def test_other_clients_end_when_one_is_stopped_and_the_point_has_no_result(
    tmp_path: Path, store: FolderStore
) -> None:
    plan, started = plan_with(tmp_path, CLOSED, count=400), asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.requests_done:
            started.set()

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        watched = options_in(tmp_path, 1, on_progress=watch_progress, show_every_s=0.02)
        first, second = start(plan, engine, store, options_in(tmp_path, 0)), start(plan, engine, store, watched)
        await started.wait()
        second.cancel()
        with pytest.raises(ClientLost, match="client 1 was stopped"):
            await first
    assert store.get(manifest_key(plan.groups[0].points[0].hash)) is None


async def test_all_clients_end_with_the_engine_failure_that_one_observed(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_with(tmp_path, CLOSED)
    refused = SimulatorConfig(time_scale=0, faults=parse_faults(("http-500=1",)))
    async with simulator(tmp_path / "truth.jsonl", refused) as engine:
        clients = [start(plan, engine, store, options_in(tmp_path, client)) for client in range(2)]
        failures = await asyncio.gather(*clients, return_exceptions=True)
    assert [type(failure) for failure in failures] == [EngineFailed, EngineFailed]
    assert len({str(failure) for failure in failures}) == 1, "client 1 has the message of client 0"


async def test_clients_with_different_prompts_are_refused(tmp_path: Path, store: FolderStore) -> None:
    plan, folder = plan_with(tmp_path, CLOSED), tmp_path / "other"
    folder.mkdir()
    write_prompts(folder / "p.jsonl", count=23)
    relative = Plan.from_json(plan.to_json().replace(str(tmp_path / "p.jsonl"), "p.jsonl"))
    async with simulator(tmp_path / "truth.jsonl") as engine:
        clients = [
            start(relative, engine, store, options_in(tmp_path, client, base_dir=base_dir))
            for client, base_dir in enumerate((tmp_path, folder))
        ]
        failures = await asyncio.gather(*clients, return_exceptions=True)
        assert engine.received() == []
    assert [type(failure) for failure in failures] == [BadInput, BadInput]
    assert "client 1 read other prompts" in str(failures[0])


async def test_client_alone_reports_who_is_missing(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_with(tmp_path, CLOSED)
    async with simulator(tmp_path / "truth.jsonl") as engine:
        first = start(plan, engine, store, options_in(tmp_path, 0, join_within_s=0.1))
        with pytest.raises(ClientLost, match="client 1 did not join within 0 s: check that all 2 pods"):
            await first


TWO_SECONDS_NS = 2_000_000_000


async def test_wall_clock_that_is_wrong_is_recorded_and_changes_nothing(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_with(tmp_path, CLOSED)

    await drive(tmp_path, plan, store, peer_clock=ClientClock(wall_ns=lambda: time.time_ns() + TWO_SECONDS_NS))

    summary = summary_of(plan, store)
    health = summary.client_health
    assert health.clock_skew_ms == pytest.approx(2000, abs=1 + (health.clock_error_ms or 0))
    assert (health.clock_error_ms or 0) < 2000


async def test_clock_that_moves_during_a_point_is_found(tmp_path: Path, store: FolderStore) -> None:
    plan, readings = plan_with(tmp_path, CLOSED), itertools.count()

    def moving_ns() -> int:
        """Return the time, and two seconds more after the first comparison of the clocks."""
        return time.monotonic_ns() + (TWO_SECONDS_NS if next(readings) >= 2 * PINGS else 0)

    await drive(tmp_path, plan, store, peer_clock=ClientClock(monotonic_ns=moving_ns))

    summary = summary_of(plan, store)
    assert (summary.client_health.clock_error_ms or 0) >= 2000
    assert ("ClientClocksDiffer", Severity.INVALID) in {(each.check, each.severity) for each in summary.findings}
