"""The client's one worker in virtual time: the same loops, put together as `load.worker` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.load.alarm import Alarm
from specbench_client.load.board import ENDLESS, Board, Shared, shared_memory
from specbench_client.load.closed_loop import ClosedLoop
from specbench_client.load.conversations import Prompt
from specbench_client.load.flight import Flight, Flown
from specbench_client.load.open_loop import Companions, OpenLoop
from specbench_client.load.orders import ClosedShare, OpenShare
from specbench_client.load.phases import ClosedPhases, OpenPhases
from specbench_client.load.reader import LIMIT, Reader
from specbench_client.load.shares import Load
from specbench_client.load.talk import Asking, Talk, openings
from specbench_client.load.tray import AHEAD, Tray
from virtual_time.clock import NS_PER_S, VirtualClock


class VirtualAlarm(Alarm):
    """Wakes at the very moment."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def until(self, ns: int) -> None:
        await asyncio.sleep(max(0, ns - self._clock()) / NS_PER_S)


def _shared() -> Shared:
    return shared_memory(get_context("spawn"), 1)


@dataclass
class Hand:
    """Drives one load after the other. `asking`: how a turn is asked."""

    clock: VirtualClock
    shared: Shared = field(default_factory=_shared)

    @property
    def board(self) -> Board:
        return self.shared.board(1)

    def no_more_conversations(self) -> None:
        """A closed loop begins none, and ends with those that are open."""
        self.shared.turnstile.close()

    async def work(
        self,
        load: Load,
        asking: Asking,
        prompts: Sequence[Prompt],
        phase: RecordPhase | None,
        on_record: Callable[[Record], None],
    ) -> Flown:
        """See it to its end."""
        self.board.wipe()
        self.shared.turnstile.open(ENDLESS if load.conversations is None else load.conversations)
        (share,) = load.shares
        flight = Flight(self._phases(share))
        most = max(LIMIT, len(share.streams)) if isinstance(share, ClosedShare) else LIMIT
        async with Reader(most) as reader:
            talk = Talk(asking, reader, flight, on_record, phase, self.clock)
            begin_ns = self.clock()
            await self._loop(share, talk, prompts).run(begin_ns)
            await reader.drained()
        borders, begins_ns = load.borders(self.board, begin_ns), load.begins_ns(self.board, begin_ns)
        return Flown([flight.log], begin_ns, borders, begins_ns)

    def _phases(self, share: ClosedShare | OpenShare) -> ClosedPhases | OpenPhases:
        if isinstance(share, OpenShare):
            return OpenPhases(self.board, 0, share.last_ns, held=share.company is not None)
        return ClosedPhases(self.board, 0, len(share.streams))

    def _loop(self, share: ClosedShare | OpenShare, talk: Talk, prompts: Sequence[Prompt]) -> ClosedLoop | OpenLoop:
        phases = talk.flight.phases
        if isinstance(share, ClosedShare):
            tray = Tray(openings(talk.asking, prompts, self.shared.turnstile), AHEAD)
            return ClosedLoop(share.streams, talk, tray, phases, share.duration_s, share.fill)
        tray, alarm = Tray(openings(talk.asking, prompts, share.conversations), AHEAD), VirtualAlarm(self.clock)
        return OpenLoop(share.offsets_ns, talk, tray, phases, alarm, self._companions(share, talk))

    def _companions(self, share: OpenShare, talk: Talk) -> Companions | None:
        if share.company is None:
            return None
        return Companions(share.company, talk, self.board, VirtualAlarm(self.clock), share.last_ns)
