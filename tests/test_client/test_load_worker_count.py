"""Number of worker processes for a load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specbench_client.load.machine_limits import cpu_quota, usable_cores, workers_for_rate, workers_for_streams


@pytest.mark.parametrize(
    ("streams", "cores", "expected"), [(1, 8, 1), (64, 8, 1), (65, 8, 2), (4096, 8, 8), (4096, 64, 64), (512, 1, 1)]
)
def test_closed_loop_has_one_worker_per_64_streams_up_to_the_cores(streams: int, cores: int, expected: int) -> None:
    assert workers_for_streams(streams, cores) == expected


@pytest.mark.parametrize(("rate", "cores", "expected"), [(0.1, 8, 1), (50, 8, 1), (51, 8, 2), (1e5, 8, 8)])
def test_open_loop_has_one_worker_per_50_conversations_per_second(rate: float, cores: int, expected: int) -> None:
    assert workers_for_rate(rate, cores) == expected


def quota_of(tmp_path: Path, membership: str, files: dict[str, str]) -> float | None:
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text + "\n")
    return cpu_quota(tmp_path / "fs", tmp_path / "cgroup")


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {}, None),
        ("0::/kubepods/pod1\n", {"kubepods/cpu.max": "400000 100000", "kubepods/pod1/cpu.max": "max 100000"}, 4),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "300000 100000"}, 2),
        ("4:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "250000", "cpu/x/cpu.cfs_period_us": "100000"}, 2.5),
        ("4:cpu:/x\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("3:memory:/x\n", {"memory/x/cpu.max": "1 1"}, None),
    ],
)
def test_cpu_quota_is_the_smallest_of_the_cgroup_and_its_parents(
    tmp_path: Path, membership: str, files: dict[str, str], expected: float | None
) -> None:
    assert quota_of(tmp_path, membership, files) == expected


def test_usable_cores_is_between_1_and_the_affinity() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
