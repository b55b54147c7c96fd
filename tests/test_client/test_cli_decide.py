"""`specbench decide`, `recover` and `curve` on stored results."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, SUMMARY, launch_key, run_root
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import parse_run, read_run
from specbench_api.spec.slo import Slo
from specbench_client.cli import exit_code
from specbench_client.cli.decide import request_from_options
from specbench_client.documents.finding import Severity
from specbench_client.documents.recommendation import Objective, Recommendation
from specbench_client.documents.summary import RunSummary
from specbench_client.store.folder import FolderStore
from specbench_client.store.locations import open_store
from specbench_testing.decision_summaries import DRAFTERS, Given, plan_of, summary_of
from specbench_testing.local_results import store_results
from specbench_testing.resources import resource
from specbench_testing.s3 import S3Server
from specbench_testing.synthetic_records import ONE, SyntheticRun, run_of_world

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=12, concurrency=(1, 2), drafters=("ngram", "slow"), step_ms={"slow": 40.0})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run with its summary."""
    folder = tmp_path_factory.mktemp("decide") / "out"
    plan = store_results(WORLD, folder, UID, points=0)
    store = FolderStore(folder / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(WORLD).to_json().encode())
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = exit_code(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.runs
def test_text_starts_with_the_recommendation(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decide", str(results))
    assert code == Exit.OK
    assert out.startswith("For throughput: use ngram at concurrency ")
    for word in (
        "Answers",
        "Evidence (throughput, tokens/s)",
        "limit: Only measured loads",
    ):
        assert word in out
    assert "Cost/1M" not in out, "no price was given"


def stored_summary(folder: Path, summary: RunSummary) -> str:
    plan = plan_of([each for each in DRAFTERS if each["name"] in {cell.arm for cell in summary.cells}])
    store = FolderStore(folder / run_root(plan.namespace, plan.name, UID))
    store.put(PLAN, plan.model_copy(update={"uid": UID}).to_json().encode())
    hashes: dict[tuple[str, str], list[str]] = {}
    for point in plan.points:
        hashes.setdefault((point.arm, point.level.label), []).append(point.hash)
    cells = [each.model_copy(update={"points": hashes[each.arm, each.level.label]}) for each in summary.cells]
    store.put(SUMMARY, summary.model_copy(update={"cells": cells}).to_json().encode())
    return str(folder)


DOUBT = {"ChunksCoalesced": Severity.WARNING}
FAULT = {"ReuseLost": Severity.FAULT}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([Given("ngram", gain=1.5)], Exit.OK),
        ([Given("ngram", gain=0.5)], Exit.OK),
        ([Given("ngram", gain=1.2, half=0.3)], Exit.UNTRUSTWORTHY),
        ([], Exit.UNTRUSTWORTHY),
        ([Given("ngram", gain=1.5, findings=DOUBT)], Exit.UNTRUSTWORTHY),
        ([Given("ngram", gain=1.5), Given("eagle3", gain=1.9, findings=FAULT)], Exit.UNTRUSTWORTHY),
    ],
    ids=["drafter", "no drafter", "inconclusive", "nothing to compare", "untrustworthy", "at fault"],
)
def test_exit_code_is_0_for_an_answer_from_a_run_without_doubts(
    cells: list[Given], code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = stored_summary(tmp_path, summary_of(Given("none"), *cells))
    found, _, errors = run(capsys, "decide", where)
    assert (found, errors) == (code, "")


@pytest.mark.runs
def test_tables_fit_100_columns_without_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value has no interval of its own beside the one that decides; the workload is named if there are several."""
    monkeypatch.delenv("COLUMNS", raising=False)
    cells = [Given(arm, load, gain=1.2, half=0.3, tpot=29.9) for load in (1, 8, 32) for arm in ("none", "ngram")]
    where = stored_summary(tmp_path, summary_of(*cells))
    code, out, _ = run(capsys, "decide", where, "--slo-tpot-ms", "30", "--machine-price", "0.4")
    tables = [line for line in out.splitlines() if line.startswith(("┏", "┃", "│"))]
    assert code == Exit.UNTRUSTWORTHY
    assert max(map(len, tables)) <= 100
    assert "Workload" not in out
    assert [line.split()[5] for line in tables if line.startswith("│ ngram │    1 │")] == ["100.00"]


@pytest.mark.runs
def test_json_can_be_parsed_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--objective", "latency", "--slo-tpot-ms", "11", "--slo-percentile", "p50", "--worth", "10")
    code, out, _ = run(capsys, "decide", str(results), *options, "-o", "json")
    found = Recommendation.from_json(out)
    assert (code, found.objective, found.worth) == (Exit.OK, Objective.LATENCY, 1.1)
    assert [each.words for each in found.targets] == ["TPOT p50 ≤ 11 ms"]
    assert {each.arm: each.shown for each in found.choices[0].sustained} == {"none": "2", "ngram": "2", "slow": None}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("given", "targets"),
    [
        ({}, ["TTFT p99 ≤ 500 ms", "TPOT p99 ≤ 30 ms"]),
        ({"percentile": "p50", "slo_tpot_ms": 11.0}, ["TTFT p50 ≤ 500 ms", "TPOT p50 ≤ 11 ms"]),
    ],
    ids=["stored", "given"],
)
def test_stored_limits_hold_unless_others_are_given(given: dict[str, Any], targets: list[str]) -> None:
    stored = summary_of(Given("none")).model_copy(update={"slo": Slo(ttft_ms=500, tpot_ms=30, percentile=99)})
    open_ones = dict.fromkeys(("slo_ttft_ms", "slo_tpot_ms", "slo_e2e_ms", "percentile", "gpu_price", "machine_price"))
    others = dict.fromkeys(("gpus", "file", "load", "can_train", "spare_memory_gb"))
    asked = request_from_options(stored, {**open_ones, **others, "objective": "throughput", "worth": 5.0, **given})
    assert [each.words for each in asked.targets] == targets


@pytest.mark.runs
def test_markdown_shows_costs_with_flags_overriding_the_price_file(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nmachineHour: 99\n")
    flags = ("--prices", str(prices), "--machine-price", "0.5")
    code, out, _ = run(capsys, "decide", str(results), "--objective", "cost", *flags, "-o", "markdown")
    assert code == Exit.OK
    assert out.startswith("# For cost: ")
    assert "## Evidence (cost, EUR per million output tokens)" in out
    assert "| Cost/1M | Saved |" in out
    assert "- prices: 0.5 EUR per hour for all that one engine runs on" in out


@pytest.mark.runs
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "cost"), "the objective cost needs prices"),
        (("--gpu-price", "2"), "how many GPUs the engine of arm none has (give --gpus N, or --machine-price for"),
        (("--load", "7"), "'7' was not measured (measured: 1, 2)"),
        (("--slo-tpot-ms", "0"), "--slo-tpot-ms"),
        (("--slo-tpot-ms", "nan"), "'nan': give a number above 0"),
        (("--worth", "nan"), "nan is not a finite number"),
        (("--machine-price", "inf"), "inf is not a finite number"),
    ],
)
def test_invalid_options_are_rejected_with_a_remedy(
    results: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, "decide", str(results), *arguments)
    assert code == Exit.BAD_INPUT
    assert message in err


@pytest.mark.runs
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "expected one mapping of names to values, found list"),
        ("gpuHour: [", "not valid YAML"),
        ("gpuHours: {H100: 1}", "gpuHours"),
        ("gpuHour: {H100: -1}", "greater than"),
        ("gpuHour: {H100: 0}", "greater than"),
    ],
)
def test_invalid_price_list_is_rejected_with_its_name(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    code, _, err = run(capsys, "decide", str(results), "--prices", str(tmp_path / "prices.yaml"))
    assert code == Exit.BAD_INPUT
    assert "prices.yaml" in err
    assert message in err


RECOVER_UID = "7d0f6bd8-1111-4c4b-9d53-000000000001"
CLUSTER_RESULTS = "s3://bench/lab?endpoint=https://s3.example:9000&region=eu-1"


@pytest.fixture
def plan() -> Plan:
    run = resource({"spec.placement": {"gpus": 2}}, namespace="team")
    run["metadata"]["uid"] = RECOVER_UID
    return expand(parse_run(run))


@pytest.fixture
def root(tmp_path: Path, plan: Plan) -> Path:
    store = FolderStore(tmp_path / run_root(plan.namespace, plan.name, plan.uid))
    store.put(PLAN, plan.to_json().encode())
    store.put(f"points/{plan.points[0].hash}/manifest.json", b"{}")
    return tmp_path


def recover(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    assert exit_code(["recover", *arguments]) == Exit.OK
    printed = capsys.readouterr()
    return yaml.safe_load(printed.out), printed.err


def test_resource_has_the_stored_plan_and_adopts_its_results(
    root: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    run, printed = recover(capsys, str(root), "--into", CLUSTER_RESULTS, "--credentials-secret", "keys")
    assert run["metadata"] == {"name": "demo", "namespace": "team"}
    s3 = {"bucket": "bench", "prefix": "lab", "endpoint": "https://s3.example:9000", "region": "eu-1"}
    assert run["spec"]["results"] == {"s3": {**s3, "credentialsSecretRef": {"name": "keys"}}, "adopt": RECOVER_UID}
    assert expand(read_run(yaml.safe_dump(run))) == plan
    assert f"1 of {len(plan.points)} points are measured" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--into", "folder"), "a cluster reads results from S3"),
        ((), "give --into s3://BUCKET/PREFIX"),
        (("--into", "s3://B"), "bucket: "),
    ],
)
def test_location_that_no_cluster_can_read_is_rejected(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert exit_code(["recover", str(root), *arguments]) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


def test_plan_of_another_version_is_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = root.rglob(PLAN)
    file.write_text(file.read_text().replace("specbench.io/plan/v", "specbench.io/plan/v9"))
    assert exit_code(["recover", str(root), "--into", CLUSTER_RESULTS]) == Exit.RESULTS_NOT_STORED
    assert "which this version of specbench does not read" in capsys.readouterr().err


def test_latest_run_is_the_one_with_the_last_activity(
    root: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = plan.model_copy(update={"uid": "0a000000-1111-4c4b-9d53-000000000002"})
    for stored_plan, queried_at in ((plan, "2026-01-02T12:00:00.5Z"), (newer, "2026-01-03T12:00:00.5Z")):
        store = FolderStore(root / run_root(stored_plan.namespace, stored_plan.name, stored_plan.uid))
        seen = LaunchRecord(launch="0-0-abc", group=0, arm="none", simulated=True, queried_at=queried_at, facts={})
        store.put(launch_key(seen.launch), seen.to_json().encode())
        store.put(PLAN, stored_plan.to_json().encode())
    run, _ = recover(capsys, str(root), "--latest", "--into", CLUSTER_RESULTS)
    assert run["spec"]["results"]["adopt"] == newer.uid


@pytest.mark.parametrize("below", ["", f"/runs/team/demo/{RECOVER_UID}"])
def test_bucket_prefix_and_endpoint_come_from_the_uri(
    plan: Plan, below: str, capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    place = f"s3://{s3_server.access.bucket}/deep/lab"
    open_store(place).below(run_root("team", "demo", RECOVER_UID)).put(PLAN, plan.to_json().encode())
    run, _ = recover(capsys, place + below)
    s3 = run["spec"]["results"]["s3"]
    assert (s3["bucket"], s3["prefix"]) == (s3_server.access.bucket, "deep/lab")
    assert s3["endpoint"] == s3_server.access.endpoint


def test_copied_results_at_another_prefix_are_rejected(
    plan: Plan, capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    place = f"s3://{s3_server.access.bucket}/copied"
    open_store(place).put(PLAN, plan.to_json().encode())
    assert exit_code(["recover", place]) == Exit.BAD_INPUT
    assert f"copy the results to PREFIX/runs/team/demo/{RECOVER_UID}" in capsys.readouterr().err


def test_what_a_file_would_execute_and_read_is_listed_before_it_is_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edits = {
        "spec.engine.image": "registry.example.com/evil:1",
        "spec.engine.command": ["sh", "-c", "id\x1b[2J"],
        "spec.model.adapter": {"name": "sql", "model": "/evil"},
        "spec.placement": {"gpus": 2, "engineServiceAccountName": "admin"},
    }
    run = resource(edits, namespace="team")
    run["metadata"]["uid"] = RECOVER_UID
    plan = expand(parse_run(run))
    store = FolderStore(tmp_path / run_root(plan.namespace, plan.name, plan.uid))
    store.put(PLAN, plan.to_json().encode())

    _, printed = recover(capsys, str(tmp_path), "--into", CLUSTER_RESULTS)

    assert f"{PLAN} states what would be executed and read; check it before you apply:" in printed
    assert '  spec.engine.image: "registry.example.com/evil:1"' in printed
    assert '  spec.engine.command: ["sh", "-c", "id\\u001b[2J"]' in printed
    assert '  spec.model.adapter: {"name": "sql", "model": "/evil"}' in printed
    assert '"engineServiceAccountName": "admin"' in printed
    assert "spec.workloads[0].dataset: " in printed


def test_a_plan_whose_name_no_cluster_accepts_is_rejected_with_the_field(
    tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = plan.model_copy(update={"name": "UPPER_CASE"})
    store = FolderStore(tmp_path / run_root(renamed.namespace, renamed.name, renamed.uid))
    store.put(PLAN, renamed.to_json().encode())
    assert exit_code(["recover", str(tmp_path), "--into", CLUSTER_RESULTS]) == Exit.BAD_INPUT
    assert "plan.json: name: " in capsys.readouterr().err


def test_defaults_are_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = recover(capsys, str(root), "--into", CLUSTER_RESULTS)
    assert set(run["spec"]) == {"model", "engine", "drafters", "workloads", "load", "placement", "results"}


@pytest.fixture(scope="module")
def results_of_curve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run at two loads."""
    root, world = tmp_path_factory.mktemp("curves"), SyntheticRun(prompts=8, categories=ONE, concurrency=(1, 2))
    plan = store_results(world, root, UID)
    store = FolderStore(root / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(world).to_json().encode())
    return root


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert exit_code(["analyze", "curve", *words]) == Exit.OK
    return capsys.readouterr().out


@pytest.mark.runs
def test_all_formats_contain_the_same_values(results_of_curve: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (str(results_of_curve), "--by", "concurrency")
    text, markdown = output_of(capsys, *where), output_of(capsys, *where, "--output", "markdown")
    table = pd.read_csv(StringIO(output_of(capsys, *where, "--output", "csv")))
    document = json.loads(output_of(capsys, *where, "--output", "json"))
    points = document["curves"][0]["points"]
    assert [each["speedup"]["value"] for each in points] == pytest.approx(table["speedup"].tolist())
    for value in table["speedup"]:
        assert f"{value:.2f} [" in text
        assert f"{value:.2f} [" in markdown


@pytest.mark.runs
def test_missing_curve_error_lists_the_excluded_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = SyntheticRun(prompts=8, categories=ONE, repeats=1, edits={"spec.baseline": "Skip"})
    plan = store_results(world, tmp_path, UID)
    store = FolderStore(tmp_path / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(world).to_json().encode())
    assert (
        exit_code(["analyze", "curve", str(tmp_path), "--by", "temperature", "--output", "json"]) == Exit.UNTRUSTWORTHY
    )
    printed = capsys.readouterr()
    assert "no curve can be drawn" in printed.err
    assert "ngram on chat at concurrency 1: not compared with a baseline" in printed.err
    assert json.loads(printed.out)["error"]["reason"] == "NothingToDraw"


@pytest.mark.runs
def test_run_of_which_nothing_was_measured_is_not_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = store_results(WORLD, tmp_path, UID, points=0)
    empty = run_of_world(WORLD).model_copy(update={"points_measured": 0, "cells": []})
    FolderStore(tmp_path / run_root(plan.namespace, plan.name, UID)).put(SUMMARY, empty.to_json().encode())
    code, out, err = run(capsys, "decide", str(tmp_path))
    assert (code, out) == (Exit.UNTRUSTWORTHY, "")
    assert "no point of" in err
