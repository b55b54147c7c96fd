"""Builds the product's images from the Dockerfile and loads them into the cluster."""

from __future__ import annotations

import os

import pytest

from specbench_cluster.product import builds
from specbench_testing.cluster import Cluster

NAME = "docker.io/library/specbench:test"


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
