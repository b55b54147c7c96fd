"""Controllers that tests of this folder run beside the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peers.lws.controller import LeaderWorkerSets
from specbench_cluster import Cluster as Ground
from specbench_testing.cluster import Cluster
from specbench_testing.shared_cluster import program


@pytest.fixture(scope="module")
def lws(cluster: Cluster, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeaderWorkerSets]:
    """LeaderWorkerSet, in the namespaces that a test lets it manage."""
    folder = tmp_path_factory.mktemp("lws")
    with LeaderWorkerSets(cluster.kubeconfig, program("kubectl"), folder).running() as controller:
        yield controller
