"""What is made of a run: CPU time by phase, medians, a table, a profile; and our client through the whole of it."""

from __future__ import annotations

import json
import os
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
from client_bench.cpu import CpuLog, cores, on_core, tree_cpu_s
from client_bench.markdown_table import markdown, medians
from client_bench.profile import by_function
from client_bench.run import Run, run_once
from client_bench.timing_accuracy import Judgement, Spread

JUDGEMENT = Judgement(
    requests=4, lost=0, miscounted=0, chunks=500_000, ttft=Spread(1.0, 2.0), chunk=None, absolute=False,
    gathered_share=None, began_ns=10**9, ended_ns=6 * 10**9, step_p50_ms=20.0,
)  # fmt: skip
RUN = Run(
    client="a", version="1", case=Case("8", 8, 8, 8), repeat=0, judgement=JUDGEMENT, cpu_start_s=7.0, cpu_hot_s=2.0,
    cpu_after_s=1.0, server_share=0.5, late_step_share=0.0, load_average=0.0,
)  # fmt: skip


def test_chunks_a_core_are_chunks_by_the_cpu_seconds_of_the_hot_phase() -> None:
    figures = RUN.figures()
    assert figures["chunks_per_s_a_core"] == 250_000
    assert figures["chunks_per_s"] == 100_000
    assert figures["cpu_s_per_million_hot"] == 4.0
    assert figures["cpu_s_per_million_in_all"] == 6.0
    assert figures["client_share"] == 0.4
    assert figures["chunk_error_p99_ms"] is None


def test_medians_are_over_the_runs_and_missing_stays_missing() -> None:
    runs = [replace(RUN, cpu_hot_s=used) for used in (1.0, 2.0, 9.0)]
    assert medians(runs)["cpu_s_per_million_hot"] == 4.0
    assert medians(runs)["chunk_error_p50_ms"] is None


def test_the_table_has_a_row_a_client_a_dash_for_what_is_missing_and_says_what_failed() -> None:
    other = replace(RUN, client="b", judgement=replace(JUDGEMENT, miscounted=3, chunk=Spread(0.01, 0.5)))

    text = markdown([RUN, RUN, other], ["c, 8 streams failed: no"])

    rows = [line for line in text.splitlines() if line.startswith(("| a", "| b"))]
    assert [row.split(" | ")[1] for row in rows] == ["2", "1"]
    assert "| – | – |" in rows[0]
    assert "3 requests with another number of chunks" in rows[1]
    assert "chunk times since the first chunk" in rows[1]
    assert text.endswith("- c, 8 streams failed: no\n")


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(-10, 10**4))
def test_cpu_time_never_goes_backwards_and_stays_within_what_was_seen(seen_s: list[float], moment_ns: int) -> None:
    log = CpuLog()
    for place, used_s in enumerate(seen_s):
        log.look(100 * place, used_s)
    assert log.used_s == sorted(log.used_s)
    assert log.used_s[0] <= log.until(moment_ns) <= log.used_s[-1]
    assert log.until(moment_ns) <= log.until(moment_ns + 50)


def test_cpu_time_between_two_looks_is_even() -> None:
    log = CpuLog()
    log.look(0, 1.0)
    log.look(100, 3.0)
    assert log.until(25) == 1.5


@pytest.mark.process
def test_the_cpu_time_of_a_tree_holds_its_children_that_live_and_those_that_ended() -> None:
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
def test_what_is_started_on_a_core_stays_there() -> None:
    before, core = os.sched_getaffinity(0), cores().client
    with on_core(core):
        told = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert told.stdout.strip() == str({core})
    assert os.sched_getaffinity(0) == before


def test_a_profile_is_by_process_and_function_without_lines_and_imports() -> None:
    lines = [
        'process 1:"python a";main (a.py:3);work (a.py:7) 6',
        'process 1:"python a";main (a.py:4);work (a.py:9) 2',
        'process 1:"python a";main (a.py:5) 2',
        'process 1:"python a";_find_and_load (<frozen importlib>:1);x (b.py:1) 90',
        'process 2:"python b";serve (c.py:1) 5',
    ]

    text = by_function(lines)

    assert "process 1: 10 samples" in text
    assert " 80.0%  80.0%  work (a.py)" in text
    assert " 20.0% 100.0%  main (a.py)" in text
    assert "x (b.py)" not in text
    assert "process 2: 5 samples" in text


@pytest.mark.process
def test_our_client_goes_through_the_whole_of_it_and_loses_nothing(tmp_path: Path) -> None:
    case = Case("tiny", streams=4, requests=12, max_tokens=16, pace=Pace(step_ms=2))

    run = run_once(CLIENTS["specbench"], case, 0, tmp_path / "run", cores())

    told = run.judgement
    assert (told.lost, told.miscounted, told.absolute) == (0, 0, True)
    assert told.requests >= 12  # a client may fill up its ramp and its drain
    assert told.chunks >= 12 * 8
    assert json.loads(run.to_json())["case"]["streams"] == 4
