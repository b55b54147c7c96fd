"""`specbench report` over stored results: the selection of a run, and all records in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import SUMMARY, launch_key, run_root
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import ArmOrder
from specbench_api.spec.slo import Slo
from specbench_client.cli import exit_code
from specbench_client.cli.report import POINTS_STAND, print_run_summary
from specbench_client.cli.run_selection import select_run
from specbench_client.documents.finding import Finding, Severity, doubting_checks
from specbench_client.documents.summary import RunSummary
from specbench_client.local.local_runs import exclusive_run
from specbench_client.measure_flags import MEASURED_WORKLOAD
from specbench_client.report.text.findings import continue_run, group_findings, measure_again, next_step
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_client.trust.checks.comparison import missing_points
from specbench_client.trust.registry import rank
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

EARLIER, LATER = "0190a000-0000-7000-8000-000000000000", "0190b000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=8, concurrency=(1, 2), repeats=2)


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return run_of_world(WORLD)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run of which every point is measured; only its report is written."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    store_results(WORLD, folder, EARLIER)
    return folder


def shown(
    capsys: pytest.CaptureFixture[str], summary: RunSummary, plan: Plan = WORLD.plan, *, show_all: bool = False
) -> str:
    """Return what the terminal shows of a summary."""
    print_run_summary(plan, summary, "text", "results", show_all=show_all)
    return capsys.readouterr().out


def test_several_runs_are_listed_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_results(WORLD, tmp_path / "out", EARLIER)
    store_results(WORLD, tmp_path / "out", LATER, points=1)
    exit_code(["report", str(tmp_path / "out/runs/local/small" / EARLIER), "--output", "json"])
    capsys.readouterr()

    assert exit_code(["report", str(tmp_path / "out")]) == Exit.BAD_INPUT

    printed = capsys.readouterr().err
    assert "contains 2 runs: give one of them, or add --latest" in printed
    rows = [line for line in printed.splitlines() if " points  " in line]
    assert [row.split()[0][:10] for row in rows] == ["2024-07-14", "2024-07-11"]
    assert ["1 of 8 points  no summary yet" in rows[0], "8 of 8 points" in rows[1]] == [True, True]
    assert exit_code(["report", str(tmp_path / "out"), "--latest", "--output", "json"]) == Exit.OK
    assert f'"uid": "{LATER}"' in capsys.readouterr().out


def test_a_run_that_was_interrupted_before_its_first_point_is_not_the_latest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_results(WORLD, tmp_path / "out", EARLIER)
    plan = store_results(WORLD, tmp_path / "out", LATER, points=0)
    store = FolderStore(tmp_path / "out" / run_root(plan.namespace, plan.name, LATER))
    store.put(launch_key("0-a"), b"{}")
    assert exit_code(["report", str(tmp_path / "out"), "--latest", "--output", "json"]) == Exit.OK
    assert f'"uid": "{EARLIER}"' in capsys.readouterr().out


def test_the_latest_run_to_conclude_from_is_the_newest_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    store_results(WORLD, tmp_path / "out", EARLIER)
    store_results(WORLD, tmp_path / "out", LATER, points=1)
    chosen = [select_run(out, latest=True, ended=ended).plan.uid for ended in (False, True)]
    assert chosen == [LATER, EARLIER]
    assert LATER in capsys.readouterr().err
    assert exit_code(["decide", out, "--latest"]) != Exit.BAD_INPUT
    for points, chosen_uid in ((0, EARLIER), (2, LATER)):
        two = tmp_path / f"{points} points of the later one"
        store_results(WORLD, two, EARLIER, points=1)
        store_results(WORLD, two, LATER, points=points)
        capsys.readouterr()
        assert select_run(str(two), latest=True, ended=True).plan.uid == chosen_uid, "none of them has ended"
        assert not capsys.readouterr().err


def test_recomputing_reports_that_findings_of_points_are_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_results(WORLD, tmp_path / "out", EARLIER)
    assert exit_code(["report", str(tmp_path / "out"), "--output", "json"]) in (Exit.OK, Exit.UNTRUSTWORTHY)
    assert POINTS_STAND not in capsys.readouterr().err
    points = {file: file.read_bytes() for file in (tmp_path / "out").rglob("points/*/summary.json")}
    assert len(points) == 8
    exit_code(["report", str(tmp_path / "out"), "--recompute", "--output", "json"])
    assert POINTS_STAND in capsys.readouterr().err
    assert {file: file.read_bytes() for file in points} == points


def test_parquet_contains_all_records_with_arm_workload_load_and_repeat(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    assert exit_code(["report", str(finished), "--output", "parquet", "--to", str(file)]) == Exit.OK
    records = pd.read_parquet(file)
    assert list(records.columns[:4]) == ["arm", "workload", "load", "request_id"]
    expected = {(point.arm, point.workload, point.level.label, point.repeat) for point in WORLD.plan.points}
    assert set(records[["arm", "workload", "load", "repeat"]].itertuples(index=False, name=None)) == expected
    stored = [pd.read_parquet(part) for part in finished.rglob("points/*/records/*.parquet")]
    assert len(records) == sum(map(len, stored))


def test_terminal_shows_each_remedy_and_the_number_of_further_findings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing = Corruptions(
        records=lambda point, frame: frame.assign(error_class="reset") if point.arm == "ngram" else frame
    )
    summary = run_of_world(WORLD, failing)
    groups = group_findings(WORLD.plan, summary.findings)
    failed = next(group for group in groups if group.check == "RequestsFailed")
    repeats = len([point for point in WORLD.plan.points if point.arm == "ngram"])
    assert failed.more == f" (and in {repeats - 1} more points)"
    printed = " ".join(shown(capsys, summary, show_all=True).split())
    assert printed.startswith(" ".join(summary.headline.split()))
    for group in groups:
        assert " ".join(group.text.split()) in printed
        assert printed.count(f"What to do: {group.remedy}") == 1
    assert f"Next: Correct what RequestsFailed reports. {measure_again(WORLD.plan)}" in printed
    assert summary.recommendation is not None
    assert f"Recommendation: {' '.join(summary.recommendation.sentence.split())}" in printed, (
        "the recommendation names arm and load"
    )


def test_missing_points_are_not_followed_by_advice_to_measure_everything_again(summary: RunSummary) -> None:
    lost = Finding(check=missing_points.name, severity=Severity.WARNING, message="1 of 8 points have no result")
    lacking = summary.model_copy(update={"findings": [lost], "trustworthy": False})
    advice = next_step(WORLD.plan, lacking, "results")
    assert advice == continue_run(WORLD.plan)


@pytest.mark.parametrize(
    ("checks", "first"),
    [
        (["LateStreamEnd", "ClientSaturated", "RequestsFailed"], "RequestsFailed"),
        (["LateStreamEnd", "UnpairedRequests", "ClientSaturated"], "ClientSaturated"),
        (["AcceptanceCounterMismatch", "ForeignTraffic"], "ForeignTraffic"),
        (["ChunksCoalesced", "RequestsStalled"], "RequestsStalled"),
        (["LateStreamEnd", "ChunksCoalesced"], "ChunksCoalesced"),
        (["BaselineInvalid", "ChunksCoalesced"], "ChunksCoalesced"),
        (["ClientSaturated as Warning", "ChunksCoalesced"], "ChunksCoalesced"),
        (["ChunksCoalesced as Warning", "IntervalTooWide as Warning"], "IntervalTooWide"),
        (["AcceptanceUnconfirmed as Warning", "IntervalTooWide as Warning"], "IntervalTooWide"),
        (["IntervalTooWide as Warning", "NoisyRepeats as Warning"], "NoisyRepeats"),
        (["IntervalTooWide as Warning", "WarmupNotSteady as Warning"], "WarmupNotSteady"),
        (["IntervalTooWide as Warning", "ChunksCoalesced"], "ChunksCoalesced"),
        (["NoisyRepeats as Warning", "PromptsSentAgain as Warning", "ReuseLost as Fault"], "PromptsSentAgain"),
    ],
)
def test_the_cause_of_others_is_corrected_first(checks: list[str], first: str, summary: RunSummary) -> None:
    """The headline names the same one."""
    named = [check.partition(" as ") for check in checks]
    found = [Finding(check=name, severity=Severity(given or "Invalid"), message="m") for name, _, given in named]
    doubtful = summary.model_copy(update={"findings": found, "trustworthy": False})
    advice = next_step(WORLD.plan, doubtful, "results")
    assert advice.startswith(f"Correct what {first} reports")
    assert doubting_checks(sorted(found, key=rank))[0] == first


@pytest.mark.parametrize(
    ("check", "load", "uid", "expected"),
    [
        ("ClientSaturated", {}, EARLIER, "--retry-invalid"),
        ("ClientSaturated as Warning", {}, EARLIER, ""),  # no point is invalid
        ("ForeignTraffic", {}, EARLIER, "--retry-invalid"),
        ("RequestsFailed", {}, EARLIER, ""),
        ("ClientSaturated", {"repeats": 2}, EARLIER, ""),
        ("ClientSaturated", {"order": ArmOrder.SEQUENTIAL}, EARLIER, ""),
        ("ClientSaturated", {}, "0a000000-0000-4000-8000-000000000000", "results.adopt"),
        ("RequestsFailed", {}, "0a000000-0000-4000-8000-000000000000", ""),
    ],
)
def test_spoiled_repeats_are_retried_where_the_run_can(
    check: str, load: dict[str, object], uid: str, summary: RunSummary, expected: str
) -> None:
    kept = {"repeats": 4, "order": ArmOrder.INTERLEAVED, **load}
    plan = WORLD.plan.model_copy(update={"uid": uid, "load": WORLD.plan.load.model_copy(update=kept)})
    name, _, severity = check.partition(" as ")
    found = [Finding(check=name, severity=Severity(severity or "Invalid"), message="m")]
    doubtful = summary.model_copy(update={"findings": found, "trustworthy": False})
    step = next_step(plan, doubtful, "results")
    assert [way for way in ("--retry-invalid", "results.adopt") if way in step] == ([expected] if expected else [])


@pytest.mark.parametrize(("sent_again", "retried"), [("p", False), ("other", True)])
def test_a_spoiled_point_whose_prompts_were_sent_is_not_retried_without_new_ones(
    sent_again: str, retried: bool, summary: RunSummary
) -> None:
    kept = {"repeats": 4, "order": ArmOrder.INTERLEAVED}
    plan = WORLD.plan.model_copy(update={"uid": EARLIER, "load": WORLD.plan.load.model_copy(update=kept)})
    found = [
        Finding(check="ClientSaturated", severity=Severity.INVALID, message="m", point="p"),
        Finding(check="PromptsSentAgain", severity=Severity.WARNING, message="m", point=sent_again),
    ]
    doubtful = summary.model_copy(update={"findings": found, "trustworthy": False})
    assert ("--retry-invalid" in next_step(plan, doubtful, "results")) == retried


def test_terminal_prints_every_finding_that_the_headline_may_name_and_at_most_three_others(
    capsys: pytest.CaptureFixture[str], summary: RunSummary
) -> None:
    found = [Finding(check=f"{each}{number}", severity=each, message="m") for each in Severity for number in range(5)]
    printed = shown(capsys, summary.model_copy(update={"findings": found, "trustworthy": False}))
    for severity in Severity:
        all_of_them = severity is not Severity.INFO
        counts = [printed.count(f"{severity}{number}: ") for number in range(5)]
        assert counts == [1, 1, 1, all_of_them, all_of_them]
    assert "more notes: `specbench report results --all`" in printed
    assert printed.count("Next: ") == 1


def test_a_run_without_a_baseline_is_not_sent_to_decide(summary: RunSummary) -> None:
    trusted = summary.model_copy(update={"trustworthy": True, "simulated": False})
    without = WORLD.plan.model_copy(update={"arms": [arm for arm in WORLD.plan.arms if not arm.is_baseline]})
    assert "specbench decide results" in next_step(WORLD.plan, trusted, "results")
    assert "--baseline URL" in next_step(without, trusted, "results")


def test_next_step_after_a_failed_engine_is_to_correct_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    only_baseline = Corruptions(measured=lambda point: point.arm == "none")
    summary = run_of_world(WORLD, only_baseline).model_copy(update={"failures": {"ngram": "HTTP 404: no such model"}})
    printed = " ".join(shown(capsys, summary).split())
    assert "Next: Correct why ngram failed, as stated above." in printed
    assert "Run again" not in printed


MEASURED = WORLD.plan.model_copy(
    update={
        "uid": EARLIER,
        "engine": WORLD.plan.engine.model_copy(update={"kind": EngineKind.EXTERNAL}),
        "workloads": [WORLD.plan.workloads[0].model_copy(update={"name": MEASURED_WORKLOAD})],
    }
)
"""The plan of a run of `specbench measure`."""


def test_findings_name_settings_as_the_user_typed_them() -> None:
    found = Finding(
        check="ShortAnswers", severity=Severity.INFO, message="output.maxTokens is 8", arm="ngram", workload="chat"
    )
    (group,) = group_findings(MEASURED, [found])
    assert group.text == "Info ShortAnswers, ngram: --max-tokens is 8"
    assert "raise --max-tokens if" in group.remedy
    (group,) = group_findings(WORLD.plan, [found])
    assert group.text == "Info ShortAnswers, ngram: output.maxTokens is 8"
    assert "raise output.maxTokens if" in group.remedy


@pytest.mark.parametrize(("trustworthy", "simulated"), [(True, False), (False, False), (True, True)])
def test_trust_is_stated_below_the_headline(
    capsys: pytest.CaptureFixture[str], summary: RunSummary, *, trustworthy: bool, simulated: bool
) -> None:
    second = shown(
        capsys, summary.model_copy(update={"trustworthy": trustworthy, "simulated": simulated})
    ).splitlines()[1]
    assert second.startswith("Trustworthy: no check ") == (trustworthy and not simulated)


@pytest.mark.parametrize("options", [[], ["--recompute"]])
def test_report_of_an_interrupted_run_is_preliminary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    plan = store_results(WORLD, tmp_path / "out", EARLIER, points=5)
    assert exit_code(["report", str(tmp_path / "out"), *options]) == Exit.OK
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("Interrupted: 5 of 8 points are measured. The figures are preliminary.")
    assert f"Next: {continue_run(plan)}" in printed
    assert "Repeat the command that measured it" in printed
    assert "MissingPoints" not in printed
    assert "Report:" not in printed
    assert not list(tmp_path.rglob("runs/*/*/*/summary.json")), "a stored summary would hide the points that follow"


@pytest.mark.parametrize("points", [5, 8])
def test_a_summary_from_before_the_last_points_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], points: int
) -> None:
    """An engine failed, so a summary was stored; the run was continued, and killed before the next summary."""
    plan = store_results(WORLD, tmp_path / "out", EARLIER, points=4)
    conclude(plan, FolderStore(tmp_path / "out" / run_root(plan.namespace, plan.name, EARLIER)))
    store_results(WORLD, tmp_path / "out", EARLIER, points=points)
    capsys.readouterr()
    exit_code(["report", str(tmp_path / "out"), "--all"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "of 8 points have no result" not in printed
    assert printed.startswith("Interrupted: 5 of 8 points are measured.") == (points == 5)
    (summary,) = tmp_path.rglob("runs/*/*/*/summary.json")
    assert RunSummary.from_json(summary.read_bytes()).points_measured == (4 if points == 5 else len(plan.points))


@pytest.mark.parametrize("points", [5, 8])
def test_report_of_a_run_in_progress_names_its_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], points: int
) -> None:
    plan = store_results(WORLD, tmp_path / "out", EARLIER, points=points)
    with exclusive_run(FolderStore(tmp_path / "out"), plan, "process 7 on here (specbench measure)"):
        exit_code(["report", str(tmp_path / "out")])
    printed = " ".join(capsys.readouterr().out.split())
    progress = "In progress: 5 of 8 points are measured, by process 7 on here (specbench measure)."
    assert printed.startswith(progress) == (points == 5)
    assert ("Next: Repeat this command when the run has ended." in printed) == (points == 5)
    exit_code(["report", str(tmp_path / "out")])
    assert "In progress" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "threshold", "worst"),
    [((0.2, 0.9, 0.5), 0.1, 1), ((0.05, 0.04, 0.01), 0.1, 2), ((2.0, None, 1.0), 0.0, 0), ((None, None), 1.0, 0)],
    ids=["above", "below", "zero", "without numbers"],
)
def test_a_group_of_findings_names_its_worst_place(
    values: tuple[float | None, ...], threshold: float, worst: int
) -> None:
    measured = Finding(check="Chunky", severity=Severity.WARNING, message="m", threshold=threshold)
    found = [measured.model_copy(update={"value": value, "load": f"{at}"}) for at, value in enumerate(values)]
    (group,) = group_findings(WORLD.plan, found)
    assert (group.location, group.messages[0]) == (f"at {worst}", f"at {worst}: m")


def test_consequential_findings_come_last() -> None:
    checks = [("BaselineInvalid", "Invalid"), ("ClientSaturated", "Invalid"), ("Chunky", "Warning")]
    found = [Finding(check=check, severity=Severity(severity), message="m") for check, severity in checks]
    assert [group.check for group in group_findings(WORLD.plan, found)] == [
        "ClientSaturated",
        "BaselineInvalid",
        "Chunky",
    ]


@pytest.mark.parametrize(
    ("file", "beginning"),
    [("a.html", b"<!doctype html>"), ("a.md", b"# "), ("a.txt", b"# "), ("a.json", b"{"), ("a.parquet", b"PAR1")],
)
def test_suffix_of_the_file_selects_the_format(finished: Path, tmp_path: Path, file: str, beginning: bytes) -> None:
    assert exit_code(["report", str(finished), "--to", str(tmp_path / file)]) == Exit.OK
    assert (tmp_path / file).read_bytes().lower().startswith(beginning.lower())


def test_percentiles_select_the_latencies_of_the_table(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(finished)
    exit_code(["report", where, "--output", "Markdown", "--percentiles", "MEAN,P90"])
    assert "| TTFT ms mean / p90 |" in capsys.readouterr().out
    assert exit_code(["report", where, "--output", "csv", "--percentiles", "90"]) == Exit.BAD_INPUT
    assert "csv has all of them: leave it out" in capsys.readouterr().err
    assert exit_code(["report", where, "--percentiles", "75"]) == Exit.BAD_INPUT
    assert "give some of mean, 50, 90, 95, 99" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "file", "message"),
    [
        (["--output", "parquet"], "rec.csv", "leave out --output, or give --output csv"),
        (["--output", "text"], "a.html", "leave out --output, or give --output html"),
        (["--output", "html"], "a.md", "leave out --output, or give --output markdown"),
        ([], "a.svg", "a.svg: no format has this suffix: give one of ."),
    ],
)
def test_file_of_another_format_is_rejected(
    finished: Path, capsys: pytest.CaptureFixture[str], options: list[str], file: str, message: str
) -> None:
    to = finished.parent / file
    assert exit_code(["report", str(finished), *options, "--to", str(to)]) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err
    assert not to.exists()


@pytest.mark.parametrize(
    ("uid", "points", "start", "next_step"),
    [
        (EARLIER, 0, "Interrupted: 0 of 8 points are measured.", "Repeat the command"),
        (
            "3f2c0000-0000-4000-8000-000000000000",
            5,
            "Not finished: 5 of 8 points are measured.",
            "`kubectl get sbr demo --namespace local` shows whether the run is in progress.",
        ),
    ],
    ids=["nothing measured", "cluster"],
)
def test_report_of_an_unfinished_run_has_its_next_step(  # noqa: PLR0917 -- the columns of the table
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uid: str, points: int, start: str, next_step: str
) -> None:
    store_results(WORLD, tmp_path / "out", uid, points=points)
    assert exit_code(["report", str(tmp_path / "out")]) == Exit.OK
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(start)
    assert next_step in printed
    assert ("Speed-up" in printed) == (points > 0)


def test_commands_and_paths_are_relative_and_select_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, summary: RunSummary
) -> None:
    """`--latest` suffices for the newest run of a folder."""
    monkeypatch.chdir(tmp_path)
    notes = [Finding(check=f"Note{number}", severity=Severity.INFO, message="so") for number in range(4)]
    noted = summary.model_copy(update={"findings": notes})
    for uid in (EARLIER, LATER):
        plan = store_results(WORLD, tmp_path / "my results", uid, points=0)
    for uid, command in ((LATER, "'my results' --latest"), (EARLIER, f"'my results/runs/local/demo/{EARLIER}'")):
        where = f"{tmp_path}/my results/runs/local/demo/{uid}"
        print_run_summary(plan.model_copy(update={"uid": uid}), noted, "text", where)
        printed = capsys.readouterr().out
        assert f": `specbench report {command} --all`" in printed
        assert f"\nReport: my results/runs/local/demo/{uid}/report.html" in printed


def summary_of_another_version(document: dict[str, Any]) -> str:
    cells = [{**cell, "goneField": 1} for cell in document["cells"]]
    return json.dumps({**document, "schemaVersion": "specbench.io/run-summary/v0", "cells": cells, "gone": [1]})


def test_recomputing_keeps_limits_and_failures_of_another_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "out"
    plan = store_results(WORLD, results, EARLIER, points=5)
    store = FolderStore(results / run_root(plan.namespace, plan.name, EARLIER))
    slo, failures = Slo(tpot_ms=9), {plan.arms[-1].name: "out of memory"}
    conclude(plan, store, slo=slo, failures=failures)
    store.replace(SUMMARY, summary_of_another_version(json.loads(present(store.get(SUMMARY)))).encode())
    assert exit_code(["report", str(results)]) == Exit.RESULTS_NOT_STORED
    assert "run-summary/v0', which this version of specbench does not read: compute it" in capsys.readouterr().err
    assert exit_code(["report", str(results), "--recompute"]) == Exit.OK
    summary = RunSummary.from_json(present(store.get(SUMMARY)))
    assert (summary.slo, summary.failures) == (slo, failures)


def test_recomputing_refuses_to_drop_limits_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "out"
    plan = store_results(WORLD, results, EARLIER)
    store = FolderStore(results / run_root(plan.namespace, plan.name, EARLIER))
    for stored in ("{", "[]", "{}", '{"slo": {"goneLimit": 1}}', '{"failures": [1]}', '{"slo": {"tpotMs": NaN}}'):
        store.replace(SUMMARY, stored.encode())
        assert exit_code(["report", str(results), "--recompute"]) == Exit.RESULTS_NOT_STORED, stored
        assert "repeat with --no-slo" in capsys.readouterr().err
        assert store.get(SUMMARY) == stored.encode()
    assert exit_code(["report", str(results), "--recompute", "--no-slo", "--slo-tpot-ms", "9"]) == Exit.OK
    assert RunSummary.from_json(present(store.get(SUMMARY))).slo == Slo(tpot_ms=9)
