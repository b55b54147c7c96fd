"""When conversations begin in an open loop: absolute offsets from the load's start, drawn before the run. Pure.

Times are absolute and never "the last one plus a pause": a client that was late once would be late ever after, and what
it lost would be missing from the load. They are a function of (seed, purpose, repeat) and of nothing else, so all arms
of one repeat see the very same arrivals and another repeat sees others. numpy keeps the bit stream of a seed for ever,
and not what its distributions make of it, so the schedule is stored with the result as well.

ONE schedule is drawn and dealt to the workers like cards, conversation i to worker i mod W: whatever W is, what they
send together is the process itself. Were each to draw its own, W constant streams would be no constant one, and with
one seed for all of them each instant would see W arrivals at once: a load that is W times as bursty as it is called.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_api.spec.load import CONVERSATIONS_MAX, LONGEST_S, Arrival, Process
from specbench_client.errors import BadInput

Times = NDArray[np.int64]
Offsets = NDArray[np.float64]

PURPOSE = "arrivals"
NS_PER_S = 1e9
MOST = 2 * CONVERSATIONS_MAX
"""Beyond it no more is drawn. Chance scatters a schedule around what its rate asks for, and never so far; a trace that
is replayed at its own speed says first here how dense it is."""
LEAD_LEAST_S, LEAD_MOST_S = 1.0, 120.0
"""Bounds of how long an open loop may take to become steady before it is measured all the same; between them, twice as
long as what is measured: an engine that falls behind is not buried under fillers."""
TAIL_MOST_S = 300.0
AROUND_MOST = 50_000
"""Fillers before, and after: beyond it the load is held no more."""
_BLOCK = 4096


@dataclass(frozen=True)
class Extent:
    """How much of a process is wanted: exactly one of the two."""

    count: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True)
class Seeding:
    """What a draw depends on. `purpose` keeps draws of one seed for different things apart."""

    seed: int
    repeat: int
    purpose: str = PURPOSE

    def generator(self) -> np.random.Generator:
        """A generator of its own, independent of any other purpose's, seed's or repeat's."""
        digest = hashlib.sha256(f"{self.seed}/{self.repeat}/{self.purpose}".encode()).digest()
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(int.from_bytes(digest))))


def intended_times(
    arrival: Arrival,
    rate: float | None,
    extent: Extent,
    repeat: int,
    *,
    trace: Offsets | None = None,
    purpose: str = PURPOSE,
) -> Times:
    """Offsets in ns from the load's start, in order: `extent.count` of them, or all before `extent.duration_s`.

    `trace`: the recording's time stamps (s) where the process is Trace. Raises BadInput.
    """
    if arrival.process is Process.TRACE:
        assert trace is not None, "a trace is replayed from its time stamps"
        blocks = _laps(rebased(trace), rate)
    elif rate is None:
        raise BadInput(f"load.arrival.process {arrival.process} needs load.rate")
    elif arrival.process is Process.CONSTANT:
        blocks = _evenly(rate)
    else:
        blocks = _renewals(arrival, rate, Seeding(arrival.seed, repeat, purpose).generator())
    found = _cut(blocks, extent)
    if found.size > MOST:
        raise BadInput(
            f"more than {MOST:,} conversations would begin within load.durationSeconds: make it shorter, or lower "
            "load.rate (a trace without a rate is replayed at its own speed)"
        )
    if not found.size:
        raise BadInput("no conversation would begin within load.durationSeconds: make it longer, or raise load.rate")
    if found[-1] > LONGEST_S:
        raise BadInput(
            f"the schedule would last {found[-1]:.0f} s, and a point lasts {LONGEST_S} s at most: ask for fewer "
            "requests or a higher load.rate (a trace's time stamps are seconds or RFC 3339, not milliseconds)"
        )
    return np.rint(found * NS_PER_S).astype(np.int64)


@dataclass(frozen=True)
class Around:
    """Arrivals of fillers: `lead` from the load's start, for `lead_most_ns` at most; `tail` from the last measured."""

    lead: Times
    tail: Times
    lead_most_ns: int


def arrivals_around(arrival: Arrival, rate: float | None, repeat: int, times: Times) -> Around | None:
    """The process that the measured times are cut from, before and after them; None where they are one moment.

    A trace has no before: Poisson arrivals at its mean rate stand for it.
    """
    pace = rate or mean_rate(times / NS_PER_S)
    if pace is None:
        return None
    kind = arrival.model_copy(update={"process": Process.POISSON}) if arrival.process is Process.TRACE else arrival
    lead_s = min(LEAD_MOST_S, max(LEAD_LEAST_S, 2 * float(times[-1]) / NS_PER_S))
    lead, tail = (
        intended_times(kind, pace, Extent(count=_enough(pace, lasting_s)), repeat, purpose=purpose)
        for purpose, lasting_s in (("lead", lead_s), ("tail", TAIL_MOST_S))
    )
    return Around(lead, tail[tail > 0], int(lead_s * NS_PER_S))


def _enough(rate: float, lasting_s: float) -> int:
    return min(AROUND_MOST, math.ceil(rate * lasting_s) + 1)


def dealt(count: int, workers: int, worker: int) -> range:
    """The conversations of one worker."""
    return range(worker, count, workers)


def rebased(trace: Offsets) -> Offsets:
    """From 0 on, in order of time: a log may hold its requests in the order in which they ended."""
    from_zero: Offsets = np.sort(trace) - np.min(trace)
    return from_zero


def mean_rate(trace: Offsets) -> float | None:
    """Gaps over the time they take; None where no time passes."""
    span_s = float(np.max(trace) - np.min(trace))
    return (trace.size - 1) / span_s if span_s > 0 else None


def _evenly(rate: float) -> Iterator[Offsets]:
    """Each time is computed anew from its number: added-up gaps would drift."""
    start = 0
    while True:
        yield np.arange(start, start + _BLOCK) / rate
        start += _BLOCK


def _renewals(arrival: Arrival, rate: float, generator: np.random.Generator) -> Iterator[Offsets]:
    """Sums of independent gaps; the first arrival is one gap after the start, as in a process that always went on.

    The gaps of a seed are drawn for a rate of 1 and divided, so that a longer run begins like a shorter one, and all
    rates see one pattern, faster or slower.
    """
    shape = arrival.burstiness if arrival.process is Process.GAMMA else 1.0
    last = 0.0
    while True:
        times = last + np.cumsum(generator.standard_gamma(shape, _BLOCK) / shape)
        last = float(times[-1])
        yield times / rate


def _laps(trace: Offsets, rate: float | None) -> Iterator[Offsets]:
    """The trace, and again from its beginning, one mean gap after its end; stretched to the rate where one is asked."""
    own_rate = mean_rate(trace)
    if own_rate is None:
        yield trace
        raise BadInput(
            f"the trace's {trace.size} time stamps are one moment and cannot go round: "
            "lower load.requests, or give a longer trace"
        )
    pace = 1.0 if rate is None else own_rate / rate
    lap_s = trace.size / own_rate
    lap = 0
    while True:
        yield (trace + lap * lap_s) * pace
        lap += 1


def _cut(blocks: Iterator[Offsets], extent: Extent) -> Offsets:
    """So many, or those before the end; no block is drawn that is not needed."""
    kept: list[Offsets] = []
    size = 0
    for block in blocks:
        kept.append(block)
        size += block.size
        if extent.count is not None and size >= extent.count:
            break
        if extent.duration_s is not None and block[-1] >= extent.duration_s:
            break
        if block[-1] > LONGEST_S or size > MOST:
            break
    times = np.concatenate(kept)
    return times[: extent.count] if extent.duration_s is None else times[times < extent.duration_s]
