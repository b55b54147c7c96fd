"""The client process is killed during a point and started again: nothing is lost or measured twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from specbench_api.outcome.layout import manifest_key, run_root
from specbench_api.plan.plan import Plan
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store.locations import open_store
from specbench_client.store.store import Store
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.s3 import S3Access
from specbench_testing.simulated_groups import RunningSimulator, plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process

LOADS = {"spec.load": {"concurrency": [1, 2, 4], "repeats": 1, "warmupRequests": 2}}
PROMPTS, TURNS = 12, 2
SLOW = SimulatorConfig(time_scale=0.3)


@dataclass(frozen=True)
class Job:
    """Runs of `specbench-client drive` as processes with the same arguments, as in a Job's pods."""

    plan: Plan
    folder: Path
    results: str

    @property
    def store(self) -> Store:
        return open_store(self.results).below(run_root(self.plan.namespace, self.plan.name, self.plan.uid))

    async def start(self, engine: RunningSimulator) -> asyncio.subprocess.Process:
        (self.folder / "plan.json").write_text(self.plan.to_json())
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "specbench_client.job", "drive", "--plan", self.folder / "plan.json", "--group", "0",
            "--attempt", "1", "--endpoint", engine.url, "--results", self.results,
            "--termination-log", self.folder / "ended", stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(self.folder)},
        )  # fmt: skip

    def ended(self) -> dict[str, object]:
        message: dict[str, object] = json.loads((self.folder / "ended").read_text())
        return message

    def stored_points(self) -> int:
        return sum(self.store.get(manifest_key(point.hash)) is not None for point in self.plan.points)


async def await_point(plan: Plan, index: int, engine: RunningSimulator) -> None:
    """Return when the engine has answered five measured requests of this point."""
    start = plan.groups[0].points[index].hash[:12]
    async with asyncio.timeout(120):
        while sum(request.startswith(start) for request in engine.received()) < 5:  # noqa: ASYNC110 -- seen in a file
            await asyncio.sleep(0.01)


async def finish(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(120):
        _, log = await process.communicate()
    sys.stderr.write(log.decode())
    return process.returncode if process.returncode is not None else -1


def assert_everything_was_measured_once(job: Job, engine: RunningSimulator) -> None:
    records = records_of(job.plan, job.store, [point.hash for point in job.plan.groups[0].points])
    measured = measured_rows(records)
    turns = Counter(zip(measured.point, measured.prompt_id, measured.turn, strict=True))
    points = [point.hash for point in job.plan.groups[0].points]
    everything = {(point, f"q{n}", turn) for point in points for n in range(PROMPTS) for turn in range(TURNS)}
    assert set(turns) == everything
    assert set(turns.values()) == {1}
    assert measured.error_class.isna().all()
    received = Counter(engine.received())
    assert set(received.values()) == {1}
    assert set(records.request_id) <= set(received)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(write_prompts(tmp_path / "p.jsonl", count=PROMPTS, turns=TURNS), LOADS)


@pytest.mark.parametrize("where", ["folder", "s3"])
async def test_killed_client_continues_at_the_interrupted_point(
    where: str, plan: Plan, tmp_path: Path, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    results = str(tmp_path / "results") if where == "folder" else f"s3://{s3_access.bucket}/kills-{tmp_path.name}"
    job = Job(plan, tmp_path, results)
    first, second, _ = plan.groups[0].points

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        process = await job.start(engine)
        await await_point(plan, 1, engine)
        process.send_signal(signal.SIGKILL)
        assert await finish(process) == -signal.SIGKILL
        assert job.store.get(manifest_key(second.hash)) is None
        manifest = job.store.get(manifest_key(first.hash))
        of_first = [request for request in engine.received() if request.startswith(first.hash[:12])]

        assert await finish(await job.start(engine)) == 0

        assert manifest is not None
        assert job.store.get(manifest_key(first.hash)) == manifest
        assert [request for request in engine.received() if request.startswith(first.hash[:12])] == of_first
        assert_everything_was_measured_once(job, engine)
    message = "group 0: 2 points measured, 1 were already measured"
    assert job.ended() == {"code": 0, "reason": "Measured", "message": message}


@pytest.mark.long
async def test_client_killed_ten_times_still_measures_everything_once(plan: Plan, tmp_path: Path) -> None:
    job = Job(plan, tmp_path, str(tmp_path / "results"))

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        for kill in range(10):
            process = await job.start(engine)
            answered = len(engine.received())
            async with asyncio.timeout(120):
                while process.returncode is None and len(engine.received()) < answered + kill:  # noqa: ASYNC110 -- same
                    await asyncio.sleep(0.005)
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await finish(process)

        assert await finish(await job.start(engine)) == 0

        assert_everything_was_measured_once(job, engine)


async def start_client(job: Job, engine: RunningSimulator, client: int) -> asyncio.subprocess.Process:
    """Start one client of several, as the pod of an Indexed Job."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "specbench_client.job", "drive", "--plan", job.folder / "plan.json", "--group", "0",
        "--attempt", "1", "--endpoint", engine.url, "--results", job.results,
        "--termination-log", job.folder / f"ended-{client}", stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(job.folder), "JOB_COMPLETION_INDEX": str(client)},
    )  # fmt: skip


@pytest.mark.parametrize(("where", "killed"), [("folder", 0), ("s3", 1)])
async def test_clients_of_one_load_end_together_and_measure_everything_once(
    where: str, killed: int, tmp_path: Path, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    load = {"concurrency": [2, 4], "repeats": 1, "warmupRequests": 2, "clients": 2}
    plan = plan_of(write_prompts(tmp_path / "p.jsonl", count=PROMPTS, turns=TURNS), {"spec.load": load})
    folder = str(tmp_path / "results")
    job = Job(plan, tmp_path, folder if where == "folder" else f"s3://{s3_access.bucket}/clients-{tmp_path.name}")
    (tmp_path / "plan.json").write_text(plan.to_json())

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        clients = [await start_client(job, engine, client) for client in range(2)]
        await await_point(plan, 1, engine)
        clients[killed].send_signal(signal.SIGKILL)
        codes = await asyncio.gather(*map(finish, clients))
        assert (codes[killed], codes[1 - killed]) == (-signal.SIGKILL, 1)
        lost = json.loads((tmp_path / f"ended-{1 - killed}").read_text())
        assert (lost["reason"], job.stored_points()) == ("ClientLost", 1)
        assert f"client {killed} of 2 was lost" in lost["message"]

        clients = [await start_client(job, engine, client) for client in range(2)]
        assert await asyncio.gather(*map(finish, clients)) == [0, 0]

        assert_everything_was_measured_once(job, engine)
    assert conclude(plan, job.store).points_measured == 2


"""The client, whose analysis waits for a signal."""
