"""Profiles the operator with py-spy, which is not a dependency: `pip install py-spy`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_bench.profile import RATE_HZ, by_function
from specbench_testing.operator_process import OperatorProcess


def py_spy() -> str | None:
    """The program, beside this Python or on PATH; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextmanager
def profiled(operator: OperatorProcess, output: Path | None) -> Iterator[None]:
    """Profile the operator within a `with` block and store stacks and a table by function; without a file: do not."""
    program = py_spy()
    if output is None or program is None or operator.process is None:
        yield
        return
    call = [program, "record", "--subprocesses", "--format", "raw", "--rate", str(RATE_HZ)]
    call += ["--output", str(output), "--pid", str(operator.process.pid)]
    with output.with_suffix(".log").open("wb") as log:
        spy = subprocess.Popen(call, stdout=log, stderr=log)
    try:
        yield
    finally:
        spy.send_signal(signal.SIGINT)
        spy.wait(60)
    if output.exists():
        output.with_suffix(".md").write_text(by_function(output.read_text().splitlines()))
