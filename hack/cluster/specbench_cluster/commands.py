"""Runs system commands and waits: for a condition, or for a lock between processes. Failures become typed errors."""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from specbench_cluster.errors import CommandFailed, RequirementMissing, StartFailed

#: Administration programs live in sbin, which a user's PATH often lacks.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
) -> str:
    """Run a command and return its standard output. Raises CommandFailed with the end of both streams.

    Without `env`, the command inherits the caller's environment, with sbin on its PATH. With
    `log`, both streams are written there immediately (long builds), and the result is empty.
    """
    env = env if env is not None else {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SEARCH_PATH}"}
    try:
        return _run(argv, stdin, env, cwd, log)
    except FileNotFoundError as absent:
        raise RequirementMissing([f"the program {absent.filename}"]) from absent


def _run(argv: Sequence[str], stdin: str | None, env: Mapping[str, str], cwd: Path | None, log: Path | None) -> str:
    if log is not None:
        with log.open("ab") as sink:
            done = subprocess.run(
                argv, stdout=sink, stderr=subprocess.STDOUT, env=env, cwd=cwd, stdin=subprocess.DEVNULL, check=False
            )
        if done.returncode:
            raise CommandFailed(argv, done.returncode, tail(log))
        return ""
    completed = subprocess.run(argv, input=stdin or "", capture_output=True, text=True, env=env, cwd=cwd, check=False)
    if completed.returncode:
        raise CommandFailed(argv, completed.returncode, completed.stdout[-1000:] + completed.stderr)
    return completed.stdout


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of a log for an error message; empty if nothing was written."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def wait_until(
    ready: Callable[[], bool],
    what: str,
    *,
    timeout_s: float = 60.0,
    interval_s: float = 0.1,
    explain: Callable[[], str] = str,
) -> None:
    """Wait until `ready` returns True. Raises StartFailed with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise StartFailed(f"{what}: timed out after {timeout_s:.0f} s. {explain()}".strip())
        time.sleep(interval_s)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the kernel releases it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
