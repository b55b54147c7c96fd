"""`specbench-client` that is asked to stop: it says so at once, and ends in time whatever hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from specbench_api.outcome.termination import Exit, Termination
from specbench_client.job import termination
from specbench_client.job.termination import StopRequested, TerminationWriter
from specbench_testing.s3 import S3Access
from specbench_testing.simulated_groups import plan_of, write_prompts

LIBRARIES = ("aiohttp", "boto3", "botocore", "click", "numpy", "pandas", "pyarrow", "pydantic")

STILL_IMPORTING = """
import signal, sys

class SlowDisk:
    def find_spec(self, name, path=None, target=None):
        if name == "specbench_client.job.entrypoint":
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
async def nobody_answers() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """An endpoint that accepts and never answers, and when it was first asked."""
    asked, over = asyncio.Event(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, family=socket.AF_INET)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        over.set()
        server.close()


def test_it_listens_before_any_library_is_loaded() -> None:
    told = f"import sys, specbench_client.job; print([name for name in {LIBRARIES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_libraries_are_loaded_ends_it_with_130_and_a_message(
    number: signal.Signals, tmp_path: Path
) -> None:
    call = [sys.executable, "-c", STILL_IMPORTING, "drive", "--termination-log", str(tmp_path / "ended")]
    with subprocess.Popen(call, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        assert process.wait(120) == 130

    said = Termination.from_json((tmp_path / "ended").read_text())
    assert (said.code, said.reason, said.measured) == (130, "Interrupted", None)
    assert said.message.startswith(f"{number.name}: points with a manifest are kept")


@pytest.mark.process
@pytest.mark.parametrize("command", ["drive", "report"])
async def test_an_s3_that_never_answers_holds_nothing_up(command: str, tmp_path: Path) -> None:
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    more = ["--group", "0", "--attempt", "1", "--endpoint", "http://127.0.0.1:9"] if command == "drive" else []
    async with nobody_answers() as (endpoint, asked), asyncio.timeout(240):
        access = S3Access(endpoint, "k", "s", "bench")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HASTY, command, "--plan", tmp_path / "plan.json", "--results", "s3://bench/x", *more,
            "--termination-log", tmp_path / "ended", env=environment(**access.environment()),
        )  # fmt: skip
        await asked.wait()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 130

    said = Termination.from_json((tmp_path / "ended").read_text())
    assert (said.code, said.reason, said.measured) == (130, "Interrupted", None)


def test_what_is_said_at_the_end_stands_instead_of_the_first_words(tmp_path: Path) -> None:
    words = TerminationWriter(tmp_path / "ended")
    words.measured = 3
    words._write_interrupted(signal.SIGTERM)
    first = Termination.from_json((tmp_path / "ended").read_text())

    words.write("all of it", code=0)
    words._write_interrupted(signal.SIGTERM)

    assert (first.code, first.measured, first.message) == (Exit.INTERRUPTED, 3, str(StopRequested(signal.SIGTERM)))
    assert (tmp_path / "ended").read_text() == "all of it\n"


def test_the_time_to_leave_is_well_within_what_a_pod_is_given() -> None:
    assert termination.EXIT_WITHIN_S <= 15
