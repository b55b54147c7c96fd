"""The product, installed once for all tests of this folder as a user installs it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from specbench_cluster import Cluster as Ground
from specbench_cluster import ClusterError
from specbench_cluster.product import Product
from specbench_testing.cluster import Cluster
from specbench_testing.installed_product import InstalledProduct


@pytest.fixture(scope="session")
def product(cluster: Cluster, ground: Ground, image: str) -> Iterator[InstalledProduct]:
    """Installs a separate release, so that existing releases stay unchanged."""
    name = f"end-to-end-{uuid.uuid4().hex[:6]}"
    release = Product(ground, release=name, system=f"{name}-system", image=image)
    installed = InstalledProduct(cluster, ground, release, name)
    try:
        installed.install()
        yield installed
        assert "Traceback" not in installed.log()
    except ClusterError as error:
        pytest.fail(f"the product cannot be installed: {error}\n{installed.log()}", pytrace=False)
    finally:
        release.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")
        release.uninstall()
