"""The closed loop: C streams, each sends its next request when its last exchange has ended.

A stream takes the next conversation, whichever it is, so conversations begin in their order by whoever is free. A
request is intended for the moment at which its stream was free, so that what the client itself wastes between two
requests counts as latency. A stream that finds no connection pauses: an engine that is gone is not hammered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from specbench_api.outcome.record import RecordPhase
from specbench_client.load.fillers import Fill, filler
from specbench_client.load.flight import NS_PER_S
from specbench_client.load.phases import Phases
from specbench_client.load.talk import Seat, Talk
from specbench_client.load.tasks import first_failure
from specbench_client.load.tray import Opening, Tray

REFUSED_PAUSE_S = 0.1


@dataclass(frozen=True)
class ClosedLoop:
    """One worker's streams. `duration_s`: no conversation begins later than that; None: until there are none.

    `fill`: what holds the load around the measured conversations.
    """

    streams: Sequence[int]
    talk: Talk
    tray: Tray
    phases: Phases
    duration_s: float | None = None
    fill: Fill | None = None

    async def run(self, begin_ns: int) -> None:
        """Drive all streams to their end. Cancelling it abandons the open requests, which leave no record."""
        self.phases.started(begin_ns)
        end_ns = None if self.duration_s is None else begin_ns + int(self.duration_s * NS_PER_S)
        async with first_failure(), asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(self.tray.keep_filled())
            async with asyncio.TaskGroup() as streams:
                for number in self.streams:
                    streams.create_task(self._stream(number, begin_ns, end_ns))
            filling.cancel()

    async def _stream(self, number: int, begin_ns: int, end_ns: int | None) -> None:
        """Work until there are no more conversations."""
        clock = self.talk.clock
        free_ns, began = begin_ns, True
        if self.fill is not None:
            first = Seat(number, free_ns, began=True, phase=RecordPhase.RAMP)
            free_ns, began = await self._filler(self.fill, first, 0), False
        while end_ns is None or clock() < end_ns:
            opening = self.tray.take()
            if opening is None:
                break
            free_ns, began = await self._hold(opening, Seat(number, free_ns, began=began)), False
            if self.fill is not None:
                self.phases.measured(free_ns, self.fill.measured)
        if self.fill is not None:
            await self._fill_on(self.fill, number, free_ns)
        self.phases.ran_dry(clock())

    async def _fill_on(self, fill: Fill, number: int, free_ns: int) -> None:
        """Hold the load until the last measured conversation of any worker has ended."""
        for lap in count(1):
            if self.phases.all_measured(fill.measured):
                return
            free_ns = await self._filler(fill, Seat(number, free_ns, phase=RecordPhase.DRAIN), lap)

    async def _filler(self, fill: Fill, seat: Seat, lap: int) -> int:
        return await self._hold(await self.talk.opening(filler(fill, seat.stream, lap)), seat)

    async def _hold(self, opening: Opening, seat: Seat) -> int:
        """When the stream is free again."""
        parting = await self.talk.hold(opening, seat)
        if not parting.refused:
            return parting.ended_ns
        await asyncio.sleep(REFUSED_PAUSE_S)
        return self.talk.clock()
