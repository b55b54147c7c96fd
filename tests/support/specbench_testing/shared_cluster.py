"""One cluster for all test processes of this machine: the first one starts it, and the last one stops it.

Each test process holds a lease, a file with its pid and start time, so that a killed process does not count. An
existing cluster is used and left running, and so is the one in SPECBENCH_KUBECONFIG. Without a cluster,
the tests fail with what the tool reports as missing; SPECBENCH_NO_CLUSTER=1 skips them instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_cluster import Cluster as Ground
from specbench_cluster import ClusterError, Settings
from specbench_cluster.binaries import build
from specbench_cluster.cluster import to_stderr
from specbench_cluster.commands import locked
from specbench_cluster.processes import Process, identify
from specbench_testing.cluster import Cluster

GPUS = 64
"""More than tests in several processes use at a time, so that no run waits for those of another test."""


@contextmanager
def borrowed_cluster() -> Iterator[Cluster]:
    """A running cluster; stopped afterwards if tests started it and no test needs it any more."""
    skip_without_cluster()
    given = os.environ.get("SPECBENCH_KUBECONFIG")
    if given:
        yield Cluster.at(Path(given))
        return
    ground = Ground(Settings(gpus=GPUS))
    try:
        lease = _take(ground)
    except ClusterError as error:
        pytest.fail(f"{error}\nSPECBENCH_NO_CLUSTER=1 skips the tests that need a cluster.", pytrace=False)
    try:
        yield Cluster.at(ground.kubeconfig, ground)
    finally:
        _give_back(ground, lease)


def program(name: str) -> Path:
    """The path of kubectl or helm: installed on the machine, or built by hack/cluster."""
    skip_without_cluster()
    found = shutil.which(name)
    if found:
        return Path(found)
    try:
        return build(Settings().cache, to_stderr, "node" if name == "kubectl" else name)[name]
    except ClusterError as error:
        pytest.fail(f"{name} is neither on PATH nor can it be built: {error}", pytrace=False)


def skip_without_cluster() -> None:
    """Skip the test if SPECBENCH_NO_CLUSTER=1."""
    if os.environ.get("SPECBENCH_NO_CLUSTER") == "1":
        pytest.skip("SPECBENCH_NO_CLUSTER=1: not tested on a real Kubernetes")


def _take(ground: Ground) -> Path:
    folder = _leases(ground)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if not ground.status().up:
            _made_for_tests(ground).touch()
        ground.up()
        me = identify(os.getpid())
        assert me is not None
        lease = folder / f"{me.pid}-{me.started_ticks}.lease"
        lease.touch()
        return lease


def _give_back(ground: Ground, lease: Path) -> None:
    with locked(_leases(ground) / "lock"):
        lease.unlink(missing_ok=True)
        if _made_for_tests(ground).exists() and not any(_alive(other) for other in _leases(ground).glob("*.lease")):
            ground.down()
            _made_for_tests(ground).unlink()


def _alive(lease: Path) -> bool:
    pid, ticks = lease.stem.split("-")
    alive = Process(int(pid), int(ticks)).alive
    if not alive:
        lease.unlink(missing_ok=True)
    return alive


def _leases(ground: Ground) -> Path:
    """In the cache, because the cluster's own folder is deleted with the cluster."""
    return ground.settings.cache / "test-leases"


def _made_for_tests(ground: Ground) -> Path:
    return _leases(ground) / "made-for-tests"
