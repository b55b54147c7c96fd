"""One engine as a process: started from a Launch, watched, and always ended.

The process dies with us, also when we are killed (PR_SET_PDEATHSIG), because a forgotten engine spoils the next
measurement on this machine. Its output goes to a file; the end of that file is quoted when it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Self

import aiohttp

from specbench_api.launch.launch import Launch, placed
from specbench_api.spec.conditions import EngineReason
from specbench_client.errors import BadInput, EngineFailed

POLL_S = 0.05
STOP_GRACE_S = 5.0
DEATH_GRACE_S = 1.0
LOG_TAIL_BYTES = 1500
_PR_SET_PDEATHSIG = 1


class EngineProcess:
    """An engine of this machine. `async with` starts it and ends it; `url` is where it listens."""

    def __init__(self, launch: Launch, base_dir: Path, log_path: Path) -> None:
        self._launch = launch
        self._base_dir = base_dir
        self._log_path = log_path
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.command: list[str] = []
        """What was started; empty before that."""
        self.url = f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        """Start it; it is not ready yet."""
        command = self.command = local_command(self._with_configs(), self._port)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    cwd=self._base_dir,
                    env={**os.environ, **self._launch.env},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except (OSError, ValueError) as error:  # no program of this machine; or an argument with a NUL in it
                remedy = "look at spec.engine.command, args and env"
                raise BadInput(f"spec.engine: {command[0]} cannot be started: {error}: {remedy}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it: SIGTERM, then SIGKILL to its whole process group."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # SIGKILL always: the engine's children may outlive it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_GRACE_S)

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait for the engine's own health route. Raises EngineFailed: it ended, or was not ready in time."""
        url = f"{self.url}{self._launch.health_path}"
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while loop.time() < end:
                if self.failure():
                    raise EngineFailed(*self._failed())
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url) as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(POLL_S)
        message = f"the engine was not ready within {deadline_s:g} s; its last words: {self._log_tail()}"
        raise EngineFailed(message, EngineReason.NEVER_READY)

    def failure(self) -> EngineReason | None:
        """Why the process has ended by itself, or None while it lives."""
        code = self._process.returncode if self._process else None
        if code is None:
            return None
        return EngineReason.OOM_KILLED if code == -signal.SIGKILL else EngineReason.CRASHED

    async def explain(self) -> EngineFailed | None:
        """The error of a process that ended by itself, or None: it lives on. One that just died may need a moment."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._process.wait()), DEATH_GRACE_S)
        return EngineFailed(*self._failed()) if self.failure() else None

    def _with_configs(self) -> Launch:
        """Write its configuration files beside its log: they tell afterwards what it was started with."""
        if not self._launch.configs:
            return self._launch
        folder = self._log_path.with_suffix(".config").resolve()  # the engine runs in another folder than we
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._launch.configs.items():
            (folder / name).write_text(text, encoding="utf-8")
        return placed(self._launch, str(folder))

    def _failed(self) -> tuple[str, str]:
        code = self._process.returncode if self._process else None
        reason = self.failure() or EngineReason.CRASHED
        how = (
            "was killed (SIGKILL: most often the kernel's out-of-memory killer)" if code == -9 else f"ended with {code}"
        )
        return f"the engine {how}; its last words: {self._log_tail()}", reason

    def _log_tail(self) -> str:
        try:
            data = self._log_path.read_bytes()[-LOG_TAIL_BYTES:]
        except OSError as error:
            return f"(no log: {error})"
        return data.decode(errors="replace").strip() or "(it said nothing)"


def local_command(launch: Launch, port: int) -> list[str]:
    """Program and arguments of a Launch on this machine. Raises BadInput where no program can be found."""
    return _command(_program(launch), launch, port)


def planned_command(launch: Launch) -> list[str]:
    """The same before anything runs, where a program that is not on this machine goes by its name."""
    try:
        return local_command(launch, launch.port)
    except BadInput:
        return _command(_candidates(launch)[0], launch, launch.port)


def _command(program: tuple[str, ...], launch: Launch, port: int) -> list[str]:
    network = (launch.host_flag, "127.0.0.1", launch.port_flag, str(port))
    return [*program, *map(_home, launch.args), *network]


def _candidates(launch: Launch) -> tuple[tuple[str, ...], ...]:
    return (launch.command,) if launch.command else launch.local_programs


def _home(argument: str) -> str:
    return str(Path(argument).expanduser()) if argument.startswith("~/") else argument


def _program(launch: Launch) -> tuple[str, ...]:
    candidates = _candidates(launch)
    for candidate in candidates:
        if candidate[0] == "python":
            return (sys.executable, *candidate[1:])
        found = shutil.which(candidate[0]) or shutil.which(candidate[0], path=Path(sys.executable).parent)
        if found:
            return (found, *candidate[1:])
    wanted = " or ".join(candidate[0] for candidate in candidates)
    raise BadInput(f"spec.engine: no program {wanted} on PATH; install it, or set spec.engine.command")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    with contextlib.suppress(OSError):  # not Linux: the group is still ended on every orderly way out
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
