"""How the load of a point is planned, and how many failed requests it tolerates."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.layout import manifest_key, schedule_key, summary_key
from specbench_api.plan.plan import Plan
from specbench_client.documents.manifest import Manifest
from specbench_client.documents.record import Record
from specbench_client.documents.summary import ClientHealth, PointSummary
from specbench_client.drive import group as driving
from specbench_client.drive.group import drive_group
from specbench_client.drive.load_planning import FailureCounter
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import EngineFailed
from specbench_client.load import arrivals as schedule_module
from specbench_client.load.worker_pool import WorkerLost, WorkerPool
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store.folder import FolderStore
from specbench_testing.conversation_turns import blank_record
from specbench_testing.simulated_groups import plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process

SLOW = SimulatorConfig(time_scale=1)
STEADY_WITHIN_S = 60.0
"""Time allowed for a load to become steady on a busy machine."""


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "results")


def planned(tmp_path: Path, **load: Any) -> Plan:
    prompts = tmp_path / "p.jsonl"
    if not prompts.exists():
        write_prompts(prompts)
    return plan_of(prompts, {"spec.load": {"repeats": 1, "warmupRequests": 0, **load}})


def options_in(tmp_path: Path, **given: Any) -> DriveOptions:
    return replace(DriveOptions(attempt="1-a", base_dir=tmp_path), **given)


async def drive(plan: Plan, store: FolderStore, options: DriveOptions, group: int = 0, scale: float = 0) -> None:
    config = SimulatorConfig(time_scale=scale)
    async with simulator(options.base_dir / f"truth-{group}.jsonl", config) as engine:
        await drive_group(plan, plan.groups[group], engine.url, store, options)


def manifest_of(plan: Plan, store: FolderStore, group: int = 0, point: int = 0) -> Manifest:
    return Manifest.from_json(store.get(manifest_key(plan.groups[group].points[point].hash)) or b"")


def watch_of(plan: Plan, store: FolderStore, point: int = 0) -> ClientHealth:
    return PointSummary.from_json(store.get(summary_key(plan.groups[0].points[point].hash)) or b"").client_health


def schedule_of(plan: Plan, store: FolderStore, group: int = 0, attempt: str = "1-a") -> pd.DataFrame:
    data = store.get(schedule_key(plan.groups[group].points[0].hash, attempt))
    return pd.read_parquet(io.BytesIO(data or b""))


@pytest.fixture
def long_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a long lead time, so that an open loop becomes steady also on a busy machine."""
    monkeypatch.setattr(schedule_module, "LEAD_LEAST_S", STEADY_WITHIN_S)


async def test_open_loop_sends_by_a_stored_schedule(tmp_path: Path, store: FolderStore) -> None:
    plan = planned(tmp_path, rate=[50], slots=4, requests=20)

    await drive(plan, store, options_in(tmp_path, client=ClientOptions(workers=2)))

    schedule, manifest = schedule_of(plan, store), manifest_of(plan, store)
    assert schedule.conversation.tolist() == list(range(20))
    assert schedule.worker.tolist() == [0, 1] * 10
    assert schedule_key(manifest.hash, "1-a") in [file.key for file in manifest.files]
    records = measured_rows(records_of(plan, store, [manifest.hash])).sort_values("stream_index")
    assert manifest.load_started_ns is not None
    assert records.intended_ns.tolist() == (schedule.intended_ns + manifest.load_started_ns).tolist()
    assert (records.sent_ns >= records.intended_ns).all()


@pytest.mark.usefixtures("long_lead")
@pytest.mark.parametrize("workers", [1, 2])
async def test_open_loop_prompts_are_all_measured_in_the_steady_state(
    workers: int, tmp_path: Path, store: FolderStore
) -> None:
    plan = planned(tmp_path, rate=[20], slots=64, requests=24, arrival={"process": "Poisson", "seed": 3})

    await drive(plan, store, options_in(tmp_path, client=ClientOptions(workers=workers)), scale=1)

    records = records_of(plan, store, [plan.groups[0].points[0].hash])
    measured = measured_rows(records)
    fillers = records.drop(measured.index)
    before, after = (fillers[fillers.phase == phase] for phase in ("ramp", "drain"))
    assert len(measured) == 24
    assert set(measured.phase) == {"steady"}
    assert before.request_id.is_unique
    assert before.intended_ns.max() < measured.intended_ns.min() < measured.intended_ns.max() < after.intended_ns.min()
    assert after.intended_ns.max() - measured.last_token_ns.max() < schedule_module.MAX_TAIL_S * 1e9 / 10, (
        "the tail ends soon after the last prompt"
    )
    assert watch_of(plan, store).steady_share


async def test_lead_time_is_limited_if_the_load_never_becomes_steady(
    tmp_path: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "LEAD_LEAST_S", 0.5)
    monkeypatch.setattr(schedule_module, "LEAD_MOST_S", 0.5)
    plan = planned(tmp_path, rate=[40], slots=64, requests=24)

    await drive(plan, store, options_in(tmp_path), scale=2)

    manifest = manifest_of(plan, store)
    records = measured_rows(records_of(plan, store, [manifest.hash]))
    assert manifest.load_started_ns is not None
    assert len(records) == 24
    assert records.intended_ns.min() >= manifest.load_started_ns


async def test_trace_is_replayed_at_its_own_speed(tmp_path: Path, store: FolderStore) -> None:
    (tmp_path / "t.csv").write_text("timestamp,n\n10.00,1\n10.02,1\n10.03,1\n10.09,1\n")
    plan = planned(tmp_path, slots=4, arrival={"process": "Trace", "uri": "t.csv"}, requests=4)

    await drive(plan, store, options_in(tmp_path))

    assert (schedule_of(plan, store).intended_ns / 1e6).round().tolist() == [0, 20, 30, 90]
    assert manifest_of(plan, store).observed.trace_fingerprint


@pytest.mark.parametrize("load", [{"concurrency": [2]}, {"rate": [40], "slots": 4}], ids=["closed", "open"])
async def test_point_can_end_by_duration(load: dict[str, Any], tmp_path: Path, store: FolderStore) -> None:
    plan = planned(tmp_path, durationSeconds=1, **load)
    reports: list[Progress] = []

    await drive(plan, store, options_in(tmp_path, on_progress=reports.append), scale=0.1)

    records = measured_rows(records_of(plan, store, [plan.groups[0].points[0].hash]))
    assert len(records) > 6  # every prompt once would be six
    assert records.error_class.isna().all()
    total = reports[-1].requests_total
    assert total is None if "concurrency" in load else total == len(records)


@pytest.mark.usefixtures("long_lead")
async def test_client_health_is_stored_with_each_point(tmp_path: Path, store: FolderStore) -> None:
    plan = planned(tmp_path, rate=[20, 25], slots=4, requests=24, warmupRequests=2)

    await drive(plan, store, options_in(tmp_path), scale=0.1)

    first, second = watch_of(plan, store, 0), watch_of(plan, store, 1)
    assert first.workers == 1
    for figure in ("cpu_share", "load_per_core", "loop_lag_p99_ms", "send_lateness_p99_ms",
                   "coalesced_chunk_share", "coalesced_end_share",
                   "answers_in_one_read", "kernel_clock_share", "reached_rate",
                   "in_flight_growth", "reached_concurrency", "steady_share", "duration_s"):  # fmt: skip
        assert getattr(first, figure) is not None, figure
    records = records_of(plan, store, [plan.groups[0].points[0].hash])
    assert first.warmup_requests == (records.phase == "warmup").sum()
    assert 2 <= (first.warmup_requests or 0) <= 16
    assert first.warmup_steady is not None
    assert (second.warmup_requests, second.warmup_steady) == (None, None)


async def test_a_machine_without_a_load_average_loses_no_point(
    tmp_path: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unobtainable() -> None:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr(os, "getloadavg", unobtainable)
    plan = planned(tmp_path, concurrency=[2], requests=8)

    await drive(plan, store, options_in(tmp_path), scale=0.1)

    assert watch_of(plan, store, 0).load_per_core is None


async def test_killed_worker_raises_an_error_and_leaves_no_result(
    tmp_path: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[WorkerPool] = []

    class RecordedPool(WorkerPool):
        def __init__(self, workers: int) -> None:
            super().__init__(workers)
            pools.append(self)

    monkeypatch.setattr(driving, "WorkerPool", RecordedPool)
    plan = planned(tmp_path, concurrency=[2], requests=1000)
    started = asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.requests_done:
            started.set()

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        options = options_in(tmp_path, on_progress=watch_progress, show_every_s=0.02)
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await started.wait()
        os.kill(pools[0].pids[0], signal.SIGKILL)
        with pytest.raises(WorkerLost, match="SIGKILL"):
            await task

    assert store.get(manifest_key(plan.groups[0].points[0].hash)) is None


class Engine:
    def __init__(self, *, is_alive: bool = True) -> None:
        self.is_alive = is_alive
        self.health_checks = 0

    async def alive(self) -> bool:
        self.health_checks += 1
        return self.is_alive


def record(error_class: str | None = None) -> Record:
    return replace(blank_record(), error_class=error_class, error=error_class and "words")


async def count_until_failure(count: FailureCounter, *error_classes: str | None) -> int:
    """Return how many records were added before the load failed."""
    for number, error_class in enumerate(error_classes, start=1):
        try:
            await count.add(record(error_class))
        except EngineFailed:
            return number
    return len(error_classes)


@pytest.mark.parametrize("error_class", ["http_4xx", "rate_limited", "http_5xx", "timeout"])
@pytest.mark.parametrize(("is_alive", "reason"), [(True, "RequestsFailed"), (False, "EngineLost")])
async def test_too_many_failures_end_the_load_and_only_an_engine_without_an_answer_is_lost(
    error_class: str, is_alive: bool, reason: str
) -> None:
    count = FailureCounter(Engine(is_alive=is_alive).alive)
    for _ in range(7):
        await count.add(record(error_class))
    with pytest.raises(EngineFailed, match=rf"8 of 8 requests failed.*prompt a: {error_class}: words") as failed:
        await count.add(record(error_class))
    assert failed.value.reason == reason


async def test_failures_of_up_to_half_of_the_requests_are_counted() -> None:
    engine = Engine(is_alive=False)
    assert await count_until_failure(FailureCounter(engine.alive), *[None, "rate_limited"] * 10) == 20
    assert engine.health_checks == 0
    assert await count_until_failure(FailureCounter(engine.alive), *[None, "http_5xx"] * 4, "http_5xx") == 9


@pytest.mark.parametrize("is_alive", [True, False])
async def test_consecutive_connection_failures_end_the_load_only_if_the_engine_is_dead(is_alive: bool) -> None:
    engine = Engine(is_alive=is_alive)
    error_classes = [None, None, *["refused"] * 4, "reset", "refused"]
    assert await count_until_failure(FailureCounter(engine.alive, share_max=1), *error_classes) == (
        8 if is_alive else 7
    )
    assert engine.health_checks == 1


async def test_skipped_requests_do_not_count_and_do_not_interrupt_a_sequence() -> None:
    count = FailureCounter(Engine(is_alive=False).alive, share_max=1)
    assert await count_until_failure(count, *["refused", "skipped_after_error"] * 5) == 9
