"""Enumerations of crash points with servers of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specbench_testing.api_server_runs import install_definition
from specbench_testing.client_crash_points import enumerate_client
from specbench_testing.crash_points import Enumeration, Select
from specbench_testing.light_cluster import light_cluster
from specbench_testing.operator_crash_points import enumerate_operator
from specbench_testing.s3 import S3Server


def enumerate_operator_alone(folder: Path, select: Select, progress: Callable[[str], object] = print) -> Enumeration:
    """The operator's crash points, on a new control plane."""
    with light_cluster() as cluster:
        install_definition(cluster)
        return enumerate_operator(cluster, folder, select, progress=progress)


def enumerate_client_alone(folder: Path, select: Select, progress: Callable[[str], object] = print) -> Enumeration:
    """The client's crash points, with a new S3 server."""
    server = S3Server(folder / "s3")
    server.folder.mkdir(parents=True)
    server.start()
    try:
        return enumerate_client(server.access, folder / "lives", select, progress=progress)
    finally:
        server.stop()
