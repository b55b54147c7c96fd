"""The operator process with a fence, against a real Kubernetes: the limit of runs, and a fence that is tightened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_cluster.configuration import PAUSE_IMAGE
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FENCE: dict[str, Any] = {
    "images": [PAUSE_IMAGE.rpartition(":")[0]],
    "commands": True,
    "gpuResources": ["nvidia.com/gpu"],
    "secretsOptIn": False,
    "stores": [{"endpoint": "*", "bucket": "*"}],
    "limits": {"runs": 1},
}


def test_a_run_waits_for_another_and_is_stopped_when_the_fence_is_tightened(
    cluster: Cluster, crd: Definition, tmp_path: Path
) -> None:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    s3, fence = cluster.ground.s3, tmp_path / "fence.json"
    fence.write_text(json.dumps(FENCE))
    settings = {"SPECBENCH_RESYNC_S": "5", "SPECBENCH_FENCE": str(fence)}
    with cluster.namespace("operator") as namespace:
        site = OperatorSite(cluster, namespace)
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=s3.access_key, AWS_SECRET_ACCESS_KEY=s3.secret_key)
        edits = {
            "spec.engine": {"kind": "simulator", "image": PAUSE_IMAGE, "command": ["/pause"]},
            "spec.results.s3": {
                "bucket": s3.bucket,
                "endpoint": s3.endpoint,
                "credentialsSecretRef": {"name": "bench-s3"},
            },
        }
        with OperatorProcess(site, tmp_path, "registry.invalid/specbench:none", settings).running() as operator:
            site.runs.create(resource(edits, name="first"))
            site.wait_for_phase("first", "Starting")
            site.runs.create(resource(edits, name="second"))
            assert "first" in site.wait_for_condition("second", "Reconciling", "True", "WaitingForRuns")
            assert [name for kind in ("jobs", "services") for name in site.names(kind) if "second" in name] == []
            site.delete_run("first")
            site.wait_for_phase("second", "Starting")
            eventually(lambda: site.names("pods", "engine"), "no engine")

            operator.end()
            fence.write_text(json.dumps({**FENCE, "commands": False}))
            operator.start()
            assert "spec.engine.command" in site.wait_for_condition("second", "Validated", "False", "NotAllowed")
            eventually(lambda: not site.names("pods", "engine"), "the engine keeps running")
