"""The operator process with a fence, against a real Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specbench_cluster.configuration import PAUSE_IMAGE
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FENCE: dict[str, Any] = {
    "images": [PAUSE_IMAGE.rpartition(":")[0]],
    "commands": True,
    "gpuResources": ["nvidia.com/gpu"],
    "secretsOptIn": False,
    "stores": [{"endpoint": "*", "bucket": "*"}],
    "limits": {"runs": 1},
}

Make = Callable[..., Resource]


@pytest.fixture
def site(cluster: Cluster, crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("operator") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture
def fence(tmp_path: Path) -> Path:
    file = tmp_path / "fence.json"
    file.write_text(json.dumps(FENCE))
    return file


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path, fence: Path) -> Iterator[OperatorProcess]:
    settings = {"SPECBENCH_RESYNC_S": "5", "SPECBENCH_FENCE": str(fence)}
    with OperatorProcess(site, tmp_path, "registry.invalid/specbench:none", settings).running() as process:
        yield process


@pytest.fixture
def make(site: OperatorSite) -> Make:
    """Creates a run whose engine runs but never answers."""
    ground = site.cluster.ground
    if ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
    store = {"bucket": ground.s3.bucket, "endpoint": ground.s3.endpoint, "credentialsSecretRef": {"name": "bench-s3"}}

    def create(name: str, edits: dict[str, Any] | None = None) -> Resource:
        given = {
            "spec.load": {"concurrency": [1], "repeats": 1},
            "spec.engine.image": PAUSE_IMAGE,
            "spec.engine.command": ["/pause"],
            "spec.results": {"s3": store},
            "spec.startupDeadlineSeconds": 600,
            **(edits or {}),
        }
        return site.runs.create(resource(given, name=name))

    return create


def children(site: OperatorSite, run: str) -> list[str]:
    """Names of the Jobs, Services and ConfigMaps of a run."""
    return [name for kind in ("jobs", "services", "configmaps") for name in site.names(kind) if name.startswith(run)]


def test_a_run_outside_the_fence_gets_no_child(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    make("outside", {"spec.placement.runtimeClassName": "mine"})
    message = site.wait_for_condition("outside", "Validated", "False", "NotAllowed")
    assert "spec.placement.runtimeClassName: mine is not allowed on this cluster" in message
    assert site.phase("outside") == "Invalid"
    assert children(site, "outside") == []


def test_a_run_over_the_limit_waits_until_the_other_is_gone(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make("first")
    site.wait_for_phase("first", "Starting")
    make("second")
    assert "first" in site.wait_for_condition("second", "Reconciling", "True", "WaitingForRuns")
    assert children(site, "second") == []
    site.delete_run("first")
    site.wait_for_phase("second", "Starting")
    eventually(lambda: children(site, "second"), "the run does not start")


def test_an_engine_is_stopped_after_the_fence_was_tightened(
    site: OperatorSite, operator: OperatorProcess, make: Make, fence: Path
) -> None:
    make("running")
    eventually(lambda: site.names("pods", "engine"), "no engine")
    operator.end()
    fence.write_text(json.dumps({**FENCE, "commands": False}))
    operator.start()
    assert "spec.engine.command" in site.wait_for_condition("running", "Validated", "False", "NotAllowed")
    eventually(lambda: not site.names("pods", "engine"), "the engine keeps running")
