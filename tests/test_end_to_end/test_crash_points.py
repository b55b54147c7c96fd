"""Operator and client are killed at their writes: every run ends like an uninterrupted one.

`make test` kills them after one write of each kind in one life each; another version of the operator then continues.
`make test-long` tries every write of every life with every fault: also killed before it, with error answers, lost
answers, stale reads, lost rights and a lost namespace. What a kill before a write leaves is what a kill after the
previous write leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from specbench_testing.api_server_runs import install_definition
from specbench_testing.client_crash_points import LIVES as CLIENT_LIVES
from specbench_testing.client_crash_points import MEASURE, ClientLife, enumerate_client
from specbench_testing.crash_points import (
    API_FAULTS,
    STORE_FAULTS,
    CrashPoint,
    Enumeration,
    Select,
    every_write,
    one_of_each_kind,
)
from specbench_testing.fault_proxy import FaultKind, WriteKey
from specbench_testing.light_cluster import light_cluster
from specbench_testing.operator_crash_points import LIVES, MEASURED, RETRIED, Life, enumerate_operator
from specbench_testing.s3 import S3Server
from specbench_testing.shared_cluster import skip_without_cluster

OPERATOR_WRITES = {
    *("create ConfigMap RUN-plan", "create Service RUN-gN", "create Job RUN-gN", "create Job RUN-gN-client"),
    *("create Job RUN-report", "delete Job RUN-gN", "delete Service RUN-gN", "event", "status"),
}
"""Of a run without failures."""
WRITES_OF_A_MEASUREMENT = {
    *("put plan.json", "put progress.json", "put launches/0-ATTEMPT.json"),
    *("put points/POINT/records/0-ATTEMPT.parquet", "put points/POINT/summary.json", "put points/POINT/manifest.json"),
}
CLIENT_WRITES = WRITES_OF_A_MEASUREMENT | {
    "put points/POINT/schedule-ATTEMPT.parquet",
    *(f"put {name}" for name in ("provenance.json", "results.csv", "report.html", "summary.json", "status.json")),
    "put gate.json",
}


@pytest.fixture(autouse=True)
def servers() -> None:
    skip_without_cluster()


def operator_enumeration(folder: Path, select: Select, lives: Sequence[Life]) -> Enumeration:
    """The operator's crash points, on a new control plane."""
    with light_cluster() as cluster:
        install_definition(cluster)
        return enumerate_operator(cluster, folder, select, lives=lives)


def client_enumeration(folder: Path, select: Select, lives: Sequence[ClientLife] = CLIENT_LIVES) -> Enumeration:
    """The client's crash points, with a new S3 server."""
    server = S3Server(folder / "s3")
    server.folder.mkdir(parents=True)
    server.start()
    try:
        return enumerate_client(server.access, folder / "lives", select, lives)
    finally:
        server.stop()


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_run_survives_another_version_of_the_operator_after_one_write_of_each_kind(tmp_path: Path) -> None:
    found = operator_enumeration(tmp_path, one_of_each_kind((FaultKind.UPGRADED,)), (MEASURED,))
    assert found.kinds_of_writes >= OPERATOR_WRITES
    assert len(found.results) >= len(OPERATOR_WRITES)
    assert found.failures == []


@pytest.mark.s3
@pytest.mark.process
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_of_the_client_after_one_write_of_each_kind(tmp_path: Path) -> None:
    found = client_enumeration(tmp_path, one_of_each_kind((FaultKind.KILL_AFTER,)), (MEASURE,))
    assert found.kinds_of_writes >= WRITES_OF_A_MEASUREMENT
    assert len(found.results) >= len(WRITES_OF_A_MEASUREMENT)
    assert found.failures == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_of_the_operator_while_a_round_is_added(tmp_path: Path) -> None:
    """From the report that requests it to the launch of its first client."""

    def around_the_round(life: str, writes: Sequence[WriteKey]) -> list[CrashPoint]:
        kinds = [key.kind for key in writes]
        first, last = kinds.index("create Job RUN-report"), kinds.index("create Job RUN-g4-0-client")
        return [CrashPoint(life, FaultKind.KILL_AFTER, key) for key in writes[first : last + 1]]

    found = operator_enumeration(tmp_path, around_the_round, (RETRIED,))
    assert found.kinds_of_writes >= {*OPERATOR_WRITES, "create ConfigMap RUN-plan-1", "delete Job RUN-report"}
    assert found.failures == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(10_800)
def test_a_run_survives_every_fault_at_every_write_of_the_operator(tmp_path: Path) -> None:
    found = operator_enumeration(tmp_path, every_write(API_FAULTS), LIVES)
    assert found.kinds_of_writes >= {*OPERATOR_WRITES, "patch verdict of Job RUN-gN"}
    assert found.failures == []


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_run_survives_the_loss_of_its_namespace_after_every_write_of_the_operator(tmp_path: Path) -> None:
    """Namespace and run are created again with the same names; the operator's account is in another namespace."""
    found = operator_enumeration(tmp_path, every_write((FaultKind.NAMESPACE_LOST,)), (MEASURED,))
    assert found.kinds_of_writes >= OPERATOR_WRITES
    assert found.failures == []


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(10_800)
def test_a_run_survives_every_fault_at_every_write_of_the_client(tmp_path: Path) -> None:
    found = client_enumeration(tmp_path, every_write(STORE_FAULTS))
    assert found.kinds_of_writes >= CLIENT_WRITES
    assert found.failures == []
