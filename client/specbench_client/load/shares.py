"""One load dealt to its workers: streams or arrivals, evenly and by their number alone."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench_client.load.board import Board
from specbench_client.load.conversations import Prompt
from specbench_client.load.fillers import Fill
from specbench_client.load.orders import ClosedShare, OpenShare
from specbench_client.load.phases import Borders, closed_borders, open_borders
from specbench_client.load.schedule import Times, dealt


@dataclass(frozen=True)
class Load:
    """What every worker gets. `conversations`: how many a closed loop may begin, None: endless."""

    shares: tuple[ClosedShare | OpenShare, ...]
    conversations: int | None = None
    times: Times | None = None
    """Open loop: when its conversations begin, from the load's start."""

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
        """With fillers of these prompts around a number of conversations; an open loop or a duration has none."""
        closed = [share for share in self.shares if isinstance(share, ClosedShare) and share.duration_s is None]
        if self.conversations is None or not closed:
            return self
        fill = Fill(tuple(prompts), sum(len(share.streams) for share in closed), self.conversations)
        return replace(self, shares=tuple(replace(share, fill=fill) for share in closed))

    def borders(self, board: Board, begin_ns: int) -> Borders:
        """Its steady state, once it is over."""
        return closed_borders(board) if self.times is None else open_borders(board, begin_ns + int(self.times[-1]))


def closed_load(streams: int, workers: int, conversations: int | None, duration_s: float | None = None) -> Load:
    """`streams` streams; a worker without one would have nothing to do and is left out."""
    hands = min(workers, streams)
    shares = (ClosedShare(tuple(dealt(streams, hands, worker)), duration_s) for worker in range(hands))
    return Load(tuple(shares), conversations)


def open_load(times: Times, workers: int) -> Load:
    """A conversation at each time; there is at least one."""
    last_ns, hands = int(times[-1]), min(workers, times.size)
    shares = (
        OpenShare(dealt(times.size, hands, worker), array("q", times[worker::hands].tolist()), last_ns)
        for worker in range(hands)
    )
    return Load(tuple(shares), times=times)
