"""Runs one client on one case once: starts server and client, samples both, and compares reported with true times."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from client_bench.cases import Case
from client_bench.clients.client import BenchmarkJob, Client, Command
from client_bench.cpu import Cores, CpuLog, on_core, tree_cpu_s
from client_bench.server_tls import make_certificate
from client_bench.timing_accuracy import Judgement, NothingFound, compare_with_truth, read_truth

LOOK_EVERY_S = 0.05
GIVE_UP_S = 900.0
_LAST_WORDS = 600
_PACKAGES = Path(__file__).resolve().parents[1]


class Failure(Exception):
    """The client failed; the message contains the end of its output."""


@dataclass(frozen=True)
class Run:
    """The result of a run. CPU seconds are those of the client's whole process tree."""

    client: str
    version: str
    case: Case
    repeat: int
    judgement: Judgement
    cpu_start_s: float
    """CPU seconds before the first request reached the server: interpreters, imports, prompts."""
    cpu_hot_s: float
    """CPU seconds from the first request to the last chunk."""
    cpu_after_s: float
    """CPU seconds from the last chunk to the client's exit, for parsing, counting and writing."""
    server_share: float
    """The server's share of its core during the load; near 1 the server is the bottleneck."""
    late_step_share: float
    """Steps of the server that took longer than configured."""
    load_average: float
    """The machine's load average at the start of the run."""

    @property
    def hot_s(self) -> float:
        return (self.judgement.ended_ns - self.judgement.began_ns) / 1e9

    def figures(self) -> dict[str, float | None]:
        """Return the figures of the table."""
        millions = self.judgement.chunks / 1e6
        ttft, chunk = self.judgement.ttft, self.judgement.chunk
        return {
            "chunks_per_s_a_core": self.judgement.chunks / self.cpu_hot_s if self.cpu_hot_s else None,
            "chunks_per_s": self.judgement.chunks / self.hot_s,
            "cpu_s_per_million_hot": self.cpu_hot_s / millions,
            "cpu_s_per_million_in_all": (self.cpu_hot_s + self.cpu_after_s) / millions,
            "ttft_error_p50_ms": ttft.p50_ms if ttft else None,
            "ttft_error_p99_ms": ttft.p99_ms if ttft else None,
            "chunk_error_p50_ms": chunk.p50_ms if chunk else None,
            "chunk_error_p99_ms": chunk.p99_ms if chunk else None,
            "chunk_error_p999_ms": chunk.p999_ms if chunk else None,
            "coalesced_share": self.judgement.coalesced_share,
            "client_share": self.cpu_hot_s / self.hot_s,
            "server_share": self.server_share,
            "step_p50_ms": self.judgement.step_p50_ms,
        }

    def to_json(self) -> str:
        """Return the result in one line."""
        return json.dumps({**asdict(self), "figures": self.figures()})


@dataclass
class _Watch:
    """Samples both process trees and the offset between the wall clock and the monotonic clock."""

    server: int
    client: int
    of_server: CpuLog = field(default_factory=CpuLog)
    of_client: CpuLog = field(default_factory=CpuLog)
    clocks_ns: list[int] = field(default_factory=list)

    def look(self) -> None:
        now_ns = time.monotonic_ns()
        self.clocks_ns.append(now_ns - time.time_ns())
        self.of_server.look(now_ns, tree_cpu_s(self.server))
        self.of_client.look(now_ns, tree_cpu_s(self.client))

    def ended(self, used: resource.struct_rusage) -> None:
        """Return the client's total CPU time, as the kernel reported it on exit."""
        self.of_client.look(time.monotonic_ns(), used.ru_utime + used.ru_stime)


def run_once(client: Client, case: Case, repeat: int, folder: Path, cores: Cores) -> Run:
    """Run the case. `folder` is created and stores all output of client and server. Raises Failure."""
    folder.mkdir(parents=True)
    load_average = os.getloadavg()[0]
    trust = {"SSL_CERT_FILE": str(make_certificate(folder))} if case.tls else {}
    with _server(case, folder / "truth.json", cores.server) as (server, url):
        job = BenchmarkJob(url, case, folder)
        command = client.command(job)
        command = replace(command, environment={**command.environment, **trust})
        watch = _watched(command, folder / "client.log", server, cores.client)
    truth = json.loads((folder / "truth.json").read_text())
    try:
        observed = client.read(replace(job, monotonic_less_wall_ns=int(median(watch.clocks_ns))))
        judgement = compare_with_truth(read_truth(truth), observed)
    except (NothingFound, OSError, LookupError, ValueError) as error:
        raise Failure(f"its output cannot be read: {error!r}; see {folder}") from error
    used, served = watch.of_client, watch.of_server
    began_ns, ended_ns = judgement.began_ns, judgement.ended_ns
    return Run(
        client=client.name,
        version=client.version() or "",
        case=case,
        repeat=repeat,
        judgement=judgement,
        cpu_start_s=used.until(began_ns),
        cpu_hot_s=used.until(ended_ns) - used.until(began_ns),
        cpu_after_s=used.used_s[-1] - used.until(ended_ns),
        server_share=(served.until(ended_ns) - served.until(began_ns)) / ((ended_ns - began_ns) / 1e9),
        late_step_share=truth["late_steps"] / max(1, truth["steps"]),
        load_average=load_average,
    )


@contextmanager
def _server(case: Case, truth: Path, core: int) -> Iterator[tuple[int, str]]:
    """Start the clock server on its core; yield its process and address. It writes the truth file when it ends."""
    argv = [sys.executable, "-m", "client_bench.clockserver", "--truth", str(truth)]
    argv += ["--step-ms", str(case.pace.step_ms), "--burst", str(case.pace.burst)]
    argv += ["--ends-together"] if case.ends_together else []
    argv += ["--tls", str(truth.parent)] if case.tls else []
    with on_core(core):
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(_PACKAGES)}
        )
    try:
        assert process.stdout is not None, "stdout is not a pipe"
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def _watched(command: Command, log: Path, server: int, core: int) -> _Watch:
    """Run the client to its end on its core. Raises Failure."""
    with log.open("wb") as output, on_core(core):
        process = subprocess.Popen(
            list(command.argv), cwd=log.parent, env={**os.environ, **command.environment}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    watch, give_up_ns = _Watch(server, process.pid), time.monotonic_ns() + int(GIVE_UP_S * 1e9)
    pid = 0
    try:
        while not pid:
            watch.look()
            time.sleep(LOOK_EVERY_S)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if time.monotonic_ns() > give_up_ns:
                os.killpg(process.pid, signal.SIGKILL)
    finally:
        if not pid:  # this benchmark was interrupted
            os.killpg(process.pid, signal.SIGKILL)
    process.returncode = os.waitstatus_to_exitcode(status)
    watch.ended(used)
    if process.returncode != 0:
        words = log.read_text(errors="replace").strip()[-_LAST_WORDS:]
        raise Failure(f"it exited with {process.returncode}: {words}")
    return watch
