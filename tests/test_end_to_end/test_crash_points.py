"""Operator and client are killed before and after their writes: every run ends like an uninterrupted one.

`make test` tries one write of each kind. `make test-chaos` tries every write, also with error answers, lost answers and
stale reads, for an hour; `hack/crash-points` does the same and prints the table of the documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specbench_testing.crash_point_sites import enumerate_client_alone, enumerate_operator_alone
from specbench_testing.crash_points import (
    API_FAULTS,
    STORE_FAULTS,
    CrashPoint,
    Enumeration,
    Select,
    every_write,
    one_of_each_kind,
)
from specbench_testing.fault_proxy import KILLS, FaultKind, WriteKey
from specbench_testing.shared_cluster import skip_without_cluster

OPERATOR_WRITES = {
    *("create ConfigMap RUN-plan", "create Service RUN-gN", "create Job RUN-gN", "create Job RUN-gN-client"),
    *("create Job RUN-report", "delete Job RUN-gN", "delete Service RUN-gN", "event", "status"),
    "patch verdict of Job RUN-gN",
}
_POINT_FILES = ("manifest.json", "summary.json", "schedule-ATTEMPT.parquet", "compacted.json")
CLIENT_WRITES = {
    *("put plan.json", "put progress.json", "put launches/0-ATTEMPT.json"),
    *(f"put points/POINT/{name}" for name in _POINT_FILES),
    *(f"put points/POINT/{name}-ATTEMPT.parquet" for name in ("records/part", "rows/v2")),
    *("put records/arm=N/workload=chat/POINT.parquet", "remove points/POINT/records/part-ATTEMPT.parquet"),
    *(f"put {name}" for name in ("provenance.json", "results.csv", "report.html", "summary.json", "overview.json")),
    "put gate.json",
}
Enumerate = Callable[[Path, Select], Enumeration]
WRITERS = [
    pytest.param(
        *(enumerate_operator_alone, API_FAULTS, OPERATOR_WRITES),
        marks=[pytest.mark.cluster, pytest.mark.alone],
        id="operator",
    ),
    pytest.param(
        *(enumerate_client_alone, STORE_FAULTS, CLIENT_WRITES), marks=[pytest.mark.s3, pytest.mark.process], id="client"
    ),
]


@pytest.fixture
def servers() -> None:
    skip_without_cluster()


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("enumerate_writer", "faults", "writes"), WRITERS)
def test_a_run_survives_a_kill_at_one_write_of_each_kind(
    enumerate_writer: Enumerate, faults: tuple[FaultKind, ...], writes: set[str], tmp_path: Path
) -> None:
    found = enumerate_writer(tmp_path, one_of_each_kind(KILLS))
    assert writes <= found.kinds_of_writes
    assert len(found.results) >= len(KILLS) * len(writes)
    assert found.failures == []


@pytest.mark.chaos
@pytest.mark.timeout(10_800)
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("enumerate_writer", "faults", "writes"), WRITERS)
def test_a_run_survives_every_fault_at_every_write(
    enumerate_writer: Enumerate, faults: tuple[FaultKind, ...], writes: set[str], tmp_path: Path
) -> None:
    found = enumerate_writer(tmp_path, every_write(faults))
    assert writes <= found.kinds_of_writes
    assert found.failures == []


FIRST, EQUAL, OTHER = (WriteKey(f"create Job RUN-g{number}") for number in ("0-0", "1-0", "0-0-client"))


@pytest.mark.parametrize(
    ("select", "chosen"), [(every_write, [FIRST, EQUAL, OTHER]), (one_of_each_kind, [FIRST, OTHER])]
)
def test_crash_points_are_generated_from_the_writes(
    select: Callable[[tuple[FaultKind, ...]], Select], chosen: list[WriteKey]
) -> None:
    points_of = select(KILLS)
    assert points_of("a life", [FIRST, EQUAL, OTHER]) == [
        CrashPoint("a life", kind, key) for key in chosen for kind in KILLS
    ]
    assert points_of("another life", [FIRST, OTHER]) == [], "an earlier life has them"


def test_a_crash_point_that_is_not_tried_is_a_failure() -> None:
    found = Enumeration("operator", lambda _: None)
    found.lived("a life", [FIRST], every_write(KILLS))
    assert found.failures == [f"a life: {kind}: create Job RUN-g0-0: not tried" for kind in KILLS]
