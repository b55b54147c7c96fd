"""Fixtures shared by several test folders. They are built from the helpers in support/specbench_testing."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from specbench_client.analysis.statistics import bootstrap
from specbench_client.local.demo_model import cache_folder, make_demo_models
from specbench_cluster import Cluster as Ground
from specbench_cluster.product import builds
from specbench_testing.api_server_runs import Definition, install_campaign_definition, install_definition
from specbench_testing.cluster import Cluster
from specbench_testing.shared_cluster import borrowed_cluster

NAME = "docker.io/library/specbench:test"
_ABSENT = str(Path(__file__).with_name("support") / "absent_packages")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_ABSENT, os.environ.get("PYTHONPATH"))))


def product_image(cluster: Cluster) -> str:
    """The name of the client's image on the cluster: SPECBENCH_IMAGE, or built here together with the operator's."""
    given = os.environ.get("SPECBENCH_IMAGE")
    if given:
        return given
    if cluster.ground is None:
        pytest.fail(
            "SPECBENCH_KUBECONFIG is set: set SPECBENCH_IMAGE=NAME:TAG; its nodes need NAME-operator:TAG too",
            pytrace=False,
        )
    for build in builds(NAME):
        cluster.ground.load_image(cluster.ground.build_image(build))
    return NAME


# No test asserts a time: a busy machine is not a fault in the code. `make test` has the same examples every time;
# `--hypothesis-profile drawn` draws new ones, and four times as many. Of mutants of the code under test, 25 examples
# killed 98 % of those that 100 killed.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("drawn", deadline=None)
settings.load_profile("fixed")

FEW_RESAMPLES = 200
_S3 = {"s3_access", "s3_server", "s3_store"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector during collection: it creates thousands of items, and none of them is garbage.

    The items are then frozen, so later collections skip them; otherwise those take a tenth of the CPU time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses an S3 fixture as `s3`, so that the marker cannot be forgotten."""
    for item in items:
        if _S3 & set(getattr(item, "fixturenames", ())) or "[s3]" in item.name:
            item.add_marker(pytest.mark.s3)


@pytest.fixture(scope="module", autouse=True)
def few_resamples(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use a tenth of the bootstrap resamples in modules marked `runs`: halves the time of a summary."""
    if request.node.get_closest_marker("runs") is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "RESAMPLES", FEW_RESAMPLES)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render HTML pages without plots, for tests of other content: drawing takes most of a second."""
    monkeypatch.setattr("specbench_client.report.html.draw_figures", lambda _: {})


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real Kubernetes cluster: from SPECBENCH_KUBECONFIG, or started by hack/cluster."""
    with borrowed_cluster() as cluster_in_use:
        yield cluster_in_use


@pytest.fixture(scope="session")
def ground(cluster: Cluster) -> Ground:
    """The cluster of hack/cluster, with its S3 server; skips on a foreign one."""
    if cluster.ground is None:
        pytest.skip(
            "SPECBENCH_KUBECONFIG is a foreign cluster: S3, kills and webhooks need the one that hack/cluster makes"
        )
    return cluster.ground


@pytest.fixture(scope="session")
def crd(cluster: Cluster) -> Definition:
    """The generated SpecBenchRun CRD, installed and served."""
    return install_definition(cluster)


@pytest.fixture(scope="session")
def campaign_crd(cluster: Cluster) -> Definition:
    """The generated SpecBenchCampaign CRD, installed and served."""
    return install_campaign_definition(cluster)


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> str:
    """The reference of the product's image, as pods in the cluster use it."""
    return product_image(cluster)


@pytest.fixture(scope="session")
def demo_models() -> dict[str, str]:
    """The demo's target and drafter as GGUF files, made once per machine."""
    return {role: str(path) for role, path in make_demo_models(cache_folder(), "f16").items()}
