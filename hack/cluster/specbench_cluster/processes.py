"""Starts daemons that outlive this program, and identifies them again.

The kernel reuses pids, so a record also contains the start time, and a process is
only ended if both match. Each daemon is started through a link below the state
folder, so one without a record (after a crash between start and record) is still
identified by its path.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from specbench_cluster.commands import wait_until
from specbench_cluster.errors import StartFailed

# A shell starts the daemon in the background and exits: the daemon becomes init's child, so it
# outlives this process and is never its zombie. The shell prints the daemon's pid.
_DETACH = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified on this boot by its pid and its start time in clock ticks after boot."""

    pid: int
    started_ticks: int

    @property
    def alive(self) -> bool:
        """Return whether this exact process is running.

        A zombie has ended, unless it has threads: those of a killed process end after its main thread, and keep its
        sockets open until then.
        """
        seen = _stat(self.pid)
        return seen is not None and seen.started_ticks == self.started_ticks and not seen.ended


class _Stat(NamedTuple):
    state: str
    threads: int
    started_ticks: int

    @property
    def ended(self) -> bool:
        return self.state in "ZX" and self.threads <= 1


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain spaces
    return _Stat(fields[0], int(fields[17]), int(fields[19]))  # fields 3, 20 and 22 of proc(5)


def identify(pid: int) -> Process | None:
    """Return the process that currently has this pid."""
    seen = _stat(pid)
    return Process(pid, seen.started_ticks) if seen else None


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str], record: Path) -> Process:
    """Start a daemon, its output appended to `log`, and write its `record`."""
    call = ["/bin/sh", "-c", _DETACH, "sh", str(log), *argv]
    shell = subprocess.run(
        call, env=env, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True, cwd="/"
    )
    process = identify(int(shell.stdout))
    if process is None:
        raise StartFailed(f"{argv[0]} exited immediately: see {log}")
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(asdict(process)))
    return process


def recorded(record: Path) -> Process | None:
    """The process of a record, alive or not; None without a complete record."""
    try:
        return Process(**json.loads(record.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # an incomplete record: `called_below` finds the process by its path


def end(processes: Sequence[Process], *, patience_s: float = 0.0) -> None:
    """Stop processes: with SIGTERM first if there is a grace period, then SIGKILL; wait until all are gone."""
    living = [process for process in processes if process.alive]
    if patience_s:
        _signal(living, signal.SIGTERM)
        with contextlib.suppress(StartFailed):
            wait_until(lambda: not any(p.alive for p in living), "end", timeout_s=patience_s, interval_s=0.05)
    _signal(living, signal.SIGKILL)
    wait_until(lambda: not any(p.alive for p in living), f"end of {living}", timeout_s=20, interval_s=0.02)


def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        if process.alive:
            with contextlib.suppress(ProcessLookupError):  # it may end before the signal is sent
                os.kill(process.pid, number)


def called_below(programs: Path, socket: Path) -> list[Process]:
    """Every process called by a path below `programs`, and every shim of the containerd at `socket`."""
    return [process for process, argv in _all() if _is_ours(argv, str(programs) + "/", str(socket))]


def _is_ours(argv: Sequence[str], prefix: str, socket: str) -> bool:
    if argv[0].startswith(prefix):
        return True
    return Path(argv[0]).name.startswith("containerd-shim") and socket in argv


def _all() -> Iterator[tuple[Process, list[str]]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        process = identify(int(entry.name))
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if process is not None and argv[0]:
                yield process, argv
