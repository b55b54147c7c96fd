"""Messages between the main process and its workers: frozen dataclasses over a pipe.

    main → worker    PrepareLoad; BeginLoad when all workers are ready
    worker → main    WorkerReady; RecordBatch repeatedly; WorkerDone; or WorkerFailed at any time

A worker exits when its pipe is closed.

Records are sent in batches by a thread: writing to a full pipe blocks, and the main process may be busy with a Parquet
part. The thread waits without holding the interpreter's lock, and the event loop only enqueues. A failed request is
sent at once, because the main process counts failures to decide whether to give up.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, Self

from specbench_client.documents.record import Record, RecordPhase
from specbench_client.load.in_flight import LoadTimestamps
from specbench_client.load.load_shares import ClosedLoopShare, OpenLoopShare
from specbench_client.load.turns import RequestConfig
from specbench_client.workload.row_parsing import Prompt


@dataclass(frozen=True, slots=True)
class PrepareLoad:
    """One load to prepare. `phase`: the phase of all records (warm-up); None: ramp, steady or drain, as measured."""

    request_config: RequestConfig
    prompts: tuple[Prompt, ...]
    share: ClosedLoopShare | OpenLoopShare
    worker: int
    """Number of the worker, over all clients."""
    workers: int
    """Number of workers of this load, over all clients."""
    workers_here: int
    """Number of workers of this load in this client, which are the first ones of its pool."""
    phase: RecordPhase | None = None


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """The load begins at this time (monotonic, absolute)."""

    begin_ns: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The load is prepared, with its first requests."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in the order of parsing, each pickled on its own: pickling a whole batch would block the event loop."""

    pickled: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WorkerDone:
    """The worker's share of the load is over, and all its records are sent."""

    log: LoadTimestamps
    lag_p99_ms: float | None
    lag_max_ms: float | None
    cpu_share: float | None


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker raised an error. `kind`: the class of the error; `reason`: set for a ClientError."""

    kind: str
    reason: str | None
    message: str
    trace: str


BATCH_RECORDS = 64
FLUSH_INTERVAL_S = 0.25
_record_values = attrgetter(*(one.name for one in fields(Record)))


def pickle_record(record: Record) -> bytes:
    """Pickle a record's values only: pickling a dataclass looks up its fields each time."""
    return pickle.dumps(_record_values(record), pickle.HIGHEST_PROTOCOL)


def unpickle_record(data: bytes) -> Record:
    """Return the record of these bytes, which must come from a worker process."""
    return Record(*pickle.loads(data))  # noqa: S301


class WritablePipe(Protocol):
    """The writing end of a multiprocessing connection."""

    def send_bytes(self, buf: bytes, /) -> None: ...


class PipeSender:
    """Sends messages in order from a background thread. Messages that cannot be sent any more are dropped."""

    def __init__(self, pipe: WritablePipe) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._send_on, name="sender", daemon=True).start()

    def send(self, message: object) -> None:
        """Enqueue a message."""
        self._messages.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _send_on(self) -> None:
        with suppress(OSError):  # The main process is gone, and this worker exits too.
            while True:
                self._pipe.send_bytes(self._messages.get())


class RecordSender:
    """`async with RecordSender(send) as sender`, then `add`. Remaining records are sent at the end."""

    def __init__(self, send: Callable[[RecordBatch], None]) -> None:
        self._send = send
        self._batch: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._flushing = asyncio.create_task(self._flush_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        self.flush()

    def add(self, record: Record) -> None:
        """Add a record; sends the batch if it is full or the record failed."""
        self._batch.append(pickle_record(record))
        if len(self._batch) >= BATCH_RECORDS or record.error_class is not None:
            self.flush()

    def flush(self) -> None:
        """Send the current batch, if there is one."""
        if self._batch:
            self._send(RecordBatch(tuple(self._batch)))
            self._batch.clear()

    async def _flush_on(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            self.flush()
