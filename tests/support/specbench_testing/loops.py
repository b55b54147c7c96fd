"""The loops of one worker in the test's own process, with the board and the turnstile that workers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.load.alarm import Alarm
from specbench_client.load.board import Board, Shared, shared_memory
from specbench_client.load.closed_loop import ClosedLoop
from specbench_client.load.conversations import Prompt
from specbench_client.load.fillers import Fill
from specbench_client.load.flight import Flight, Flown
from specbench_client.load.open_loop import OpenLoop
from specbench_client.load.phases import ClosedPhases, OpenPhases, closed_borders, open_borders
from specbench_client.load.reader import Reader
from specbench_client.load.talk import Asking, Talk, openings
from specbench_client.load.tray import AHEAD, Tray
from specbench_client.workload.chat_template.applied import AppliedTemplate


def shared(workers: int = 1) -> Shared:
    """As a crew has it."""
    return shared_memory(get_context("spawn"), workers)


@dataclass
class Driver:
    """Drives loads with what is given. `records` and `flown` are those of the last one, also of one that failed."""

    asking: Asking
    clock: Callable[[], int] = time.monotonic_ns
    phase: RecordPhase | None = None
    shared: Shared = field(default_factory=shared)
    template: AppliedTemplate | None = None
    records: list[Record] = field(default_factory=list)
    flown: Flown | None = None

    @property
    def board(self) -> Board:
        return self.shared.board(1)

    async def closed(
        self,
        prompts: Sequence[Prompt],
        streams: int,
        count: int | None = None,
        duration_s: float | None = None,
        *,
        filled: bool = False,
    ) -> Flown:
        """One worker's closed loop over `count` conversations (None: each prompt once)."""
        self.board.wipe()
        wanted = len(prompts) if count is None else count
        self.shared.turnstile.open(wanted)
        begin_ns = self.clock()
        flight = Flight(ClosedPhases(self.board, 0, streams))
        async with Reader() as reader:
            talk = Talk(self.asking, reader, flight, self.records.append, self.phase, self.clock, self.template)
            tray = Tray(openings(self.asking, prompts, self.shared.turnstile), AHEAD)
            fill = Fill(tuple(prompts), streams, wanted) if filled else None
            loop = ClosedLoop(range(streams), talk, tray, flight.phases, duration_s, fill)
            await loop.run(begin_ns)
            await reader.drained()
        self.flown = Flown([flight.log], begin_ns, closed_borders(self.board))
        return self.flown

    async def open(self, prompts: Sequence[Prompt], offsets_ns: Sequence[int]) -> Flown:
        """One worker's open loop: a conversation at each time."""
        self.board.wipe()
        flight = Flight(OpenPhases(self.board, 0, offsets_ns[-1]))
        async with Reader() as reader, Alarm() as alarm:
            talk = Talk(self.asking, reader, flight, self.records.append, self.phase, self.clock, self.template)
            tray = Tray(openings(self.asking, prompts, range(len(offsets_ns))), AHEAD)
            begin_ns = self.clock()
            await OpenLoop(offsets_ns, talk, tray, flight.phases, alarm).run(begin_ns)
            await reader.drained()
        self.flown = Flown([flight.log], begin_ns, open_borders(self.board, begin_ns + offsets_ns[-1]))
        return self.flown
