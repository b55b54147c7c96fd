"""Divides a load among its workers: streams or arrivals, round-robin by index."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench_client.load.arrivals import FillerArrivals, ScheduledTimes, share_of
from specbench_client.load.conversations import FillerPlan
from specbench_client.load.shared_state import WorkerTable
from specbench_client.load.steady_state import (
    ClosedLoopPhases,
    OpenLoopPhases,
    SteadyBounds,
    closed_loop_bounds,
    filled_loop_bounds,
    open_loop_bounds,
    schedule_start,
)
from specbench_client.workload.row_parsing import Prompt


@dataclass(frozen=True, slots=True)
class ClosedLoopShare:
    """A worker's share of a closed loop. Its conversations are drawn from the shared `ConversationCounter`."""

    streams: tuple[int, ...]
    """The numbers of its streams."""
    duration_s: float | None = None
    """No conversation begins later than this after the load's start; None: no limit."""
    fill: FillerPlan | None = None
    """Fillers around the measured conversations; None: none."""

    def phases(self, worker_table: WorkerTable, worker: int) -> ClosedLoopPhases:
        """Return the tracker of a worker with this share."""
        return ClosedLoopPhases(worker_table, worker, self.fill.measured if self.fill else None, len(self.streams))


@dataclass(frozen=True, slots=True)
class FillerShare:
    """A worker's fillers around the measured conversations of an open loop."""

    fill: FillerPlan
    """Its `streams` is the number of workers: each worker numbers its own fillers."""
    worker: int
    lead_ns: array[int]
    """Arrivals before the measured conversations, from the load's start; sent until the load is steady."""
    tail_ns: array[int]
    """Arrivals after the last measured arrival of all workers; sent until all measured conversations have ended."""
    lead_most_ns: int
    """The measured conversations begin this long after the load's start at the latest."""


@dataclass(frozen=True, slots=True)
class OpenLoopShare:
    """A worker's share of an open loop. Times count from the schedule's start, which follows the lead fillers."""

    conversations: range
    """Indices of its conversations."""
    offsets_ns: array[int]
    """When each conversation begins."""
    last_ns: int
    """When the last conversation of all workers begins."""
    fillers: FillerShare | None = None
    """Fillers around the measured conversations; None: none."""
    slots: int | None = None
    """Its share of the conversations that may be in flight; None: no limit."""

    def phases(self, worker_table: WorkerTable, worker: int) -> OpenLoopPhases:
        """Return the tracker of a worker with this share."""
        return OpenLoopPhases(worker_table, worker, self.fillers.fill.measured if self.fillers else None, self.last_ns)


@dataclass(frozen=True)
class WorkerLoad:
    """A load and its shares. `conversations`: how many a closed loop may begin; None: no limit."""

    shares: tuple[ClosedLoopShare | OpenLoopShare, ...]
    conversations: int | None = None
    times: ScheduledTimes | None = None
    """Open loop: when conversations begin, from the schedule's start (ns)."""
    around: FillerArrivals | None = None
    """Open loop: when fillers begin."""
    measured: int | None = None
    """Number of measured conversations of a load with fillers; None without fillers."""

    @property
    def workers(self) -> int:
        return len(self.shares)

    @property
    def streams(self) -> int:
        """Number of streams of a closed loop, over all workers; 0 for an open loop."""
        return sum(len(share.streams) for share in self.shares if isinstance(share, ClosedLoopShare))

    @property
    def is_open(self) -> bool:
        return self.times is not None

    @property
    def has_slots(self) -> bool:
        """Whether the number of conversations in flight of an open loop is limited."""
        return any(isinstance(share, OpenLoopShare) and share.slots is not None for share in self.shares)

    @property
    def size(self) -> int | None:
        """Number of conversations; None if only the duration limits them."""
        return self.conversations if self.times is None else self.times.size

    def filled(self, prompts: Sequence[Prompt]) -> WorkerLoad:
        """Return the load with fillers made of these prompts, if its number of conversations is known."""
        if self.times is not None:
            return self._with_filler_shares(prompts, self.times, self.around)
        closed = [share for share in self.shares if isinstance(share, ClosedLoopShare) and share.duration_s is None]
        if self.conversations is None or not closed:
            return self
        fill = FillerPlan(tuple(prompts), self.streams, self.conversations)
        return replace(self, shares=tuple(replace(share, fill=fill) for share in closed), measured=fill.measured)

    def _with_filler_shares(
        self, prompts: Sequence[Prompt], times: ScheduledTimes, around: FillerArrivals | None
    ) -> WorkerLoad:
        if around is None:
            return self
        fill = FillerPlan(tuple(prompts), self.workers, times.size)
        shares = (
            replace(share, fillers=_filler_share(fill, around, worker))
            for worker, share in enumerate(self.shares)
            if isinstance(share, OpenLoopShare)
        )
        return replace(self, shares=tuple(shares), measured=fill.measured)

    def begins_ns(self, worker_table: WorkerTable, begin_ns: int) -> int:
        """Return when the schedule began, after the load has ended."""
        if self.around is None or self.measured is None:
            return begin_ns
        return schedule_start(worker_table, begin_ns, self.around.lead_most_ns)

    def steady_bounds(self, worker_table: WorkerTable, begin_ns: int) -> SteadyBounds:
        """Return the bounds of the steady state, after the load has ended."""
        if self.times is None:
            return closed_loop_bounds(worker_table, self.measured)
        if self.measured is None:
            return open_loop_bounds(worker_table, begin_ns + int(self.times[-1]))
        return filled_loop_bounds(worker_table, self.measured)


def _filler_share(fill: FillerPlan, around: FillerArrivals, worker: int) -> FillerShare:
    lead, tail = (array("q", times[worker :: fill.streams].tolist()) for times in (around.lead, around.tail))
    return FillerShare(fill, worker, lead, tail, around.lead_most_ns)


def closed_loop_load(
    streams: int, workers: int, conversations: int | None, duration_s: float | None = None
) -> WorkerLoad:
    """Divide `streams` streams; workers without a stream are left out."""
    used_workers = min(workers, streams)
    shares = (
        ClosedLoopShare(tuple(share_of(streams, used_workers, worker)), duration_s) for worker in range(used_workers)
    )
    return WorkerLoad(tuple(shares), conversations)


def open_loop_load(
    times: ScheduledTimes, workers: int, around: FillerArrivals | None = None, slots: int | None = None
) -> WorkerLoad:
    """Divide conversations with these arrival times, at least one. `around`: arrivals of fillers.

    `slots`: conversations that may be in flight, which are divided as well; None: no limit.
    """
    last_ns, used_workers = int(times[-1]), min(workers, times.size, slots or workers)
    shares = (
        OpenLoopShare(
            share_of(times.size, used_workers, worker),
            array("q", times[worker::used_workers].tolist()),
            last_ns,
            slots=None if slots is None else len(share_of(slots, used_workers, worker)),
        )
        for worker in range(used_workers)
    )
    return WorkerLoad(tuple(shares), times=times, around=around)
