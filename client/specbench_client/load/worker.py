"""A worker: one process with one event loop, that drives its share of the load and does nothing else.

It obeys one order after the other: says when it is ready, begins at the moment that it is told, sends its records and
then its end. It ends when its pipe is closed, so also when the main process was killed, and at once: what it holds is
sockets, and they go with it. It imports neither pandas nor pyarrow nor S3.
"""

from __future__ import annotations

import asyncio
import gc
import os
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from specbench_client.dialects.table import dialect_of
from specbench_client.errors import ClientError
from specbench_client.load.alarm import Alarm
from specbench_client.load.board import Shared
from specbench_client.load.closed_loop import ClosedLoop
from specbench_client.load.flight import Flight
from specbench_client.load.open_loop import Companions, OpenLoop
from specbench_client.load.orders import ClosedShare, Ended, Failed, Go, OpenShare, Order, Ready
from specbench_client.load.outbox import Outbox, Sender
from specbench_client.load.phases import ClosedPhases, OpenPhases
from specbench_client.load.reader import LIMIT, Reader
from specbench_client.load.talk import Asker, Talk, openings
from specbench_client.load.tray import AHEAD, Tray, ahead_together
from specbench_client.load.turns import TurnContext
from specbench_client.load.watch import SelfWatcher
from specbench_client.transport.choose import transport_to
from specbench_client.transport.sockets import lend_all

GARBAGE = 200_000
"""Containers that may pile up before a collection looks at them: at the usual 700, a third of the time of reading
answers was spent looking (their parts are freed by their counts; cycles are what failed requests leave)."""


def work(number: int, pipe: Connection[Any, Any], shared: Shared) -> None:
    """Be the crew's worker of this number until the pipe is closed; the process's main function."""
    gc.set_threshold(GARBAGE, 20, 20)
    lend_all()
    asyncio.run(_serve(number, pipe, shared))


async def _serve(number: int, pipe: Connection[Any, Any], shared: Shared) -> None:
    inbox = asyncio.Queue[Any]()

    def receive() -> None:
        try:
            inbox.put_nowait(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)

    asyncio.get_running_loop().add_reader(pipe.fileno(), receive)
    await _Worker(number, shared, inbox, Sender(pipe)).serve()


@dataclass(frozen=True)
class _Worker:
    number: int
    shared: Shared
    inbox: asyncio.Queue[Any]
    sender: Sender

    async def serve(self) -> None:
        """Obey until cancelled. An order that fails is told; what comes next is the main process's choice."""
        while True:
            order = await self.inbox.get()
            try:
                await self._obey(order)
            except Exception as error:  # noqa: BLE001 -- told to the main process, which raises it there
                self.sender.send(_failed(error))

    async def _obey(self, order: Order) -> None:
        async with (
            transport_to(order.manner.endpoint) as transport,
            Alarm() as alarm,
            Outbox(self.sender.send) as outbox,
            Reader(_unread_most(order)) as reader,
        ):
            context = TurnContext(transport, dialect_of(order.manner.engine), order.manner)
            asking, flight = Asker(context), Flight(self._phases(order))
            talk = Talk(asking, reader, flight, outbox.add, order.phase, template=order.manner.template)
            loop = self._loop(order, talk, alarm)
            gc.unfreeze()
            gc.collect()
            gc.freeze()  # what is laid out now stays to the end: no collection walks over it in mid-measurement
            self.sender.send(Ready())
            go: Go = await self.inbox.get()
            await alarm.until(go.begin_ns)
            async with SelfWatcher() as watcher:
                await loop.run(go.begin_ns)
                await reader.drained()
        self.sender.send(Ended(flight.log, watcher.lag_p99_ms, watcher.cpu_share))

    def _phases(self, order: Order) -> ClosedPhases | OpenPhases:
        board, share = self.shared.board(order.workers), order.share
        if isinstance(share, OpenShare):
            return OpenPhases(board, self.number, share.last_ns, held=share.company is not None)
        return ClosedPhases(board, self.number, len(share.streams))

    def _loop(self, order: Order, talk: Talk, alarm: Alarm) -> ClosedLoop | OpenLoop:
        """The loop, with its first conversations laid out."""
        share, phases = order.share, talk.flight.phases
        if isinstance(share, OpenShare):
            tray = Tray(openings(talk.asking, order.prompts, share.conversations), AHEAD)
            tray.fill(AHEAD)
            return OpenLoop(share.offsets_ns, talk, tray, phases, alarm, self._companions(order, share, talk, alarm))
        ahead = AHEAD if order.workers == 1 else ahead_together(len(share.streams))
        tray = Tray(openings(talk.asking, order.prompts, self.shared.turnstile), ahead)
        tray.fill(len(share.streams))
        return ClosedLoop(share.streams, talk, tray, phases, share.duration_s, share.fill)

    def _companions(self, order: Order, share: OpenShare, talk: Talk, alarm: Alarm) -> Companions | None:
        if share.company is None:
            return None
        return Companions(share.company, talk, self.shared.board(order.workers), alarm, share.last_ns)


def _unread_most(order: Order) -> int:
    """Streams that end with one and the same step must not wait for each other's parsing to send on."""
    return max(LIMIT, len(order.share.streams)) if isinstance(order.share, ClosedShare) else LIMIT


def _failed(error: Exception) -> Failed:
    reason = error.reason if isinstance(error, ClientError) else None
    return Failed(type(error).__name__, reason, str(error), "".join(traceback.format_exception(error)))
