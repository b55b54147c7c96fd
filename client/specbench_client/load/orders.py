"""What main process and workers say to each other: frozen dataclasses over a pipe, and nothing else.

    main → worker    Order, then Go when all are ready
    worker → main    Ready, Records as they come, then Ended; or Failed, whenever it is

A closed pipe is the one further word: the worker ends.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from specbench_api.outcome.record import RecordPhase
from specbench_client.load.conversations import Prompt
from specbench_client.load.fillers import Fill
from specbench_client.load.flight import Log
from specbench_client.load.turns import Manner


@dataclass(frozen=True, slots=True)
class ClosedShare:
    """A worker's part of a closed loop. Which conversations are its own, the turnstile says."""

    streams: tuple[int, ...]
    """The numbers of its streams."""
    duration_s: float | None = None
    """No conversation begins later than so long after the load's start."""
    fill: Fill | None = None
    """What holds the load around the measured conversations; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Company:
    """A worker's fillers around the measured conversations of an open loop."""

    fill: Fill
    """Its `streams` are the workers: each numbers its own fillers."""
    worker: int
    lead_ns: array[int]
    """When those before them begin, from the load's start; as many as the load needs to become steady."""
    tail_ns: array[int]
    """When those after them begin, from the last measured beginning of all workers; until all measured have ended."""
    lead_most_ns: int
    """So long after the load's start the measured ones begin at the latest."""


@dataclass(frozen=True, slots=True)
class OpenShare:
    """A worker's part of an open loop. Its times count from the schedule's start, which `company` puts off."""

    conversations: range
    """Their numbers."""
    offsets_ns: array[int]
    """When each begins."""
    last_ns: int
    """When the last one of all workers begins."""
    company: Company | None = None
    """None: nothing holds the load around them."""


@dataclass(frozen=True, slots=True)
class Order:
    """One load. `phase` fixes every record's phase (warm-up); None: ramp, steady and drain as they come."""

    manner: Manner
    prompts: tuple[Prompt, ...]
    share: ClosedShare | OpenShare
    workers: int
    """How many workers it is shared by; the first ones of the crew."""
    phase: RecordPhase | None = None


@dataclass(frozen=True, slots=True)
class Go:
    """The load begins at this moment (monotonic, absolute)."""

    begin_ns: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The order is understood, its first requests are prepared."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order in which they were read. Each is pickled as it comes: a whole batch would be a pause."""

    pickled: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker's part of the load is over, and all its records are sent."""

    log: Log
    lag_p99_ms: float | None
    cpu_share: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker gave up: `kind` is the error's class, `reason` is set where it is an error of the client's tree."""

    kind: str
    reason: str | None
    message: str
    trace: str
