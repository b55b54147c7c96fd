"""A run whose load two client pods send together, on the installed product."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_testing.installed_product import SLOW, InstalledProduct
from specbench_testing.operator_process import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

TWO_CLIENTS: dict[str, Any] = {
    "spec.drafters": [],
    "spec.engine.args": SLOW,
    "spec.load": {"concurrency": [4], "repeats": 1, "warmupRequests": 2, "clients": 2},
    "spec.placement": {"gpus": 1, "client": {"resources": {"requests": {"memory": "256Mi"}}}},
}


def test_two_clients_measure_a_point_together(product: InstalledProduct) -> None:
    run, stored = product.begin("clients", TWO_CLIENTS)

    status = run.ends()

    assert (status["progress"], stored.violations()) == ("1/1", [])
    eventually(lambda: run.active_objects() == [], "the run is active although its results exist")
    (job,) = run.children("jobs", "client")
    assert (job["spec"]["completionMode"], job["status"]["succeeded"]) == ("Indexed", 2)
    assert job["status"].get("failed", 0) == 0
    requests = set(stored.records("none").request_id)
    assert {"-c1-" in request for request in requests} == {True, False}, "both clients sent requests"
    (point,) = stored.points()
    health = stored.json(f"points/{point}/summary.json")["clientHealth"]
    assert health["clients"] == 2
    assert health["clockErrorMs"] >= 0
