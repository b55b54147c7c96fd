"""Engine failures are reported in status, release their GPUs and leave the other arm its results.

The runs start together and are awaited one by one, because each mostly waits for deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from specbench_testing.cluster_run import ClusterRun
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.s3_results import StoredRun

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

NO_IMAGE = "registry.invalid/no-such-engine:none"


@dataclass(frozen=True)
class Failure:
    """`text`: text that the message must contain. `arms`: the arms that fail."""

    edits: dict[str, Any]
    reason: str
    text: str
    arms: tuple[str, ...] = ("eagle3",)


def _faulty(fault: str, **spec: Any) -> dict[str, Any]:
    return {"spec.drafters[0].args": [f"--fault={fault}"], **{f"spec.{name}": value for name, value in spec.items()}}


BOTH = ("none", "eagle3")
SMALL_MEMORY = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "12Mi"}}}]}}
FAILURES = {
    "unschedulable": Failure(
        {"spec.placement.gpus": 16, "spec.startupDeadlineSeconds": 8}, "Unschedulable", "nvidia.com/gpu", BOTH
    ),
    "no-image": Failure({"spec.engine.image": NO_IMAGE}, "ImagePullFailed", "registry.invalid", BOTH),
    "killed": Failure(_faulty("oom=3"), "Crashed", "exit code 137"),
    "crashed": Failure(_faulty("crash-after=3"), "Crashed", "exit code 1"),
    "never-ready": Failure(_faulty("never-ready", startupDeadlineSeconds=60), "NeverReady", "startupDeadlineSeconds"),
    "out-of-memory": Failure({"spec.placement.template": SMALL_MEMORY}, "OOMKilled", "resources.limits.memory", BOTH),
}


@pytest.fixture(scope="module")
def failing(product: InstalledProduct) -> dict[str, tuple[ClusterRun, StoredRun]]:
    """All failing runs, started at the same time."""
    return {name: product.begin(name, failure.edits) for name, failure in FAILURES.items()}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_reported_releases_its_gpus_and_keeps_the_other_arm(
    product: InstalledProduct, failing: dict[str, tuple[ClusterRun, StoredRun]], name: str
) -> None:
    failure, (run, stored) = FAILURES[name], failing[name]
    alone = failure.arms == BOTH
    waits_for = "--for=condition=" + ("Failed" if alone else "Complete")
    waited = product.product.kubectl("-n", run.namespace, "wait", waits_for, f"sbr/{run.name}", "--timeout=240s")
    assert "condition met" in waited
    status = run.ends("Failed" if alone else "Succeeded")
    rows = {row["arm"]: row for row in status["groups"]}
    assert {arm: rows[arm]["reason"] for arm in failure.arms} == dict.fromkeys(failure.arms, failure.reason)
    assert all(failure.text in rows[arm]["message"] for arm in failure.arms), rows
    assert run.condition("EngineReady")[:2] == run.condition("MeasurementComplete")[:2] == ("False", failure.reason)
    assert failure.text in run.condition("EngineReady")[2]
    run.wait_for_events(failure.reason)
    assert status["points"]["failed"] == len(failure.arms)
    if not alone:
        assert stored.violations(stored.points()[:1]) == []
        assert rows["none"]["state"] == "Done"
        assert run.condition("Ready")[0] == "True"
        assert run.condition("Trustworthy")[0] == "False", "a comparison needs both arms"
    else:
        assert run.condition("Stalled")[:2] == ("True", failure.reason)
        assert stored.manifests() == {}
    eventually(lambda: run.active_objects() == [] and run.gpus() == 0, f"objects are left: {run.active_objects()}")
