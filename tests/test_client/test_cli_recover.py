"""`specbench recover`: stored results suffice to create the resource that continues them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.layout import PLAN, launch_key, run_root
from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.outcome.termination import Exit
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import parse_run, read_run
from specbench_client.cli import exit_code
from specbench_client.store.folder import FolderStore
from specbench_client.store.locations import open_store
from specbench_testing.resources import resource
from specbench_testing.s3 import S3Server

UID = "7d0f6bd8-1111-4c4b-9d53-000000000001"
CLUSTER_RESULTS = "s3://bench/lab?endpoint=https://s3.example:9000&region=eu-1"


@pytest.fixture
def plan() -> Plan:
    run = resource({"spec.placement": {"gpus": 2}}, namespace="team")
    run["metadata"]["uid"] = UID
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
    assert run["spec"]["results"] == {"s3": {**s3, "credentialsSecretRef": {"name": "keys"}}, "adopt": UID}
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
    assert "written by another version" in capsys.readouterr().err


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


@pytest.mark.parametrize("below", ["", f"/runs/team/demo/{UID}"])
def test_bucket_prefix_and_endpoint_come_from_the_uri(
    plan: Plan, below: str, capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    place = f"s3://{s3_server.access.bucket}/deep/lab"
    open_store(place).below(run_root("team", "demo", UID)).put(PLAN, plan.to_json().encode())
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
    assert f"copy the results to PREFIX/runs/team/demo/{UID}" in capsys.readouterr().err


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
    run["metadata"]["uid"] = UID
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
