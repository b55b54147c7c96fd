"""`specbench-client`: what it leaves behind on every way out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from specbench_api.outcome.layout import manifest_key, run_root
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.slo import SLO_VARIABLE, Slo
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import ProgressTracker
from specbench_client.errors import NotDurable
from specbench_client.job import commands, termination
from specbench_client.job.commands import StoredPointCount
from specbench_client.job.entrypoint import run_program
from specbench_client.job.termination import TerminationWriter
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import StoreErrorReason
from specbench_testing.faulty_stores import HangingStore
from specbench_testing.local_results import store_results
from specbench_testing.s3 import S3Access
from specbench_testing.simulated_groups import UID, plan_of, write_prompts
from specbench_testing.synthetic_records import SyntheticRun


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """A program sets up its process; here the process is pytest's."""
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


def ended(tmp_path: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((tmp_path / "ended").read_text())
    return said


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_program(["--help"]) == 0
    assert run_program(["drive", "--help"]) == 0

    told = capsys.readouterr().out
    assert "specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint" in told
    assert "AWS_ENDPOINT_URL_S3" in told
    assert "5 results not stored" in told


@pytest.mark.parametrize(
    ("changed", "reason", "said"),
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
def test_bad_input_ends_with_2_and_says_what(
    changed: dict[str, str], reason: str, said: str, plan: Plan, tmp_path: Path
) -> None:
    assert run_program(drive_args(tmp_path, **changed)) == 2

    assert (ended(tmp_path)["code"], ended(tmp_path)["reason"]) == (2, reason)
    assert said in ended(tmp_path)["message"]
    assert ended(tmp_path)["measured"] is None


def test_the_place_of_the_engine_is_read_from_the_environment(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECBENCH_HOST_FACTS", '{"where": "on the moon"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert "--place: not the place of an engine" in ended(tmp_path)["message"]


def test_a_plan_that_is_none_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"name": "half"}')

    assert run_program(drive_args(tmp_path)) == 2
    assert ended(tmp_path)["reason"] == "PlanUnreadable"


def test_an_engine_that_is_not_there_ends_with_4(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DriveOptions", partial(DriveOptions, healthy_within_s=0.1))

    assert run_program(drive_args(tmp_path)) == 4
    assert (ended(tmp_path)["reason"], ended(tmp_path)["measured"]) == ("NeverReady", 0)


def test_a_bucket_that_is_not_there_ends_with_5(
    plan: Plan, tmp_path: Path, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)

    assert run_program(drive_args(tmp_path, results="s3://no-such-bucket/p")) == 5
    assert ended(tmp_path)["reason"] == "BucketMissing"


def test_a_bug_of_ours_ends_with_1_and_leaves_its_trace_in_the_log(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bug(*_: object) -> NoReturn:
        raise KeyError("bug")

    monkeypatch.setattr(commands, "drive_group", bug)

    assert run_program(drive_args(tmp_path)) == 1

    assert (ended(tmp_path)["code"], ended(tmp_path)["reason"]) == (1, "Bug")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert any("KeyError" in line.get("exception", "") for line in lines)


def test_without_a_place_for_it_the_ending_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(termination, "TERMINATION_LOG", tmp_path / "nowhere")

    assert run_program(["drive"]) == 2

    assert not (tmp_path / "nowhere").exists()
    assert "Missing option" in json.loads(capsys.readouterr().err.splitlines()[-1])["message"]


def test_a_termination_log_that_cannot_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    assert run_program(["report", f"--termination-log={tmp_path}"]) == 2


def test_a_report_of_nothing_measured_is_written_and_ends_with_0(plan: Plan, tmp_path: Path) -> None:
    arguments = ["report", "--plan", str(tmp_path / "plan.json"), "--results", str(tmp_path / "results")]

    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 0

    root = tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)
    assert (root / "summary.json").exists()
    assert ended(tmp_path)["reason"] == "Reported"
    assert ended(tmp_path)["measured"] == 0


def test_a_report_judges_by_the_targets_in_its_environment_and_refuses_what_are_none(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["report", "--plan", str(tmp_path / "plan.json"), "--results", str(tmp_path / "results")]
    monkeypatch.setenv(SLO_VARIABLE, Slo(tpot_ms=35).to_line())
    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 0
    root = tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)
    assert RunSummary.from_json((root / "summary.json").read_bytes()).slo == Slo(tpot_ms=35)

    monkeypatch.setenv(SLO_VARIABLE, '{"fast": true}')
    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 2
    assert "client and operator must be of one version" in ended(tmp_path)["message"]


# -- how many points are stored ----------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Plan:
    """A run of two groups, of which the first is measured and the second is not; its prompts are not here."""
    plan = store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID, points=1)
    (tmp_path / "plan.json").write_text(plan.to_json())
    return plan


def root_of(plan: Plan, tmp_path: Path) -> Path:
    return tmp_path / "results" / run_root(plan.namespace, plan.name, plan.uid)


def test_a_group_that_is_finished_needs_no_prompts_and_ends_with_0(kept: Plan, tmp_path: Path) -> None:
    assert run_program(drive_args(tmp_path)) == 0

    assert (ended(tmp_path)["reason"], ended(tmp_path)["measured"]) == ("Measured", 1)


def test_a_manifest_that_is_half_written_is_damage_and_not_a_point_that_is_measured(kept: Plan, tmp_path: Path) -> None:
    manifest = root_of(kept, tmp_path) / manifest_key(kept.groups[0].points[0].hash)
    manifest.write_bytes(manifest.read_bytes()[:100])

    assert run_program(drive_args(tmp_path)) == 5

    assert ended(tmp_path)["reason"] == "Damaged"
    assert str(manifest.parent) in ended(tmp_path)["message"]


def test_an_ending_tells_what_is_stored_also_by_others(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SyntheticRun(prompts=4, repeats=1)

    def overtaken(*_: object) -> NoReturn:
        store_results(world, tmp_path / "results", UID, points=1)
        raise NotDurable("another client wrote it", StoreErrorReason.CONFLICT)

    (tmp_path / "plan.json").write_text(store_results(world, tmp_path / "results", UID, points=0).to_json())
    monkeypatch.setattr(commands, "drive_group", overtaken)

    assert run_program(drive_args(tmp_path)) == 5
    assert (ended(tmp_path)["reason"], ended(tmp_path)["measured"]) == ("Conflict", 1)


def test_a_report_that_finds_damage_tells_what_is_stored(kept: Plan, tmp_path: Path) -> None:
    next(root_of(kept, tmp_path).rglob("*.parquet")).unlink()
    arguments = ["report", "--plan", str(tmp_path / "plan.json"), "--results", str(tmp_path / "results")]

    assert run_program([*arguments, "--termination-log", str(tmp_path / "ended")]) == 5

    assert (ended(tmp_path)["reason"], ended(tmp_path)["measured"]) == ("Damaged", 1)


def test_a_store_that_does_not_answer_is_not_waited_for(
    kept: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "COUNT_WITHIN_S", 0.01)
    silent = HangingStore(FolderStore(root_of(kept, tmp_path)))
    counted = StoredPointCount(TerminationWriter(None))
    counted.follow(silent, [point.hash for point in kept.points])
    counted.note(ProgressTracker(kept.groups[0], 0, lambda: 0).current())

    counted.recount()

    assert counted.measured == 0
    silent.release.set()
    counted.recount()
    assert counted.measured == 1
