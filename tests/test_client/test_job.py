"""`specbench-client`: exit codes, termination messages and stored results."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from specbench_api.outcome.layout import GATE, manifest_key, run_root
from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import Gate, GateRequest
from specbench_api.spec.slo import SLO_VARIABLE, Slo
from specbench_client.documents.summary import RunSummary
from specbench_client.drive.options import DriveOptions
from specbench_client.job import commands, termination
from specbench_client.job.commands import run_program
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import StoreErrorReason
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.faulty_stores import RejectingStore
from specbench_testing.local_results import store_results
from specbench_testing.s3 import S3Access
from specbench_testing.simulated_groups import UID, plan_of, write_prompts
from specbench_testing.synthetic_records import SyntheticRun


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restore the root logger that the program configures, because it runs in pytest's process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


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
        (
            {"endpoint": "engine:8000"},
            "BadInput",
            "--endpoint 'engine:8000' is not the URL of an engine: write http://engine:8000",
        ),
        ({"endpoint": ""}, "BadInput", "--endpoint '' is not the URL"),
        ({"endpoint": "http://"}, "BadInput", "--endpoint 'http://' is not the URL"),
        ({"endpoint": "http://engine:port"}, "BadInput", "--endpoint 'http://engine:port' is not the URL"),
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
    monkeypatch.setenv("SPECBENCH_HOST_FACTS", '{"where": "on the moon"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert "--place: not the place of an engine" in termination_message(tmp_path)["message"]


def test_invalid_plan_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"name": "half"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert termination_message(tmp_path)["reason"] == "PlanUnreadable"


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
    assert "client and operator must be of one version" in termination_message(tmp_path)["message"]


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
