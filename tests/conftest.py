"""Fixtures that several test folders share. What they are made of lies in support/specbench_testing."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from specbench_client.analysis.statistics import bootstrap
from specbench_testing.api_server_runs import Definition, install_campaign_definition, install_definition
from specbench_testing.cluster import Cluster
from specbench_testing.product_image import product_image
from specbench_testing.shared_cluster import borrowed_cluster

# No test asserts a time: a busy machine is no fault of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

FEW_RESAMPLES = 200
_S3 = {"s3_access", "s3_server", "s3_store"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage: thousands of items are made, all of them stay, and none need be counted.

    Frozen, they are left out of every later look too, which otherwise takes a tenth of the processor's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the S3 server needs it: the marker follows from the fixture and cannot be forgotten."""
    for item in items:
        if _S3 & set(getattr(item, "fixturenames", ())) or "[s3]" in item.name:
            item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="module")
def few_resamples() -> Iterator[None]:
    """Intervals of a tenth of their resamples, for what does not ask how sure a figure is: half of a summary's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "RESAMPLES", FEW_RESAMPLES)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without plots, for what is said elsewhere on them or beside them: drawing takes most of a second."""
    monkeypatch.setattr("specbench_client.report.html.svgs", lambda _: [])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real Kubernetes: SPECBENCH_KUBECONFIG's, or hack/cluster's."""
    with borrowed_cluster() as found:
        yield found


@pytest.fixture(scope="session")
def crd(cluster: Cluster) -> Definition:
    """The generated definition, installed and served."""
    return install_definition(cluster)


@pytest.fixture(scope="session")
def campaign_crd(cluster: Cluster) -> Definition:
    """The same of campaigns."""
    return install_campaign_definition(cluster)


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> str:
    """The product's own image, as the cluster's pods name it."""
    return product_image(cluster)
