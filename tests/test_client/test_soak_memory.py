"""Memory of the client during a soak test: windows are stored when they end, and not kept."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pytest

from specbench_client.documents.record import Record
from specbench_client.drive import group
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions, SystemClock
from specbench_client.load.client_monitor import WorkerDone
from specbench_client.load.steady_state import LoadTimeline, LoadTimestamps, SteadyBounds, timestamp_array
from specbench_client.load.turns import RequestConfig
from specbench_client.load.worker_pool import FinishedLoad, RecordsCallback
from specbench_client.store.folder import FolderStore
from specbench_testing.simulated_groups import plan_of, simulator, write_prompts
from specbench_testing.synthetic_records import record

pytestmark = pytest.mark.process
WINDOW_S, WINDOWS = 3600, 12  # twelve hours
REQUESTS = 100
NS_PER_S = 10**9
WARM_WINDOWS = 4
"""Windows after which modules are imported and caches are full."""


class VirtualPool:
    """Stands in for the worker processes: the records of each window are there at once, and its time has passed."""

    now_ns = 0

    def __init__(self, *_: object) -> None:
        self.used_bytes: list[int] = []
        self.window_bytes = 0
        """Size of one window's records in memory."""
        self._repeat = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def prepare(self, _load: object, config: RequestConfig, *_: object) -> None:
        """Remember which window it is, at whose beginning nothing of the earlier ones should be left."""
        self._repeat = config.repeat
        gc.collect()
        self.used_bytes.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())

    async def run(self, _load: object, take: RecordsCallback) -> FinishedLoad:
        before = tracemalloc.get_traced_memory()[0]
        records = [self._record(number) for number in range(REQUESTS)]
        self.window_bytes = tracemalloc.get_traced_memory()[0] - before
        await take(records)
        begin_ns, end_ns = self.now_ns, self.now_ns + WINDOW_S * NS_PER_S
        VirtualPool.now_ns = end_ns
        log = LoadTimestamps(timestamp_array([begin_ns]), timestamp_array([end_ns]), timestamp_array([begin_ns]))
        bounds = SteadyBounds(begin_ns, end_ns)
        return FinishedLoad([WorkerDone(log, 0.1, 0.1, 0.1)], LoadTimeline([log], begin_ns, bounds))

    def _record(self, number: int) -> Record:
        simple = record()
        shift_ns = number * WINDOW_S * NS_PER_S // REQUESTS
        name = f"{self._repeat}-{number}"
        times = ("intended_ns", "connect_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
        changes: dict[str, Any] = {time: getattr(simple, time) + shift_ns for time in times}
        changes["chunk_ns"] = [each + shift_ns for each in simple.chunk_ns or ()]
        changes |= {"request_id": name, "conversation_id": name, "repeat": self._repeat, "judged": False}
        return replace(simple, prompt_id=f"q{number % 6}", **changes)


async def test_memory_does_not_grow_with_the_number_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[VirtualPool] = []

    def pool(*_: object) -> VirtualPool:
        pools.append(VirtualPool())
        return pools[-1]

    monkeypatch.setattr(group, "WorkerPool", pool)
    load = {"concurrency": [1], "order": "Soak", "durationSeconds": WINDOW_S, "repeats": WINDOWS, "warmupRequests": 0}
    edits = {"spec.load": {**load, "stop": "WhenDecayed"}, "spec.activeDeadlineSeconds": 86400}
    plan = plan_of(write_prompts(tmp_path / "p.jsonl"), edits)
    clock = SystemClock(monotonic_ns=lambda: VirtualPool.now_ns)
    options = DriveOptions(attempt="1-a", clock=clock)
    async with simulator(tmp_path / "truth.jsonl") as engine:
        tracemalloc.start()
        try:
            store = FolderStore(tmp_path / "results")
            result = await drive_group(plan, plan.groups[0], engine.url, store, options)
        finally:
            tracemalloc.stop()
    (used,) = pools
    assert len(result.measured) == len(used.used_bytes) == WINDOWS
    growth = used.used_bytes[-1] - used.used_bytes[WARM_WINDOWS]
    assert growth < used.window_bytes, "less than the records of one window"
