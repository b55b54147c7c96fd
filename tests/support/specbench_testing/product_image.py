"""Builds the product's image from the Dockerfile and loads it into the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specbench_cluster.images import Build
from specbench_testing.cluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
NAME = "docker.io/library/specbench:test"
BASE = "docker.io/library/python:3.11-slim-bookworm"


def product_image(cluster: Cluster) -> str:
    """The name of an image for the cluster's pods: SPECBENCH_IMAGE, or built and loaded here."""
    given = os.environ.get("SPECBENCH_IMAGE")
    if given:
        return given
    if cluster.ground is None:
        pytest.fail("SPECBENCH_KUBECONFIG is set: set SPECBENCH_IMAGE to an image that its nodes have", pytrace=False)
    build = Build(
        context=ROOT,
        dockerfile=ROOT / "Dockerfile",
        tag=NAME,
        base_image=BASE,
        target="specbench",
        arguments={"BASE_IMAGE": BASE},
    )
    cluster.ground.load_image(cluster.ground.build_image(build))
    return NAME
