"""A run survives kills: it completes, measures nothing twice and leaves no objects behind.

Kills at random times are those of a campaign (`test_campaign`), kills at every write are crash points.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from specbench_api.plan.names import LABEL_ROLE, LABEL_RUN, ROLE_ENGINE
from specbench_testing.cluster import ApiError
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.installed_product import SLOW, InstalledProduct
from specbench_testing.operator_process import eventually, retry_until_available
from specbench_testing.run_watcher import RunWatcher
from specbench_testing.s3_results import StoredRun

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1800)]

S3_AWAY_S = 5.0
# Nothing is accepted, so that the second point is as long as the first.
TWO_LONG_POINTS = {"spec.engine.args": SLOW, "spec.drafters[0].args": ["--acceptance=0"]}


def test_a_run_survives_a_kill_of_each_component(product: InstalledProduct) -> None:
    """Two kills during the first point, and three during the second, each after requests have ended."""
    run, stored = product.begin("kills", TWO_LONG_POINTS)
    earlier = None

    def measuring(points: int) -> bool:
        return len(stored.manifests()) == points and stored.under_way() not in (None, earlier)

    with RunWatcher(run, stored) as watcher:
        for points, kinds in ((0, ("operator", "s3")), (1, ("api-server", "client")), (1, ("engine",))):
            eventually(lambda points=points: measuring(points), f"point {points} is not measured", 300)  # type: ignore[misc]
            earlier = stored.under_way()
            for kind in kinds:
                KILLS[kind](product, run)
        status = end_of_killed(run, stored, watcher)
    assert [row["attempt"] for row in status["groups"]] == [0, 1], "only the engine was killed"


@pytest.mark.long
def test_the_points_of_a_drained_client_and_of_a_drained_engine_are_measured_again(product: InstalledProduct) -> None:
    """The client alone in the first point, and both in the second, which a PodDisruptionBudget prevents at first."""
    run, stored = product.begin("drains", {**TWO_LONG_POINTS, "spec.placement": {"gpus": 1, "preemptionBudget": 1}})
    budgets = f"/apis/policy/v1/namespaces/{run.namespace}/poddisruptionbudgets"
    engine = {"minAvailable": 1, "selector": {"matchLabels": {LABEL_RUN: run.name, LABEL_ROLE: ROLE_ENGINE}}}
    with RunWatcher(run, stored) as watcher:
        eventually(stored.under_way, "the first point is not measured", 300)
        assert evict(product, run, "client") == 201
        eventually(lambda: len(stored.manifests()) == 1 and stored.under_way(), "the second point is not measured", 300)
        product.cluster.call("POST", budgets, {"metadata": {"name": run.name}, "spec": engine})
        assert evict(product, run, "engine") == 429
        product.cluster.call("DELETE", f"{budgets}/{run.name}")
        assert [evict(product, run, role) for role in ("client", "engine")] == [201, 201]
        status = end_of_killed(run, stored, watcher)
    assert [(row["attempt"], row.get("preemptions", 0)) for row in status["groups"]] == [(0, 0), (1, 1)]


def end_of_killed(run: ClusterRun, stored: StoredRun, watcher: RunWatcher) -> dict[str, Any]:
    """The status at the end of the run. Fails on any violation."""
    status = run.ends()
    eventually(lambda: run.active_objects() == [], f"left behind: {run.active_objects()}")
    assert watcher.violations == stored.violations() == []
    assert status["progress"] == "2/2"
    assert run.gpus() == 0
    assert all(row["state"] == "Done" for row in status["groups"])
    assert len(watcher.launches) == sum(row["attempt"] + 1 for row in status["groups"]), watcher.launches
    return status


def evict(installed: InstalledProduct, run: ClusterRun, role: str) -> int:
    """Evict its pod, as `kubectl drain` does; returns the status: 429 while a PodDisruptionBudget prevents it."""
    (name,) = run.living(role)
    path = f"/api/v1/namespaces/{run.namespace}/pods/{name}/eviction"
    try:
        installed.cluster.call("POST", path, {"metadata": {"name": name}})
    except ApiError as refused:
        return refused.status
    return 201


# Kills of one component.


def kill_operator(installed: InstalledProduct, _run: ClusterRun) -> None:
    for pod in installed.operators():
        delete_pod(installed, installed.product.system, pod["metadata"]["name"])


def kill_client(installed: InstalledProduct, run: ClusterRun) -> None:
    kill_pod(installed, run, "client")


def kill_engine(installed: InstalledProduct, run: ClusterRun) -> None:
    kill_pod(installed, run, "engine")


def kill_s3(installed: InstalledProduct, _run: ClusterRun) -> None:
    installed.ground.kill("versitygw")
    due = time.monotonic() + S3_AWAY_S
    eventually(lambda: time.monotonic() >= due, "the clock stands still")
    installed.ground.start("versitygw")


def kill_api_server(installed: InstalledProduct, _run: ClusterRun) -> None:
    installed.ground.kill("kube-apiserver")
    installed.ground.start("kube-apiserver")


def kill_pod(installed: InstalledProduct, run: ClusterRun, role: str) -> None:
    """Delete the living pod, or the next one that starts."""
    name, *_ = eventually(lambda: run.living(role), f"{run.name} has no {role} pod", 120)
    delete_pod(installed, run.namespace, name)


def delete_pod(installed: InstalledProduct, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        retry_until_available(lambda: installed.cluster.call("DELETE", path, {"gracePeriodSeconds": 0}))
    except ApiError as refused:
        if refused.status != 404:  # the pod ended at the same time
            raise


KILLS: dict[str, Callable[[InstalledProduct, ClusterRun], None]] = {
    "operator": kill_operator,
    "client": kill_client,
    "engine": kill_engine,
    "s3": kill_s3,
    "api-server": kill_api_server,
}
