"""CPU, memory and queue of the operator, sampled from /proc and from its own metrics page."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from specbench_testing.operator_process import OperatorProcess

PERIOD_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024
QUEUE, STORE_LOOKS = "specbench_queue_depth", "specbench_store_looks_waiting"


@dataclass(frozen=True)
class ProcessUse:
    """What a process has used so far."""

    pid: int
    cpu_s: float
    rss_bytes: int


def use_of(pid: int) -> ProcessUse | None:
    """The use of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Fields 14 and 15 of proc(5): ticks in user and in kernel mode.
    return ProcessUse(pid, (int(fields[11]) + int(fields[12])) / _TICKS, pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass(frozen=True)
class Sample:
    """One sample. `depth`: objects that wait for a worker or a look at their store; None if the page is not served."""

    at: float
    operator: ProcessUse | None
    api_server: ProcessUse | None
    depth: float | None


@dataclass(frozen=True)
class Usage:
    """Use during a phase."""

    cores: float
    api_server_cores: float
    rss_max_mib: float
    depth_max: float | None
    depth_mean: float | None

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Usage:
        """Summarise the samples of a phase."""
        depths = [row.depth for row in samples if row.depth is not None]
        return cls(
            cores=_cores(samples, lambda row: row.operator),
            api_server_cores=_cores(samples, lambda row: row.api_server),
            rss_max_mib=max((row.operator.rss_bytes for row in samples if row.operator), default=0) / MIB,
            depth_max=max(depths, default=None),
            depth_mean=sum(depths) / len(depths) if depths else None,
        )


def _cores(samples: Sequence[Sample], of: Callable[[Sample], ProcessUse | None]) -> float:
    """Cores used on average. A process that started during the phase counts from its start."""
    used, before = 0.0, of(samples[0]) if samples else None
    for sample in samples[1:]:
        now = of(sample)
        if now is not None:
            used += now.cpu_s - (before.cpu_s if before is not None and before.pid == now.pid else 0.0)
            before = now
    seconds = samples[-1].at - samples[0].at if len(samples) > 1 else 0.0
    return used / seconds if seconds else 0.0


class Sampler:
    """Samples once a second in a thread, and restarts an operator that ended by itself, as a kubelet would."""

    def __init__(self, operator: OperatorProcess, api_server_pid: Callable[[], int | None]) -> None:
        self._operator, self._api_server_pid = operator, api_server_pid
        self._stopped = threading.Event()
        self.supervised = threading.Lock()
        """Held while the benchmark itself stops and starts the operator."""
        self.samples: list[Sample] = []
        self.restarts = 0
        """How often the operator ended by itself."""
        self._thread = threading.Thread(target=self._keep_sampling, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def sample(self) -> Sample:
        """Take a sample now."""
        process, server = self._operator.process, self._api_server_pid()
        sample = Sample(
            time.monotonic(),
            use_of(process.pid) if process else None,
            use_of(server) if server is not None else None,
            queue_depth(self._operator),
        )
        self.samples.append(sample)
        return sample

    def between(self, begin: float, end: float) -> Usage:
        """The use between two times."""
        return Usage.of([row for row in self.samples if begin <= row.at <= end])

    def _keep_sampling(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            with self.supervised:
                if self._operator.process is not None and self._operator.ended is not None:
                    self.restarts += 1
                    self._operator.launch()
            self.sample()


def queue_depth(operator: OperatorProcess) -> float | None:
    """Objects that wait for a worker, and for a look at their store; None if the operator does not serve metrics."""
    try:
        lines = operator.metric("specbench_").splitlines()
    except (URLError, OSError):
        return None
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    return values[QUEUE] + values.get(STORE_LOOKS, 0.0) if QUEUE in values else None
