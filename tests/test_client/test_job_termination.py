"""`specbench-client` on SIGTERM and SIGINT: it reports at once and exits in time even if a call hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from specbench_api.outcome.termination import Exit, Termination
from specbench_client.job import termination
from specbench_client.job.termination import StopRequested, TerminationWriter
from specbench_testing.closing_servers import accepting
from specbench_testing.s3 import S3Access
from specbench_testing.simulated_groups import plan_of, write_prompts

LIBRARIES = ("aiohttp", "boto3", "botocore", "click", "numpy", "pandas", "pyarrow", "pydantic")

STILL_IMPORTING = """
import signal, sys

class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "specbench_client.job.commands":
            print("importing", flush=True)
            signal.pause()

sys.meta_path.insert(0, SlowDisk())
from specbench_client.job import main
main()
"""
HASTY = """
from specbench_client.job import main, termination
termination.EXIT_WITHIN_S = 0.5
main()
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ":".join(sys.path), **more}


@asynccontextmanager
async def unresponsive_endpoint() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Yield an endpoint that accepts and never responds, and an event set on its first connection."""
    contacted, over = asyncio.Event(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        contacted.set()
        await over.wait()

    async with accepting(take) as url:
        try:
            yield url, contacted
        finally:
            over.set()


def test_signal_handlers_are_installed_before_any_library_is_imported() -> None:
    code = f"import sys, specbench_client.job; print([name for name in {LIBRARIES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_imports_exits_with_130_and_a_message(number: signal.Signals, tmp_path: Path) -> None:
    call = [sys.executable, "-c", STILL_IMPORTING, "drive", "--termination-log", str(tmp_path / "ended")]
    with subprocess.Popen(call, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        assert process.wait(120) == 130

    termination_report = Termination.from_json((tmp_path / "ended").read_text())
    assert (termination_report.code, termination_report.reason) == (130, "Interrupted")
    assert termination_report.message.startswith(f"{number.name}: points with a manifest are kept")


@pytest.mark.process
@pytest.mark.parametrize("command", ["drive", "report"])
async def test_unresponsive_s3_does_not_delay_termination(command: str, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    more = ["--group", "0", "--attempt", "1", "--endpoint", "http://127.0.0.1:9"] if command == "drive" else []
    async with unresponsive_endpoint() as (endpoint, contacted), asyncio.timeout(240):
        access = S3Access(endpoint, "k", "s", "bench")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HASTY, command, "--plan", tmp_path / "plan.json", "--results", "s3://bench/x", *more,
            "--termination-log", tmp_path / "ended", env=environment(**access.environment()),
        )  # fmt: skip
        await contacted.wait()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 130

    termination_report = Termination.from_json((tmp_path / "ended").read_text())
    assert (termination_report.code, termination_report.reason) == (130, "Interrupted")


def test_final_message_replaces_the_interruption_message(tmp_path: Path) -> None:
    writer = TerminationWriter(tmp_path / "ended")
    writer._write_interrupted(signal.SIGTERM)
    first = Termination.from_json((tmp_path / "ended").read_text())

    writer.write("all of it", code=0)
    writer._write_interrupted(signal.SIGTERM)

    assert (first.code, first.message) == (Exit.INTERRUPTED, str(StopRequested(signal.SIGTERM)))
    assert (tmp_path / "ended").read_text() == "all of it\n"


def test_exit_deadline_is_within_a_pods_grace_period() -> None:
    assert termination.EXIT_WITHIN_S <= 15
