"""The clients that send one load together: which workers are this client's, one clock, and one worker table.

The workers of all clients are numbered together: worker w belongs to client w mod N. Every client computes the whole
load and runs its own workers' shares. The worker table has a row for each worker of every client; each client sends its
own rows to the others every EXCHANGE_INTERVAL_S. So phases, fillers and the start of a schedule are decided as with
one client, but a change in another client is visible a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from specbench_client.load.client_link import ClientLink, ClockOffset
from specbench_client.load.shared_state import WorkerColumn, WorkerTable

EXCHANGE_INTERVAL_S = 0.02
BEGIN_DELAY_NS = 20_000_000
"""Time from the decision to begin a load to its begin. A worker that is informed later begins late, which is recorded.
"""
BEGIN_DELAY_OF_CLIENTS_NS = 500_000_000
"""The same with several clients, whose main processes are informed first."""
TIME_COLUMNS = (WorkerColumn.STEADY_START_NS, WorkerColumn.IDLE_NS, WorkerColumn.MEASURED_END_NS)


@dataclass
class LoadClients:
    """This client and the others. Without a `link` it is the only one."""

    index: int = 0
    count: int = 1
    link: ClientLink | None = None
    count_done: Callable[[], list[int]] = list
    """Returns what this client has done so far, for `others_done` of client 0."""
    offset: ClockOffset = field(default_factory=ClockOffset)
    _done: dict[int, list[int]] = field(default_factory=dict)

    def own_workers(self, workers: int) -> range:
        """Return the numbers of this client's workers, of a load with this many."""
        return range(self.index, workers, self.count)

    def active(self, workers: int) -> int:
        """Return the number of clients that have a worker, of a load with this many."""
        return min(self.count, workers)

    @property
    def others_done(self) -> list[int]:
        """At client 0: the sums of the other clients' `count_done`; empty before the first."""
        return [sum(each) for each in zip(*self._done.values(), strict=True)]

    async def gather(self, value: Any) -> list[Any]:
        """Return the values (JSON) of all clients when all have called this, in the same order."""
        return [value] if self.link is None else await self.link.gather(value)

    async def collect(self, value: Any) -> list[Any]:
        """Like `gather`, but only client 0 gets the values; the others get []."""
        return [value] if self.link is None else await self.link.gather(value, to_all=False)

    async def align_clocks(self) -> None:
        """Measure the offset of this client's clocks."""
        if self.link is not None:
            self.offset = await self.link.measure_offset()

    async def offset_over_point(self) -> ClockOffset:
        """Measure the offset once more, and return it as used since then, with the error that its change implies."""
        if self.link is None:
            return self.offset
        now = await self.link.measure_offset()
        changed_ns = abs(now.monotonic_ns - self.offset.monotonic_ns)
        return replace(self.offset, error_ns=max(now.error_ns, self.offset.error_ns) + changed_ns)

    def to_common(self, own_ns: int) -> int:
        """Convert a time of this client's monotonic clock to client 0's, the common clock."""
        return own_ns + self.offset.monotonic_ns

    def to_own(self, common_ns: int) -> int:
        """Convert a time of the common clock to this client's monotonic clock."""
        return common_ns - self.offset.monotonic_ns

    async def agree(self, own_ns: int) -> int:
        """Return client 0's `own_ns` on this client's monotonic clock."""
        common_ns: int = (await self.gather(self.to_common(own_ns)))[0]
        return self.to_own(common_ns)

    async def begin_ns(self, clock: Callable[[], int]) -> int:
        """Return when a load begins: a moment after all clients have prepared it."""
        if self.link is None:
            return clock() + BEGIN_DELAY_NS
        await self.gather("ready")
        return await self.agree(clock() + BEGIN_DELAY_OF_CLIENTS_NS)

    def receive_rows(self, worker_table: WorkerTable) -> None:
        """Write the other clients' rows to this table from now on."""
        self._done.clear()
        if self.link is not None:
            self.link.on_rows = lambda client, rows: self._receive(worker_table, client, rows)

    @asynccontextmanager
    async def exchanging(self, worker_table: WorkerTable) -> AsyncIterator[None]:
        """Exchange rows in the block, and wait at its end until every client has the final rows of all."""
        if self.link is None:
            yield
            return
        sending = asyncio.create_task(self._send_on(self.link, worker_table))
        try:
            yield
        finally:
            sending.cancel()
        for step in ("ended", "known"):  # First client 0 gets the final rows of all, then the others get them.
            self.link.send_rows(self._rows(worker_table), last=True)
            await self.gather(step)

    async def _send_on(self, link: ClientLink, worker_table: WorkerTable) -> None:
        sent: dict[str, Any] = {}
        while True:
            await asyncio.sleep(EXCHANGE_INTERVAL_S)
            rows = self._rows(worker_table)
            if rows != sent:
                link.send_rows(rows)
                sent = rows

    def _rows(self, worker_table: WorkerTable) -> dict[str, Any]:
        """Return this client's rows, at client 0 those of all clients, with times of the common clock."""
        numbers = self.own_workers(worker_table.workers) if self.index else range(worker_table.workers)
        rows = [[number, *self._values(worker_table, number)] for number in numbers]
        return {"workers": rows, "done": self.count_done()}

    def _values(self, worker_table: WorkerTable, worker: int) -> Iterator[int]:
        for column in WorkerColumn:
            value = worker_table.get(worker, column)
            yield self.to_common(value) if column in TIME_COLUMNS and value else value

    def _receive(self, worker_table: WorkerTable, client: int, rows: dict[str, Any]) -> None:
        own = self.own_workers(worker_table.workers)
        for worker, *values in rows["workers"]:
            if worker not in own and 0 <= worker < worker_table.workers:
                for column, value in zip(WorkerColumn, values, strict=True):
                    is_time = column in TIME_COLUMNS and value
                    worker_table.put(worker, column, self.to_own(value) if is_time else value)
        self._done[client] = rows["done"]
