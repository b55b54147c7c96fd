"""Driving a group into a real S3 server, including outages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from specbench_api.outcome.layout import manifest_key
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import NotDurable
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store import retrying as retrying_module
from specbench_client.store.locations import open_store
from specbench_testing.ports import free_port
from specbench_testing.s3 import S3Access, S3Server
from specbench_testing.simulated_groups import plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import measured_rows

SLOW = SimulatorConfig(time_scale=1)


def options_in(tmp_path: Path) -> DriveOptions:
    return DriveOptions(attempt="1", show_every_s=0.02)


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(120):
        await event.wait()


async def test_temporary_s3_outage_loses_nothing(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=40))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    (point,) = plan.groups[0].points
    started, retrying, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    monkeypatch.setattr(retrying_module._log, "warning", lambda *_: loop.call_soon_threadsafe(retrying.set))

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring" and progress.requests_done >= 3:
            started.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(started)
        s3_server.stop()
        await until(retrying)  # the measurement has continued, and its records wait
        assert not task.done()
        await asyncio.to_thread(s3_server.start)
        await task

    records = records_of(plan, store)
    assert sorted(measured_rows(records).prompt_id) == sorted(f"q{number}" for number in range(40))
    assert set(records.request_id) < set(engine.received())
    assert store.get(manifest_key(point.hash)) is not None


async def test_permanent_s3_outage_fails_the_group_and_commits_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=10))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    started = asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring" and progress.requests_done:
            started.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress, patience_s=0.2)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(started)
        s3_server.stop()
        with pytest.raises(NotDurable) as caught:
            await task

    assert caught.value.reason == "S3Away"
    await asyncio.to_thread(s3_server.start)
    assert store.get(manifest_key(plan.groups[0].points[0].hash)) is None


async def test_interrupt_is_not_delayed_by_an_s3_outage(s3_server: S3Server, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=6))
    store = open_store(f"s3://{s3_server.access.bucket}/p")
    storing = asyncio.Event()

    def watch_progress(progress: Progress) -> None:
        if progress.phase == "measuring":
            s3_server.stop()
        if progress.phase == "storing":
            storing.set()

    options = replace(options_in(tmp_path), on_progress=watch_progress, patience_s=600)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task = asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, options))
        await until(storing)
        task.cancel()
        async with asyncio.timeout(120):
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"bucket": "no-such-bucket"}, "BucketMissing"),
        ({"secret": "WRONG"}, "CredentialsRefused"),
        ({"key": "WRONG"}, "CredentialsRefused"),
        ({"endpoint": f"http://127.0.0.1:{free_port()}"}, "S3Away"),
    ],
)
async def test_store_error_is_raised_before_any_request_is_sent(
    wrong: dict[str, str], reason: str, s3_access: S3Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = replace(s3_access, **wrong)
    access.enter(monkeypatch)
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))

    async with simulator(tmp_path / "truth.jsonl") as engine:
        store = open_store(f"s3://{access.bucket}/p")
        with pytest.raises(NotDurable) as caught:
            await drive_group(plan, plan.groups[0], engine.url, store, replace(options_in(tmp_path), patience_s=0.1))
        assert engine.received() == []

    assert caught.value.reason == reason
