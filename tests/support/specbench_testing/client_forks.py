"""Client processes without their start-up time: a process that has imported the client forks one for each command.

The forked process runs the same code with the same arguments as `specbench-client` in a pod, has its own process ID and
can be killed. Only its reports have few resamples and no plots: these take seconds of a life and are no writes.

Protocol, one JSON document per line: a request with arguments, environment and log on stdin; then the child's pid, and
after its end its exit code, on stdout.

    python -m specbench_testing.client_forks
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch


class ClientForks:
    """The process that forks, within a `with` block. One command at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self._pid_known = threading.Event()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        call = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Run one command line to its end; returns the exit code, negative for a signal."""
        self._ended.clear()
        self._send({"arguments": list(arguments), "environment": dict(environment), "log": str(log)})
        self._pid = int(self._receive()["pid"])
        self._pid_known.set()
        code = int(self._receive()["code"])
        self._pid_known.clear()
        self._ended.set()
        return code

    def kill(self) -> None:
        """Kill the command that runs, and wait for its end."""
        assert self._pid_known.wait(10)
        assert self._pid is not None
        os.kill(self._pid, 9)
        assert self._ended.wait(30)

    def _send(self, document: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks clients has ended"
        return dict(json.loads(line))


def main() -> None:
    """Fork until stdin ends."""
    import specbench_client.stored_runs.gate
    import specbench_client.stored_runs.write_results  # noqa: F401 -- likewise
    from specbench_client.analysis.statistics import bootstrap
    from specbench_client.job.commands import run_program

    bootstrap.RESAMPLES = 200
    patch("specbench_client.report.html.draw_figures", lambda _: {}).start()

    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.environ.update(request["environment"])
                code = run_program(request["arguments"])
            finally:
                os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)  # noqa: T201 -- the protocol
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)  # noqa: T201 -- likewise


if __name__ == "__main__":
    main()
