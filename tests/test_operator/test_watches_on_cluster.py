"""The operator's watches on a real API server: later namespaces, and objects as deep and as large as it allows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specbench_api import API_VERSION
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import ACCOUNT, RULES, OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NO_IMAGE = "registry.invalid/specbench:none"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEVELS = 4_900
"""Pairs of an object and a list. The API server refuses a request with more than 10,000 levels."""
LARGE = 40
MEMORY_LIMIT_BYTES = 512 * 2**20
"""The chart's memory limit of the operator."""


@pytest.fixture
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("operator") as namespace:
        yield OperatorSite(cluster, namespace)


def suspended(name: str) -> Resource:
    """A run that the operator reconciles without creating anything."""
    return resource({"spec.suspend": True}, name=name)


def is_suspended(runs: Runs) -> bool:
    return bool(runs.get("demo")["status"].get("phase") == "Suspended")


@contextmanager
def cluster_wide_rights(site: OperatorSite) -> Iterator[None]:
    """What the chart grants with `watchAllNamespaces` and `rbac.clusterWide`."""
    name = f"specbench-{site.namespace}"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": site.namespace}
    made = {
        "clusterroles": {"metadata": {"name": name}, "rules": RULES},
        "clusterrolebindings": {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    }
    for plural, body in made.items():
        site.cluster.call("POST", f"{RBAC}/{plural}", body)
    try:
        yield
    finally:
        for plural in made:
            site.cluster.call("DELETE", f"{RBAC}/{plural}/{name}")


def test_later_namespaces_that_match_a_pattern_are_served(site: OperatorSite, tmp_path: Path) -> None:
    prefix = f"team{site.namespace.removeprefix('operator-')}"
    patterns = {"SPECBENCH_NAMESPACES": f"{prefix}-*", "SPECBENCH_RESYNC_S": "2"}
    process = OperatorProcess(site, tmp_path, NO_IMAGE, patterns)
    with cluster_wide_rights(site), ExitStack() as namespaces:
        first, other = (
            Runs(site.cluster, namespaces.enter_context(site.cluster.namespace(n))) for n in (prefix, "other")
        )
        for runs in (other, first):
            runs.create(suspended("demo"))
        with process.running() as operator:
            eventually(partial(is_suspended, first), "the first namespace is not served")
            later = Runs(site.cluster, namespaces.enter_context(site.cluster.namespace(prefix)))
            later.create(suspended("demo"))
            eventually(partial(is_suspended, later), "the later namespace is not served")
            assert not is_suspended(other)
            assert operator.healthy()


# Runs and campaigns as deep and as large as the API server allows: the operator serves all others meanwhile.


@pytest.fixture
def deep_json() -> Iterator[None]:
    """Let this process, but not the operator's, write and read JSON of that depth."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path) -> Iterator[OperatorProcess]:
    settings = {"SPECBENCH_RESYNC_S": "5"}
    process = OperatorProcess(site, tmp_path, NO_IMAGE, settings)
    try:
        yield process
    finally:
        if process.process:
            process.end(signal.SIGKILL)


def wait_until_served(site: OperatorSite, operator: OperatorProcess, name: str) -> None:
    """Create an honest run and wait until its status is written."""
    site.runs.create(suspended(name))
    eventually(lambda: site.phase(name) or operator.ended is not None, f"{name} is not reconciled", 300)
    assert operator.ended is None, operator.log.read_text()[-3000:]
    assert site.phase(name)


@pytest.mark.usefixtures("deep_json")
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
