"""A run on the installed product from `kubectl apply` to its results, and its deletion."""

from __future__ import annotations

import math

import pytest

from specbench_testing.cluster import ApiError
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.installed_product import SLOW, InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.run_watcher import RunWatcher
from specbench_testing.s3_results import StoredRun

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

CONDITIONS = {
    "Validated": "Valid",
    "EngineReady": "Done",
    "MeasurementComplete": "Finished",
    "ResultsStored": "Stored",
    "Ready": "Finished",
    "Complete": "Finished",
}


def test_a_run_completes_and_its_deletion_keeps_the_results(product: InstalledProduct) -> None:
    # All prompts are shorter, but a run with this field fails if the client's image does not contain o200k_base.
    run, stored = product.begin("whole", {"spec.workloads[0].dataset.inputTokens": {"max": 100_000}})
    with RunWatcher(run, stored) as watcher:
        waited = product.product.kubectl(
            "-n", run.namespace, "wait", "--for=condition=Complete", f"sbr/{run.name}", "--timeout=240s"
        )
        assert "condition met" in waited
        status = run.ends()
    assert watcher.violations == []
    assert len(watcher.launches) == 2, "one engine per arm"
    assert {kind: run.condition(kind)[:2] for kind in CONDITIONS} == {k: ("True", v) for k, v in CONDITIONS.items()}
    assert run.condition("Trustworthy")[0] in ("True", "False")
    assert status["progress"] == "2/2"
    assert status["points"] == {"total": 2, "measured": 2, "failed": 0, "invalid": status["points"]["invalid"]}
    _check_results(status, stored)
    _check_provenance(stored)
    assert stored.violations() == []
    assert run.active_objects() == []
    eventually(lambda: run.active_objects() == [], "the run is active although its results exist")
    assert run.children("jobs", "engine") == [], "an engine's Job is kept only as the record of a failure"
    eventually(lambda: product.product.gpus() == (8, 0), "the GPUs are not free")
    run.wait_for_events("EngineStarting", "EngineReady", "GroupMeasured", "MeasurementComplete", "ResultsReady")
    _check_deletion(run, stored)


def _check_results(status: dict[str, object], stored: StoredRun) -> None:
    rows = status["arms"]
    assert isinstance(rows, list)
    baseline, eagle3 = rows
    assert (baseline["arm"], eagle3["arm"]) == ("none", "eagle3")
    assert "speedup" not in baseline
    assert "speedup" not in eagle3, "one repeat gives a ratio without an interval"
    assert 1.5 < eagle3["acceptanceLength"] < 4, "three drafts, each accepted with probability 0.7"
    assert baseline["acceptanceLength"] == pytest.approx(1)
    for row in rows:
        assert all(math.isfinite(row[name]["p50"]) for name in ("ttftMs", "tpotMs", "e2eMs"))
        assert row["failedRequests"] == 0
    summary = stored.json("summary.json")
    ratio = summary["cells"][1]["speedup"]["value"]
    assert eagle3["speedupText"].removesuffix(" invalid") == f"{ratio:.2f} (1 repeat: too few to tell)"
    assert b"<html" in stored.read("report.html")


def _check_provenance(stored: StoredRun) -> None:
    """Node and image of each launch, the GPU from the node's label, and a reason for each unknown fact."""
    provenance = stored.json("provenance.json")
    launches = provenance["launches"]
    assert {launch["arm"] for launch in launches.values()} == {"none", "eagle3"}
    assert set(stored.versions("")) >= {f"launches/{name}.json" for name in launches}
    for launch in launches.values():
        facts = launch["facts"]
        assert launch["simulated"] is True
        assert facts["engine_version"]["value"].startswith("simulated")
        assert facts["node"]["value"]
        assert facts["image_digest"]["value"].startswith("sha256:")
        assert facts["gpu_count"]["value"] == 1
        gpu = facts["gpu"]
        assert gpu["value"] or gpu["reason"] == "the node has no label nvidia.com/gpu.product"
        for name in ("kubelet", "kernel", "cores"):
            assert facts[name]["value"], name
        for name in ("driver", "interconnect", "torch"):
            assert facts[name]["value"] is None
            assert facts[name]["reason"], name
    assert len(provenance["imageDigests"]) == 1
    assert provenance["differences"] == []
    assert [row["arm"] for row in provenance["arms"]] == ["none", "eagle3"]
    assert provenance["arms"][1]["kvCacheLost"]["value"] == 0


def _check_deletion(run: ClusterRun, stored: StoredRun) -> None:
    before = stored.versions()
    run.delete()
    for kind in ("jobs", "pods", "services", "configmaps"):
        eventually(lambda kind=kind: run.children(kind) == [], f"{kind} exist after their run")  # type: ignore[misc]
    assert stored.versions() == before, "deleting a run keeps its results"


def test_a_suspended_run_releases_its_gpus_and_continues(product: InstalledProduct) -> None:
    run, stored = product.begin("suspended", {"spec.engine.args": SLOW})
    with RunWatcher(run, stored) as watcher:
        eventually(lambda: run.status().get("points", {}).get("measured") == 1, "nothing is measured", 240)
        run.suspend(suspended=True)
        run.wait_for_phase("Suspended")
        eventually(lambda: run.gpus() == 0 and run.active_objects() == [], "the GPUs are still held")
        assert len(stored.manifests()) == 1
        run.suspend(suspended=False)
        status = run.ends()
    assert watcher.violations == []
    assert stored.violations() == []
    assert status["progress"] == "2/2"
    run.wait_for_events("Suspended", "Resumed")


def test_the_api_server_refuses_an_unsupported_drafter_with_a_remedy(
    product: InstalledProduct,
) -> None:
    engine = {"kind": "transformers", "image": "docker.io/library/no-such-engine:none"}
    with pytest.raises(
        ApiError, match=r"transformers does not support eagle3.*use draft_model, ngram or medusa"
    ) as refused:
        product.begin("refused", {"spec.engine": engine, "spec.model": {"name": "m", "path": "/models/m"}})
    assert refused.value.status == 422


def test_an_invalid_spec_that_admission_accepts_is_refused_and_creates_nothing(
    product: InstalledProduct,
) -> None:
    run, stored = product.begin("refused", {"spec.engine.args": ["--port=1"]})
    run.wait_for_phase("Invalid", within_s=120)
    validated, reason, message = run.condition("Validated")
    assert (validated, reason) == ("False", "InvalidSpec")
    assert "spec.engine.args[0]" in message
    assert [run.children(kind) for kind in ("jobs", "pods", "services", "configmaps")] == [[], [], [], []]
    run.wait_for_events("Invalid")
    assert stored.versions() == {}
