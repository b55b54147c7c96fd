"""The job of a run on a cluster: its commands, termination, and what survives a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import GATE, PLAN_DIGEST_VARIABLE, manifest_key, run_root
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.canonical import digest, digest_of_gate
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import Gate, GateRequest
from specbench_api.spec.slo import SLO_VARIABLE, Slo
from specbench_client.documents.summary import RunSummary
from specbench_client.drive.options import DriveOptions
from specbench_client.job import commands, termination
from specbench_client.job.commands import read_plan, run_program
from specbench_client.job.termination import StopRequested, TerminationWriter, termination_log
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.store.folder import FolderStore
from specbench_client.store.locations import open_store
from specbench_client.store.store import Store, StoreErrorReason
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.closing_servers import accepting
from specbench_testing.faulty_stores import RejectingStore
from specbench_testing.local_results import store_results
from specbench_testing.s3 import IgnoringConditions, S3Access
from specbench_testing.simulated_groups import UID, RunningSimulator, plan_of, records_of, simulator, write_prompts
from specbench_testing.synthetic_records import SyntheticRun, measured_rows

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    return plan


def drive_args(tmp_path: Path, **changed: str) -> list[str]:
    given = {
        "plan": str(tmp_path / "plan.json"),
        "group": "0",
        "attempt": "1",
        "endpoint": "http://127.0.0.1:9",
        "results": str(tmp_path / "results"),
        "termination-log": str(tmp_path / "ended"),
        **changed,
    }
    return ["drive", *(word for name, value in given.items() for word in (f"--{name}", value))]


def termination_message(tmp_path: Path) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((tmp_path / "ended").read_text())
    return message


@pytest.mark.parametrize(
    ("changed", "reason", "message"),
    [
        ({"plan": "missing.json"}, "PlanUnreadable", "missing.json: No such file"),
        ({"group": "7"}, "BadInput", "--group 7: the plan has the groups 0 to 1"),
        ({"group": "one"}, "BadInput", "'one' is not a valid integer"),
        ({"attempt": "../1"}, "BadInput", "--attempt '../1'"),
        ({"results": "ftp://x"}, "BadInput", "results cannot be stored at ftp://"),
        ({"results": "s3://Bu cket_/x"}, "BadInput", "is not a valid bucket name"),
        ({"endpoint": "engine:8000"}, "BadInput", "--endpoint does not begin with http:// or https://"),
        ({"endpoint": ""}, "BadInput", "--endpoint does not begin with http:// or https://"),
        ({"endpoint": "http://"}, "BadInput", "--endpoint has no host"),
        ({"endpoint": "http://engine:port"}, "BadInput", "--endpoint has an invalid port"),
        ({"place": "{"}, "BadInput", "--place: not the place of an engine"),
        ({"nonsense": "1"}, "BadInput", "No such option"),
    ],
)
def test_bad_input_exits_with_2_and_a_message(
    changed: dict[str, str], reason: str, message: str, plan: Plan, tmp_path: Path
) -> None:
    assert run_program(drive_args(tmp_path, **changed)) == 2

    assert (termination_message(tmp_path)["code"], termination_message(tmp_path)["reason"]) == (2, reason)
    assert message in termination_message(tmp_path)["message"]


def test_host_facts_are_read_from_the_environment(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_HOST_FACTS", '{"facts": "on the moon"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert "--place: not the place of an engine" in termination_message(tmp_path)["message"]


def test_invalid_plan_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"name": "half"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert termination_message(tmp_path)["reason"] == "PlanUnreadable"


@pytest.mark.parametrize("command", ["drive", "report"])
def test_a_plan_that_was_replaced_after_the_job_was_created_exits_with_2(
    command: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plan.json"
    monkeypatch.setenv(PLAN_DIGEST_VARIABLE, digest(file.read_text()))
    assert read_plan(file) == plan
    file.write_text(plan.model_copy(update={"namespace": "prod"}).to_json())
    drive = drive_args(tmp_path)
    arguments = {"drive": drive, "report": ["report", *drive[1:3], *drive[drive.index("--results") :]]}[command]

    assert run_program(arguments) == 2
    assert termination_message(tmp_path)["reason"] == "OtherPlan"
    assert not (tmp_path / "results").exists()


def test_unreachable_engine_exits_with_4(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DriveOptions", partial(DriveOptions, healthy_within_s=0.1))

    assert run_program(drive_args(tmp_path)) == 4
    assert termination_message(tmp_path)["reason"] == "NeverReady"


def test_missing_bucket_exits_with_5(
    plan: Plan, tmp_path: Path, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)

    assert run_program(drive_args(tmp_path, results="s3://no-such-bucket/p")) == 5
    assert termination_message(tmp_path)["reason"] == "BucketMissing"


def test_a_store_that_cannot_keep_results_exits_with_5_before_the_engine_is_asked(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "open_store", lambda _: IgnoringConditions(tmp_path / "s3"))

    assert run_program(drive_args(tmp_path)) == 5
    assert termination_message(tmp_path)["reason"] == "StoreRefused"


def test_internal_error_exits_with_1_and_logs_its_traceback(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bug(*_: object) -> NoReturn:
        raise KeyError("bug")

    monkeypatch.setattr(commands, "drive_group", bug)

    assert run_program(drive_args(tmp_path)) == 1

    assert (termination_message(tmp_path)["code"], termination_message(tmp_path)["reason"]) == (1, "Bug")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert any("KeyError" in line.get("exception", "") for line in lines)


def test_termination_message_is_logged_when_its_file_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(termination, "TERMINATION_LOG", tmp_path / "nowhere")

    assert run_program(["drive"]) == 2

    assert not (tmp_path / "nowhere").exists()
    assert "Missing option" in json.loads(capsys.readouterr().err.splitlines()[-1])["message"]


@pytest.mark.parametrize("arguments", [["--termination-log", "F"], ["drive", "--termination-log=F", "--plan", "p"]])
def test_the_termination_log_is_found_before_the_flags_are_parsed(arguments: list[str]) -> None:
    assert termination_log(arguments) == Path("F")


def test_unwritable_termination_log_does_not_change_the_exit_code(tmp_path: Path) -> None:
    assert run_program(["report", f"--termination-log={tmp_path}"]) == 2


def test_report_of_an_unmeasured_run_is_written_and_exits_with_0(plan: Plan, tmp_path: Path) -> None:
    arguments = ["report", "--plan", str(tmp_path / "plan.json"), "--results", str(tmp_path / "results")]

    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 0

    root = tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)
    assert (root / "summary.json").exists()
    assert termination_message(tmp_path)["reason"] == "Reported"


def test_report_reads_its_targets_from_the_environment_and_rejects_invalid_ones(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["report", "--plan", str(tmp_path / "plan.json"), "--results", str(tmp_path / "results")]
    monkeypatch.setenv(SLO_VARIABLE, Slo(tpot_ms=35).to_line())
    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 0
    root = tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)
    assert RunSummary.from_json((root / "summary.json").read_bytes()).slo == Slo(tpot_ms=35)

    monkeypatch.setenv(SLO_VARIABLE, '{"fast": true}')
    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 2
    assert "of the version that wrote it" in termination_message(tmp_path)["message"]


@pytest.fixture
def half_measured(tmp_path: Path) -> Plan:
    """A run of two groups with the first one measured; its prompts do not exist."""
    plan = store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID, points=1)
    (tmp_path / "plan.json").write_text(plan.to_json())
    return plan


def root_of(plan: Plan, tmp_path: Path) -> Path:
    return tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)


def test_finished_group_needs_no_prompts_and_exits_with_0(half_measured: Plan, tmp_path: Path) -> None:
    assert run_program(drive_args(tmp_path)) == 0

    found = termination_message(tmp_path)
    assert (found["reason"], found["message"]) == ("Measured", "group 0: 0 points measured, 1 were already measured")


def test_truncated_manifest_is_reported_as_damage(half_measured: Plan, tmp_path: Path) -> None:
    manifest = root_of(half_measured, tmp_path) / manifest_key(half_measured.groups[0].points[0].hash)
    manifest.write_bytes(manifest.read_bytes()[:100])

    assert run_program(drive_args(tmp_path)) == 5

    assert termination_message(tmp_path)["reason"] == "Damaged"
    assert str(manifest.parent) in termination_message(tmp_path)["message"]


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_a_gate_is_written_although_its_store_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID)
    root = root_of(plan, tmp_path)
    conclude(plan, FolderStore(root))
    gate = Gate.model_validate({"baselineRef": {"run": "main"}})
    request = GateRequest(gate_digest=digest_of_gate(gate), gate=gate, baseline=str(root))
    store = RejectingStore(FolderStore(root), [(GATE, StoreErrorReason.AWAY)])
    monkeypatch.setattr(commands, "open_store", lambda _: store)
    arguments = ["gate", "--results", str(root), "--request", request.to_line()]

    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 0
    assert (store.refusals, (root / GATE).exists()) == ([], True)


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
def plan_of_kills(tmp_path: Path) -> Plan:
    return plan_of(write_prompts(tmp_path / "p.jsonl", count=PROMPTS, turns=TURNS), LOADS)


@pytest.mark.process
async def test_killed_client_continues_at_the_interrupted_point(
    plan_of_kills: Plan, tmp_path: Path, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In S3; the test of ten kills has a folder."""
    s3_access.enter(monkeypatch)
    job = Job(plan_of_kills, tmp_path, f"s3://{s3_access.bucket}/kills-{tmp_path.name}")
    first, second, _ = plan_of_kills.groups[0].points

    async with simulator(tmp_path / "truth.jsonl", SLOW) as engine:
        process = await job.start(engine)
        await await_point(plan_of_kills, 1, engine)
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


"""The client, whose analysis waits for a signal."""


LIBRARIES = ("aiohttp", "boto3", "botocore", "click", "numpy", "pandas", "pyarrow", "pydantic")

STILL_IMPORTING = """
import signal, sys

class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "specbench_client.job.commands":
            print("importing", flush=True)
            signal.pause()

sys.meta_path.insert(0, SlowDisk())
from specbench_client.job import main
main()
"""
HASTY = """
from specbench_client.job import main, termination
termination.EXIT_WITHIN_S = 0.5
main()
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ":".join(sys.path), **more}


@asynccontextmanager
async def unresponsive_endpoint() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield an endpoint that accepts and never responds, and an event set on its first connection."""
    contacted, over = asyncio.Event(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        contacted.set()
        await over.wait()

    async with accepting(take) as url:
        try:
            yield url, contacted
        finally:
            over.set()


def test_signal_handlers_are_installed_before_any_library_is_imported() -> None:
    code = f"import sys, specbench_client.job; print([name for name in {LIBRARIES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_imports_exits_with_130_and_a_message(number: signal.Signals, tmp_path: Path) -> None:
    call = [sys.executable, "-c", STILL_IMPORTING, "drive", "--termination-log", str(tmp_path / "ended")]
    with subprocess.Popen(call, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        assert process.wait(120) == 130

    termination_report = Termination.from_json((tmp_path / "ended").read_text())
    assert (termination_report.code, termination_report.reason) == (130, "Interrupted")
    assert termination_report.message.startswith(f"{number.name}: points with a manifest are kept")


@pytest.mark.process
@pytest.mark.parametrize("command", ["drive", "report"])
async def test_unresponsive_s3_does_not_delay_termination(command: str, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    more = ["--group", "0", "--attempt", "1", "--endpoint", "http://127.0.0.1:9"] if command == "drive" else []
    async with unresponsive_endpoint() as (endpoint, contacted), asyncio.timeout(240):
        access = S3Access(endpoint, "k", "s", "bench")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HASTY, command, "--plan", tmp_path / "plan.json", "--results", "s3://bench/x", *more,
            "--termination-log", tmp_path / "ended", env=environment(**access.environment()),
        )  # fmt: skip
        await contacted.wait()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 130

    termination_report = Termination.from_json((tmp_path / "ended").read_text())
    assert (termination_report.code, termination_report.reason) == (130, "Interrupted")


def test_final_message_replaces_the_interruption_message(tmp_path: Path) -> None:
    writer = TerminationWriter(tmp_path / "ended")
    writer._write_interrupted(signal.SIGTERM)
    first = Termination.from_json((tmp_path / "ended").read_text())

    writer.write("all of it", code=0)
    writer._write_interrupted(signal.SIGTERM)

    assert (first.code, first.message) == (Exit.INTERRUPTED, str(StopRequested(signal.SIGTERM)))
    assert (tmp_path / "ended").read_text() == "all of it\n"


def test_exit_deadline_is_within_a_pods_grace_period() -> None:
    assert termination.EXIT_WITHIN_S <= 15


@pytest.mark.long
async def test_client_killed_ten_times_still_measures_everything_once(plan_of_kills: Plan, tmp_path: Path) -> None:
    job = Job(plan_of_kills, tmp_path, str(tmp_path / "results"))

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
