"""Fixtures of the operator's tests."""

from __future__ import annotations

import pytest

from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.s3 import s3_access, s3_server

__all__ = ["s3_access", "s3_server"]


@pytest.fixture
def world() -> ClusterWorld:
    """A run whose first engine is launched."""
    return launched()


@pytest.fixture
def serving(world: ClusterWorld) -> ClusterWorld:
    """A run whose first engine is measured."""
    world.serve()
    return world
