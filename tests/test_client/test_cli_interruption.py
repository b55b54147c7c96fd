"""What a command prints and returns when it is interrupted, also by further signals while it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.cli import cli, exit_code
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.errors import Interrupted

INTERRUPTED_TWICE = """
import os, signal, sys, threading
from specbench_client import cli

def interrupt(*_, kill=os.kill, process=os.getpid(), number=int(sys.argv[2]), **__):
    kill(process, number)

class Destroyed:
    __del__ = interrupt

def report_twice(text, *, err, echo=cli.echo):
    echo(text, err=err)
    if moment == "message":
        interrupt()

moment = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job that a shell runs in the background
cli.cli.main, cli.echo = interrupt, report_twice
leave = sys.exit

def interrupt_and_hang():
    interrupt()
    threading.Event().wait()

def leave_with_a_hanging_thread(code):
    threading.Thread(target=interrupt_and_hang).start()
    leave(code)

if moment == "hanging thread":
    sys.exit = leave_with_a_hanging_thread
if moment == "destruction of modules":
    destroyed = Destroyed()
cli.main()
"""
"""A command that gets one signal while it runs, and one more while it ends."""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["message", "hanging thread", "destruction of modules"])
def test_a_second_signal_ends_the_command_with_the_same_exit_code(moment: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", INTERRUPTED_TWICE, moment, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "Interrupted\n")


@pytest.mark.parametrize("arguments", [["report", "out"], ["simulate"], ["decide", "out", "--output", "json"]])
def test_a_command_that_stores_nothing_is_interrupted_without_advice(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", interrupted)
    assert exit_code(arguments) == Exit.INTERRUPTED
    captured = capsys.readouterr()
    assert captured.err.strip() == "Interrupted"
    if "json" in arguments:
        assert json.loads(captured.out)["error"] == {"exit": 130, "reason": "Interrupted", "messages": ["interrupted"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_signal_finds_the_default_handler_while_earlier_handlers_are_restored(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default handler would end the process without a message and with another exit code."""
    set_handlers: list[object] = []
    original: Callable[..., Any] = signal.signal

    def recorded(which: int, handler: Any) -> Any:
        set_handlers.append(handler)
        return original(which, handler)

    async def interrupted() -> None:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    earlier = original(signal.SIGTERM, signal.default_int_handler)
    monkeypatch.setattr(signal, "signal", recorded)
    try:
        with pytest.raises(Interrupted):
            run_until_interrupted(interrupted())
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        original(signal.SIGTERM, earlier)
    assert set_handlers
    assert signal.SIG_DFL not in set_handlers
