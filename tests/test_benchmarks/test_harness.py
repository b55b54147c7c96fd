"""Results of a run: CPU time by phase, medians, table and profile; and one complete run of our client."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.cases import Case
from client_bench.clients.registry import CLIENTS
from client_bench.clockserver import Pace
from client_bench.cpu import CpuLog, cores, tree_cpu_s
from client_bench.markdown_table import markdown, medians
from client_bench.run import Run, run_once
from client_bench.timing_accuracy import Judgement, Spread

JUDGEMENT = Judgement(
    requests=4, lost=0, miscounted=0, chunks=500_000, ttft=Spread(1.0, 2.0, 3.0), chunk=None, absolute=False,
    coalesced_share=None, began_ns=10**9, ended_ns=6 * 10**9, step_p50_ms=20.0,
)  # fmt: skip
RUN = Run(
    client="a", version="1", case=Case("8", 8, 8, 8), repeat=0, judgement=JUDGEMENT, cpu_start_s=7.0, cpu_hot_s=2.0,
    cpu_after_s=1.0, server_share=0.5, late_step_share=0.0, load_average=0.0,
)  # fmt: skip


def test_figures_divide_chunks_by_the_cpu_seconds_of_each_phase() -> None:
    figures = RUN.figures()
    assert figures["chunks_per_s_a_core"] == 250_000
    assert figures["chunks_per_s"] == 100_000
    assert figures["cpu_s_per_million_hot"] == 4.0
    assert figures["cpu_s_per_million_in_all"] == 6.0
    assert figures["client_share"] == 0.4
    assert figures["chunk_error_p99_ms"] is None


def test_the_table_has_one_row_per_client_dashes_for_missing_values_and_failures() -> None:
    assert medians([replace(RUN, cpu_hot_s=used) for used in (1.0, 2.0, 9.0)])["cpu_s_per_million_hot"] == 4.0
    other = replace(RUN, client="b", judgement=replace(JUDGEMENT, miscounted=3, chunk=Spread(0.01, 0.5, 7.25)))

    text = markdown([RUN, RUN, other], ["c, 8 streams failed: no"])

    rows = [line for line in text.splitlines() if line.startswith(("| a", "| b"))]
    assert [row.split(" | ")[1] for row in rows] == ["2", "1"]
    assert "| – | – |" in rows[0]
    assert "3 requests with another number of chunks" in rows[1]
    assert "chunk times since the first chunk" in rows[1]
    assert "| 0.01 | 0.5 | 7.25 |" in rows[1]
    assert text.endswith("- c, 8 streams failed: no\n")


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(-10, 10**4))
def test_cpu_time_is_monotonic_and_within_the_observed_range(observed_s: list[float], time_ns: int) -> None:
    log = CpuLog()
    for index, used_s in enumerate(observed_s):
        log.look(100 * index, used_s)
    assert log.used_s == sorted(log.used_s)
    assert log.used_s[0] <= log.until(time_ns) <= log.used_s[-1]
    assert log.until(time_ns) <= log.until(time_ns + 50)
    between = (log.used_s[0] + log.used_s[min(1, len(log.used_s) - 1)]) / 2
    assert log.until(50) == pytest.approx(between), "it is interpolated"


@pytest.mark.process
def test_the_cpu_time_of_a_process_tree_includes_running_and_ended_children() -> None:
    burn = "import os, time\nwhile time.process_time() < 0.3: pass\n"
    child = f"{burn}print('burnt', flush=True)\ninput()\n"
    parent = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"burnt\n"
        assert tree_cpu_s(process.pid) >= 0.55
    finally:
        process.communicate(b"\n")
    assert tree_cpu_s(process.pid) == 0.0


@pytest.mark.process
@pytest.mark.parametrize("tls", [False, True])
def test_a_complete_run_of_our_client_loses_no_request(tmp_path: Path, *, tls: bool) -> None:
    case = Case("tiny", streams=4, requests=12, max_tokens=16, pace=Pace(step_ms=2), tls=tls)

    run = run_once(CLIENTS["specbench"], case, 0, tmp_path / "run", cores())

    judgement = run.judgement
    assert (judgement.lost, judgement.miscounted, judgement.absolute) == (0, 0, True)
    assert judgement.requests >= 12  # a client may send extra requests while it ramps up and drains
    assert judgement.chunks >= 12 * 8
    assert json.loads(run.to_json())["case"]["streams"] == 4
