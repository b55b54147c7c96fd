"""One load dealt to its workers: streams or arrivals, evenly and by their number alone."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench_client.load.board import Board
from specbench_client.load.conversations import Prompt
from specbench_client.load.fillers import Fill
from specbench_client.load.orders import ClosedShare, Company, OpenShare
from specbench_client.load.phases import Borders, closed_borders, held_borders, open_borders, schedule_start
from specbench_client.load.schedule import Around, Times, dealt


@dataclass(frozen=True)
class Load:
    """What every worker gets. `conversations`: how many a closed loop may begin, None: endless."""

    shares: tuple[ClosedShare | OpenShare, ...]
    conversations: int | None = None
    times: Times | None = None
    """Open loop: when its conversations begin, from the schedule's start."""
    around: Around | None = None
    """Open loop: when its fillers begin."""
    is_filled: bool = False

    @property
    def workers(self) -> int:
        return len(self.shares)

    @property
    def is_open(self) -> bool:
        return self.times is not None

    @property
    def size(self) -> int | None:
        """Conversations in all; None where only time ends them."""
        return self.conversations if self.times is None else self.times.size

    def filled(self, prompts: Sequence[Prompt]) -> Load:
        """With fillers of these prompts around the conversations, where their number is known."""
        if self.times is not None:
            return self._in_company(prompts, self.times, self.around)
        closed = [share for share in self.shares if isinstance(share, ClosedShare) and share.duration_s is None]
        if self.conversations is None or not closed:
            return self
        fill = Fill(tuple(prompts), sum(len(share.streams) for share in closed), self.conversations)
        return replace(self, shares=tuple(replace(share, fill=fill) for share in closed), is_filled=True)

    def _in_company(self, prompts: Sequence[Prompt], times: Times, around: Around | None) -> Load:
        if around is None:
            return self
        fill = Fill(tuple(prompts), self.workers, times.size)
        shares = (
            replace(share, company=_company(fill, around, worker))
            for worker, share in enumerate(self.shares)
            if isinstance(share, OpenShare)
        )
        return replace(self, shares=tuple(shares), is_filled=True)

    def begins_ns(self, board: Board, begin_ns: int) -> int:
        """When its schedule began, once it is over."""
        if self.around is None or not self.is_filled:
            return begin_ns
        return schedule_start(board, begin_ns, self.around.lead_most_ns)

    def borders(self, board: Board, begin_ns: int) -> Borders:
        """Its steady state, once it is over."""
        if self.times is None:
            return closed_borders(board)
        return held_borders(board) if self.is_filled else open_borders(board, begin_ns + int(self.times[-1]))


def _company(fill: Fill, around: Around, worker: int) -> Company:
    lead, tail = (array("q", times[worker :: fill.streams].tolist()) for times in (around.lead, around.tail))
    return Company(fill, worker, lead, tail, around.lead_most_ns)


def closed_load(streams: int, workers: int, conversations: int | None, duration_s: float | None = None) -> Load:
    """`streams` streams; a worker without one would have nothing to do and is left out."""
    hands = min(workers, streams)
    shares = (ClosedShare(tuple(dealt(streams, hands, worker)), duration_s) for worker in range(hands))
    return Load(tuple(shares), conversations)


def open_load(times: Times, workers: int, around: Around | None = None) -> Load:
    """A conversation at each time; there is at least one. `around`: when fillers may begin, see `Load.filled`."""
    last_ns, hands = int(times[-1]), min(workers, times.size)
    shares = (
        OpenShare(dealt(times.size, hands, worker), array("q", times[worker::hands].tolist()), last_ns)
        for worker in range(hands)
    )
    return Load(tuple(shares), times=times, around=around)
