"""Records on their way from a worker to the main process: in batches, from a thread of their own.

A pipe that is full would stop whoever writes to it, and the main process may be busy with a Parquet part: so a thread
waits for the pipe, without the interpreter's lock, and the event loop only enqueues. A failed request goes at once,
since the main process counts them to know when to give up.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, Self

from specbench_api.outcome.record import Record
from specbench_client.load.orders import Records

BATCH = 64
EVERY_S = 0.25
_values = attrgetter(*(one.name for one in fields(Record)))


def packed(record: Record) -> bytes:
    """A record as bytes: its values alone, since pickling a dataclass looks up its fields anew each time."""
    return pickle.dumps(_values(record), pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Record:
    """The record of these bytes, which come from a process of our own."""
    return Record(*pickle.loads(data))  # noqa: S301


class Pipe(Protocol):
    """The writing end of a multiprocessing connection."""

    def send_bytes(self, buf: bytes, /) -> None: ...


class Sender:
    """Sends messages in their order, in the background. What cannot be sent any more, nobody waits for."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._send_on, name="sender", daemon=True).start()

    def send(self, message: object) -> None:
        """Have it sent."""
        self._messages.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _send_on(self) -> None:
        with suppress(OSError):  # the main process is gone, and the worker ends with it
            while True:
                self._pipe.send_bytes(self._messages.get())


class Outbox:
    """`async with Outbox(send) as outbox`, then `add`. Whatever is left goes out at the end."""

    def __init__(self, send: Callable[[Records], None]) -> None:
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
        """Take a record."""
        self._batch.append(packed(record))
        if len(self._batch) >= BATCH or record.error_class is not None:
            self.flush()

    def flush(self) -> None:
        """Send what is there."""
        if self._batch:
            self._send(Records(tuple(self._batch)))
            self._batch.clear()

    async def _flush_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.flush()
