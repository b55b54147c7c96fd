"""The open loop: conversations begin when the schedule says so, whatever the others do.

So a slow engine is not spared: requests that it would have had to serve do not wait for it to be ready, and their
latency counts from the moment at which they were to be sent, also where the client itself was late. The later turns of
a conversation are intended at the end of the answer before: a user does not ask on before he has read.

Fillers arrive before and after the measured conversations, by the same process (see `fillers`): the schedule starts
when the load is steady, and the load is held until the last measured conversation has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from specbench_api.outcome.record import RecordPhase
from specbench_client.load.alarm import Alarm
from specbench_client.load.board import Board
from specbench_client.load.fillers import filler
from specbench_client.load.orders import Company
from specbench_client.load.phases import NOTICE_NS, Phases, schedule_start
from specbench_client.load.talk import Seat, Talk
from specbench_client.load.tasks import first_failure
from specbench_client.load.tray import Opening, Tray

LOOK_NS = 20_000_000
"""How often it is looked whether another worker's requests have made the load steady, or were the last ones."""


@dataclass(frozen=True)
class Companions:
    """One worker's fillers."""

    company: Company
    talk: Talk
    board: Board
    alarm: Alarm
    last_ns: int
    """When the last measured conversation of all workers begins, from the schedule's start."""
    _numbers: count[int] = field(default_factory=count)

    async def lead(self, begin_ns: int, conversations: asyncio.TaskGroup) -> int:
        """Send until the load is steady; when the schedule starts."""
        for offset_ns in self.company.lead_ns:
            due_ns = begin_ns + offset_ns
            while (start_ns := self._start_ns(begin_ns)) > due_ns and not await self._look_until(due_ns):
                pass
            if start_ns <= due_ns:
                break
            conversations.create_task(self._fill(due_ns, RecordPhase.RAMP))
        while (agreed_ns := self._start_ns(begin_ns) - NOTICE_NS // 2) > self.talk.clock():
            await self._look_until(agreed_ns)
        return self._start_ns(begin_ns)

    async def tail(self, start_ns: int, conversations: asyncio.TaskGroup) -> None:
        """Send until the last measured conversation of any worker has ended."""
        for offset_ns in self.company.tail_ns:
            due_ns = start_ns + self.last_ns + offset_ns
            while not self._over() and not await self._look_until(due_ns):
                pass
            if self._over():
                return
            conversations.create_task(self._fill(due_ns, RecordPhase.DRAIN))

    def _start_ns(self, begin_ns: int) -> int:
        return schedule_start(self.board, begin_ns, self.company.lead_most_ns)

    def _over(self) -> bool:
        return self.talk.flight.phases.all_measured(self.company.fill.measured)

    async def _look_until(self, due_ns: int) -> bool:
        """Wait for the moment, or a little; whether it has come."""
        await self.alarm.until(min(due_ns, self.talk.clock() + LOOK_NS))
        return self.talk.clock() >= due_ns

    async def _fill(self, due_ns: int, phase: RecordPhase) -> None:
        conversation = filler(self.company.fill, self.company.worker, next(self._numbers))
        seat = Seat(conversation.index, due_ns, phase=phase)
        await self.talk.hold(await self.talk.opening(conversation), seat)


@dataclass(frozen=True)
class OpenLoop:
    """One worker's conversations. `offsets_ns`: when each is intended, from the begin; the tray has their order."""

    offsets_ns: Sequence[int]
    talk: Talk
    tray: Tray
    phases: Phases
    alarm: Alarm
    companions: Companions | None = None

    async def run(self, begin_ns: int) -> None:
        """Begin all in time and see all to their end. Cancelling it abandons the open requests."""
        self.phases.started(begin_ns)
        async with first_failure(), asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(self.tray.keep_filled())
            async with asyncio.TaskGroup() as conversations:
                start_ns = await self.companions.lead(begin_ns, conversations) if self.companions else begin_ns
                for offset_ns in self.offsets_ns:
                    intended_ns = start_ns + offset_ns
                    await self.alarm.until(intended_ns)
                    opening = self.tray.take()
                    assert opening is not None, "there is a conversation for each time"
                    conversations.create_task(self._hold(opening, intended_ns))
                if self.companions:
                    await self.companions.tail(start_ns, conversations)
            filling.cancel()

    async def _hold(self, opening: Opening, intended_ns: int) -> None:
        parting = await self.talk.hold(opening, Seat(opening.conversation.index, intended_ns))
        if self.companions:
            self.phases.measured(parting.ended_ns, self.companions.company.fill.measured)
