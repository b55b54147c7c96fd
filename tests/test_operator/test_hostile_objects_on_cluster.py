"""Runs and campaigns as deep and as large as the API server allows: the operator serves all others meanwhile."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specbench_api import API_VERSION
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LEVELS = 4_900
"""Pairs of an object and a list. The API server refuses a request with more than 10,000 levels."""
LARGE = 40
MEMORY_LIMIT_BYTES = 512 * 2**20
"""The chart's memory limit of the operator."""


@pytest.fixture
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("hostile-objects") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture(autouse=True)
def deep_json() -> Iterator[None]:
    """Let this process, but not the operator's, write and read JSON of that depth."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path) -> Iterator[OperatorProcess]:
    settings = {"SPECBENCH_RESYNC_S": "5"}
    process = OperatorProcess(site, tmp_path, "registry.invalid/specbench:none", settings)
    try:
        yield process
    finally:
        if process.process:
            process.end(signal.SIGKILL)


def suspended(name: str) -> dict[str, Any]:
    """A run that the operator reconciles without creating anything."""
    return resource({"spec.suspend": True}, name=name)


def wait_until_served(site: OperatorSite, operator: OperatorProcess, name: str) -> None:
    """Create an honest run and wait until its status is written."""
    site.runs.create(suspended(name))
    eventually(lambda: site.phase(name) or operator.ended is not None, f"{name} is not reconciled", 300)
    assert operator.ended is None, operator.log.read_text()[-3000:]
    assert site.phase(name)


def test_deep_objects_do_not_stop_the_watches(site: OperatorSite, operator: OperatorProcess) -> None:
    operator.start()
    wait_until_served(site, operator, "before")
    deep: Any = 1
    for _ in range(LEVELS):
        deep = {"a": [deep]}
    run = suspended("deep")
    run["spec"]["drafters"][0]["speculativeConfig"] = {"x": deep}
    campaign = {
        "apiVersion": API_VERSION,
        "kind": "SpecBenchCampaign",
        "metadata": {"name": "deep"},
        "spec": {
            "template": {"spec": suspended("x")["spec"]},
            "axes": [{"path": "spec.engine.version", "values": [deep]}],
        },
    }
    site.runs.create(run)
    site.campaigns.create(campaign)
    wait_until_served(site, operator, "watched")
    assert site.wait_for_phase("deep", "Invalid")
    assert "nested too deeply" in site.message("deep", "Validated")
    assert operator.end() == 0
    operator.start()
    wait_until_served(site, operator, "listed")
    eventually(lambda: 'phase="Invalid"} 1.0' in operator.metric("specbench_runs{"), "the resync counts no run")
    assert operator.healthy()
    assert operator.bugs() == []


@pytest.mark.long  # the API server needs a second for each
def test_large_objects_do_not_exceed_the_operators_memory(site: OperatorSite, operator: OperatorProcess) -> None:
    run = suspended("x")
    run["spec"]["engine"]["config"] = {"x": [{}] * 340_000}
    for number in range(LARGE):
        run["metadata"]["name"] = f"large-{number}"
        site.runs.create(run)
    operator.start()
    wait_until_served(site, operator, "honest")
    eventually(lambda: f'phase="Invalid"}} {LARGE}.0' in operator.metric("specbench_runs{"), "not all are refused")
    assert "more than 50000 values" in site.message("large-0", "Validated")
    assert peak_bytes(operator) < MEMORY_LIMIT_BYTES
    assert operator.bugs() == []


def peak_bytes(operator: OperatorProcess) -> int:
    """The largest resident memory that the operator has had."""
    assert operator.process is not None
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
