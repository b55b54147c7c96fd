"""Driving a group: HTTP against the simulator, by worker processes, into a results folder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from specbench_api.outcome.layout import PLAN, ended_key, manifest_key, summary_key
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.point_rows import is_sent_again
from specbench_client.documents.manifest import Manifest
from specbench_client.documents.summary import PointSummary
from specbench_client.drive import group, point
from specbench_client.drive.group import GroupResult, drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_testing.simulated_groups import RunningSimulator, plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process
SLOW = SimulatorConfig(time_scale=1)  # a request takes 1/16 s, long enough to act while it runs
TWO_LOADS = {"spec.load": {"concurrency": [1, 2], "repeats": 1, "warmupRequests": 2}}


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "results")


def options_in(tmp_path: Path, attempt: str = "1-a") -> DriveOptions:
    return DriveOptions(attempt=attempt)


def contents(store: FolderStore) -> dict[str, bytes | None]:
    return {name: store.get(name) for name in store.keys("")}


async def drive(tmp_path: Path, plan: Plan, store: FolderStore, attempt: str = "1-a") -> list[str]:
    """Drive the first group; return the ids of the requests the engine received."""
    async with simulator(tmp_path / f"truth-{attempt}.jsonl") as engine:
        await drive_group(plan, plan.groups[0], engine.url, store, options_in(tmp_path, attempt))
        return engine.received()


def drive_to_second_point(
    plan: Plan, engine: RunningSimulator, store: FolderStore, options: DriveOptions
) -> tuple[asyncio.Task[GroupResult], asyncio.Future[None]]:
    """Start driving the first group; the future is done when its second point has its first record."""
    in_second: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch_progress(progress: Progress) -> None:
        if progress.point == plan.groups[0].points[1].hash and progress.requests_done and not in_second.done():
            in_second.set_result(None)

    watched = replace(options, on_progress=watch_progress, show_every_s=0.02)
    return asyncio.create_task(drive_group(plan, plan.groups[0], engine.url, store, watched)), in_second


async def test_every_prompt_turn_has_exactly_one_record_that_the_engine_received(
    tmp_path: Path, store: FolderStore
) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=6, turns=2))

    received = await drive(tmp_path, plan, store)

    records = records_of(plan, store)
    measured = measured_rows(records)
    turns = sorted(zip(measured.prompt_id, measured.turn, strict=True))
    assert turns == [(f"q{number}", turn) for number in range(6) for turn in range(2)]
    assert measured.error_class.isna().all()
    assert set(measured.phase) == {"steady"}, "filler requests keep the load up before and after them"
    first_completion = 1
    assert len(received) == len(set(received)) == len(records) + first_completion
    assert set(records.request_id) < set(received)


async def test_warm_up_runs_once_per_launch_with_its_own_prompts(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), TWO_LOADS)

    await drive(tmp_path, plan, store)

    first, second = (records_of(plan, store, [point.hash]) for point in plan.groups[0].points)
    warm = first[first.phase == "warmup"]
    assert set(warm.prompt_id) == {f"warmup-{number}" for number in range(len(warm))}
    assert second[second.phase == "warmup"].empty
    assert not set(warm.output_sha256) & set(measured_rows(first).output_sha256)


async def test_stored_files_of_a_measured_group(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    await drive(tmp_path, plan, store, attempt="7-b")
    assert store.get(PLAN) == plan.to_json().encode()
    (point,) = plan.groups[0].points
    manifest = Manifest.from_json(store.get(manifest_key(point.hash)) or b"")
    assert manifest.attempt == "7-b"
    assert manifest.observed.launch == "0-7-b"
    assert manifest.observed.engine_version == "simulated-0.1.0"
    assert manifest.observed.engine_model == "simulated"
    assert manifest.observed.prompts == 6
    assert [file.key for file in manifest.files] == [
        f"points/{point.hash}/records/0-7-b.parquet",
        summary_key(point.hash),
    ]
    assert PointSummary.from_json(store.get(summary_key(point.hash)) or b"").simulated


async def test_measured_group_sends_no_request(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), TWO_LOADS)
    await drive(tmp_path, plan, store)
    before = contents(store)

    result = await drive_group(plan, plan.groups[0], "http://127.0.0.1:9", store, options_in(tmp_path, "2-a"))

    assert result.measured == ()
    assert set(result.found) == {point.hash for point in plan.groups[0].points}
    assert contents(store) == before


async def test_only_the_point_without_a_manifest_is_measured_again(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), TWO_LOADS)
    await drive(tmp_path, plan, store)
    kept, lost = plan.groups[0].points
    manifest = store.get(manifest_key(kept.hash))
    (
        tmp_path / "results" / manifest_key(lost.hash)
    ).unlink()  # the state after a kill just before the manifest is written

    received = await drive(tmp_path, plan, store, attempt="2-a")

    assert store.get(manifest_key(kept.hash)) == manifest
    assert not [request for request in received if request.startswith(kept.hash[:12])]
    records = records_of(plan, store, [lost.hash])
    assert sorted(measured_rows(records).prompt_id) == [f"q{number}" for number in range(6)]
    assert len(store.keys(f"points/{lost.hash}/records/")) == 2


async def test_changed_prompts_are_rejected(tmp_path: Path, store: FolderStore) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl")
    plan = plan_of(prompts, TWO_LOADS)
    await drive(tmp_path, plan, store)
    (tmp_path / "results" / manifest_key(plan.groups[0].points[1].hash)).unlink()
    write_prompts(prompts, text="Tell me nothing of")

    with pytest.raises(BadInput, match=r"prompts of the workload 'chat' changed from .* to .*") as caught:
        await drive(tmp_path, plan, store, attempt="2-a")

    assert caught.value.reason == "ObservedChanged"
    assert "anew without results.adopt" in str(caught.value), "results.adopt would find the same results again"


async def test_engine_lost_during_a_point_leaves_no_manifest_for_it(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=12), TWO_LOADS)
    first, second = plan.groups[0].points

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        task, in_second = drive_to_second_point(plan, engine, store, options_in(tmp_path))
        await in_second
        await engine.stop()
        with pytest.raises(EngineFailed) as failed:
            await task

    assert failed.value.reason == "EngineLost"
    assert store.get(manifest_key(first.hash)) is not None
    assert store.get(manifest_key(second.hash)) is None


async def test_cancelled_drive_keeps_finished_points_and_can_be_continued(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=12), TWO_LOADS)
    first, second = plan.groups[0].points
    async with simulator(tmp_path / "truth-1.jsonl", SLOW) as engine:
        task, in_second = drive_to_second_point(plan, engine, store, options_in(tmp_path))
        await in_second
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    manifest = store.get(manifest_key(first.hash))
    assert manifest is not None
    assert store.get(manifest_key(second.hash)) is None

    await drive(tmp_path, plan, store, attempt="2-a")

    assert store.get(manifest_key(first.hash)) == manifest
    records = records_of(plan, store)
    measured = measured_rows(records).groupby("point").prompt_id.apply(sorted)
    everything = sorted(f"q{number}" for number in range(12))
    assert measured[first.hash] == measured[second.hash] == everything


@pytest.mark.parametrize(("restarts", "known"), [(False, True), (True, None)])
async def test_prompts_that_an_interrupted_attempt_sent_to_a_running_server_are_reported(
    tmp_path: Path, store: FolderStore, *, restarts: bool, known: bool | None
) -> None:
    """Unless it is restarted since. A third of a short prompt is a block that is never reused."""
    prompts = tmp_path / "p.jsonl"
    texts = [f"Number {number}: {'a word ' * 15}" for number in range(24)]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    async with simulator(tmp_path / "truth.jsonl", replace(SLOW, prefix_cache_tokens=100_000)) as engine:
        endpoints = [{"name": "none", "url": engine.url, "dialect": "vllm"}]
        running = {"kind": "external", "endpoints": endpoints}
        edits = {"spec.model.name": "simulated", "spec.engine": running, "spec.drafters": []}
        load = {"concurrency": [1, 2, 3], "requests": 8, "repeats": 1, "warmupRequests": 2}
        plan = plan_of(prompts, {**edits, "spec.load": load}).model_copy(update={"restarts": restarts or None})
        task, in_second = drive_to_second_point(plan, engine, store, options_in(tmp_path))
        await in_second
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await drive_group(plan, plan.groups[0], engine.url, store, options_in(tmp_path, "2-a"))
    points = PointStore(store)
    measured = [points.read_summary(each) for each in points.manifests([p.hash for p in plan.points]).values()]
    assert [each.client_health.interrupted_before for each in measured] == [None, known, None]
    assert [is_sent_again(each) for each in measured] == [False, known is True, False]
    assert [each.engine_launch for each in measured] == (["1", "2", "2"] if restarts else [None] * 3)


async def test_an_arm_of_a_soak_test_ends_when_it_has_decayed(
    tmp_path: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = {"concurrency": [2], "order": "Soak", "durationSeconds": 1, "repeats": 4, "warmupRequests": 0}
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), {"spec.load": {**load, "stop": "WhenDecayed"}})
    monkeypatch.setattr(group, "has_decayed", lambda windows: len(windows) == 2)
    monkeypatch.setattr(point, "KV_CACHE_PAUSE_S", 0.01)
    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        ended = await drive_group(plan, plan.groups[0], engine.url, store, options_in(tmp_path))
        again = await drive_group(plan, plan.groups[0], engine.url, store, options_in(tmp_path, "1-b"))
    first, second, *_ = [point.hash for point in plan.groups[0].points]
    assert ended.measured == (first, second)
    assert (again.measured, set(again.found)) == ((), {first, second})
    assert list(store.keys("ended/")) == [ended_key(0, 2)]
    stored = PointSummary.from_json(store.get(summary_key(second)) or b"")
    assert stored.engine_launch == "1"
    assert stored.kv_cache_usage is not None
    assert 0 < stored.kv_cache_usage < 1


async def test_progress_is_reported_and_stored(tmp_path: Path, store: FolderStore) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), TWO_LOADS)
    reports: list[Progress] = []

    async with simulator(tmp_path / "truth.jsonl") as engine:
        options = replace(options_in(tmp_path), on_progress=reports.append)
        await drive_group(plan, plan.groups[0], engine.url, store, options)

    assert (reports[0].points_done, reports[0].points_total, reports[0].phase) == (0, 2, "starting")
    assert (reports[-1].points_done, reports[-1].requests_done, reports[-1].phase) == (2, 6, "done")
    stored = json.loads(store.get("progress.json") or b"")
    assert stored["schemaVersion"] == "specbench.io/progress/v1"
    assert stored["attempt"] == options.attempt
    assert stored["pointsDone"] == 2
