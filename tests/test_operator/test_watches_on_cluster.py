"""The operator's watches on a real API server: idle looks send no request, and later namespaces are served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import ACCOUNT, RULES, OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NO_IMAGE = "registry.invalid/specbench:none"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ONE_RESYNC = {"SPECBENCH_RESYNC_S": "3600"}
"""The first resync takes place at the start, and the second one only after the test."""


@pytest.fixture
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("operator") as namespace:
        yield OperatorSite(cluster, namespace)


def suspended(name: str) -> Resource:
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
    patterns = {**ONE_RESYNC, "SPECBENCH_NAMESPACES": f"{prefix}-*", "SPECBENCH_RESYNC_S": "2"}
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
