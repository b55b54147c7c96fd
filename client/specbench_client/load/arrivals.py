"""When the conversations of an open loop begin: draws the schedule, and reads the timestamps of a recorded trace.

A schedule consists of offsets from the load's start.

Offsets are absolute and not "the previous one plus a pause": a client that was late once would stay late, and the load
would be lower than requested. They depend on (seed, purpose, repeat) only, so all arms of one repeat have the same
arrivals and other repeats have others. numpy guarantees the bit stream of a seed for ever, but not what its
distributions make of it, so the schedule is stored with the result as well.

One schedule is drawn and divided among W workers, conversation i to worker i mod W, so that the sum of what they send
is the requested process for every W. If each worker drew its own, the sum of W constant processes would not be
constant; with one seed for all of them, W arrivals would coincide each time and the load would be W times as bursty.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specbench_api.spec.dataset import Selection, Source
from specbench_api.spec.load import CONVERSATIONS_MAX, LONGEST_S, Arrival, ArrivalProcess
from specbench_client.errors import BadInput
from specbench_client.load.steady_state import NS_PER_S
from specbench_client.workload.locations import rows_of_selection
from specbench_client.workload.prompt_files import is_named
from specbench_client.workload.row_outcomes import first_problems, in_file_order
from specbench_client.workload.source_detection import is_mooncake_row
from specbench_client.workload.sources.request_logs import time_of

ScheduledTimes = NDArray[np.int64]
Offsets = NDArray[np.float64]

PURPOSE = "arrivals"
MAX_ARRIVALS = 2 * CONVERSATIONS_MAX
"""No more arrivals than this are drawn. Random schedules scatter around their rate, but never so far; a trace that is
replayed at its own speed can exceed it."""
LEAD_LEAST_S, LEAD_MOST_S = 1.0, 120.0
"""Bounds of the time that an open loop may take to become steady before measuring begins regardless. Between them the
limit is twice the measured duration, so that an engine that falls behind is not overloaded with fillers."""
MAX_TAIL_S = 300.0
MAX_FILLERS = 50_000
"""Maximum number of fillers before the measured conversations, and again after them."""
_BLOCK = 4096


@dataclass(frozen=True)
class ScheduleLength:
    """Length of a schedule: exactly one of the two is set."""

    count: int | None = None
    duration_s: float | None = None


def generator_of(seed: int, repeat: int, purpose: str) -> np.random.Generator:
    """Return a generator that is independent of all other seeds, repeats and purposes (uses of one seed)."""
    digest = hashlib.sha256(f"{seed}/{repeat}/{purpose}".encode()).digest()
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(int.from_bytes(digest))))


def schedule_arrivals(
    arrival: Arrival,
    rate: float | None,
    extent: ScheduleLength,
    repeat: int,
    *,
    trace: Offsets | None = None,
    purpose: str = PURPOSE,
) -> ScheduledTimes:
    """Return ascending offsets in ns from the load's start, `extent.count` of them or all before `extent.duration_s`.

    `trace`: the recording's timestamps (s) if the process is Trace. Raises BadInput.
    """
    if arrival.process is ArrivalProcess.TRACE:
        assert trace is not None, "a trace is replayed from its time stamps"
        blocks = _trace_laps(_start_at_zero(trace), rate)
    elif rate is None:
        raise BadInput(f"load.arrival.process {arrival.process} needs load.rate")
    elif arrival.process is ArrivalProcess.CONSTANT:
        blocks = _constant_gaps(rate)
    else:
        blocks = _random_gaps(arrival, rate, generator_of(arrival.seed, repeat, purpose))
    offsets_s = _take_length(blocks, extent)
    if offsets_s.size > MAX_ARRIVALS:
        raise BadInput(
            f"more than {MAX_ARRIVALS:,} conversations would begin within load.durationSeconds: make it shorter, or "
            "lower load.rate (a trace without a rate is replayed at its own speed)"
        )
    if not offsets_s.size:
        raise BadInput("no conversation would begin within load.durationSeconds: make it longer, or raise load.rate")
    if offsets_s[-1] > LONGEST_S:
        raise BadInput(
            f"the schedule would last {offsets_s[-1]:.0f} s, but a point lasts {LONGEST_S} s at most: lower "
            "load.requests or raise load.rate (a trace's timestamps are seconds or RFC 3339, not milliseconds)"
        )
    return np.rint(offsets_s * NS_PER_S).astype(np.int64)


@dataclass(frozen=True)
class FillerArrivals:
    """Arrival times of fillers (ns).

    `lead`: from the load's start, for `lead_most_ns` at most. `tail`: from the last measured arrival.
    """

    lead: ScheduledTimes
    tail: ScheduledTimes
    lead_most_ns: int


def filler_arrivals(arrival: Arrival, rate: float | None, repeat: int, times: ScheduledTimes) -> FillerArrivals | None:
    """Draw fillers from the same arrival process as the measured times; None if those are all at one moment.

    For a trace, the fillers are Poisson arrivals at its mean rate.
    """
    pace = rate or mean_rate(times / NS_PER_S)
    if pace is None:
        return None
    kind = (
        arrival.model_copy(update={"process": ArrivalProcess.POISSON})
        if arrival.process is ArrivalProcess.TRACE
        else arrival
    )
    lead_s = min(LEAD_MOST_S, max(LEAD_LEAST_S, 2 * float(times[-1]) / NS_PER_S))
    lead, tail = (
        schedule_arrivals(kind, pace, ScheduleLength(count=_arrivals_lasting(pace, lasting_s)), repeat, purpose=purpose)
        for purpose, lasting_s in (("lead", lead_s), ("tail", MAX_TAIL_S))
    )
    return FillerArrivals(lead, tail[tail > 0], int(lead_s * NS_PER_S))


def _arrivals_lasting(rate: float, lasting_s: float) -> int:
    return min(MAX_FILLERS, math.ceil(rate * lasting_s) + 1)


def share_of(count: int, workers: int, worker: int) -> range:
    """Return the indices of one worker's conversations."""
    return range(worker, count, workers)


def _start_at_zero(trace: Offsets) -> Offsets:
    """Return the trace sorted and shifted to start at 0: a log may list its requests in the order of their ends."""
    from_zero: Offsets = np.sort(trace) - np.min(trace)
    return from_zero


def mean_rate(trace: Offsets) -> float | None:
    """Return the arrivals per second, gaps over their total duration; None if all are at one moment."""
    span_s = float(np.max(trace) - np.min(trace))
    return (trace.size - 1) / span_s if span_s > 0 else None


def _constant_gaps(rate: float) -> Iterator[Offsets]:
    """Yield blocks of arrivals at a constant rate, each computed from its index: a running sum would drift."""
    start = 0
    while True:
        yield np.arange(start, start + _BLOCK) / rate
        start += _BLOCK


def _random_gaps(arrival: Arrival, rate: float, generator: np.random.Generator) -> Iterator[Offsets]:
    """Yield blocks of cumulative sums of independent gaps; the first arrival is one gap after the start.

    Gaps are drawn for a rate of 1 and then divided by the rate, so that a longer run begins like a shorter one, and all
    rates have the same pattern, faster or slower.
    """
    shape = arrival.burstiness if arrival.process is ArrivalProcess.GAMMA else 1.0
    last = 0.0
    while True:
        times = last + np.cumsum(generator.standard_gamma(shape, _BLOCK) / shape)
        last = float(times[-1])
        yield times / rate


def _trace_laps(trace: Offsets, rate: float | None) -> Iterator[Offsets]:
    """Yield the trace repeatedly, each lap one mean gap after the one before, scaled to `rate` if it is given."""
    own_rate = mean_rate(trace)
    if own_rate is None:
        yield trace
        raise BadInput(
            f"the trace's {trace.size} timestamps are all the same, so it cannot be repeated: "
            "lower load.requests, or give a longer trace"
        )
    pace = 1.0 if rate is None else own_rate / rate
    lap_s = trace.size / own_rate
    lap = 0
    while True:
        yield (trace + lap * lap_s) * pace
        lap += 1


def _take_length(blocks: Iterator[Offsets], extent: ScheduleLength) -> Offsets:
    """Return the first `count` offsets, or those before `duration_s`; draws no more blocks than needed."""
    drawn: list[Offsets] = []
    size = 0
    for block in blocks:
        drawn.append(block)
        size += block.size
        if extent.count is not None and size >= extent.count:
            break
        if extent.duration_s is not None and block[-1] >= extent.duration_s:
            break
        if block[-1] > LONGEST_S or size > MAX_ARRIVALS:
            break
    times = np.concatenate(drawn)
    return times[: extent.count] if extent.duration_s is None else times[times < extent.duration_s]


# A trace is one column of timestamps in a file of rows. A row without a valid timestamp is an error: skipping it would
# make the load lighter than the recording. The numbers are seconds, except in Mooncake's traces, which are recognised
# by their columns: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces.

_COLUMN = "timestamp"
_MS_PER_S = 1000.0


def load_trace(uri: str, base_dir: Path) -> Offsets:
    """Return the timestamps of a file in seconds, in its order. Raises BadInput.

    `base_dir`: the folder of relative paths.
    """
    selection = Selection(source=Source.CSV if is_named(uri) else Source.JSONL, uri=uri)
    problems = list[str]()
    rows = rows_of_selection(selection, base_dir, problems, "load.arrival.uri")
    times = [time_of(row.columns.get(_COLUMN)) for row in rows]
    unreadable = len(problems)
    problems += [
        f"{row.place}: {_time_problem(row.columns)}"
        for row, seconds in zip(rows, times, strict=True)
        if seconds is None
    ]
    if problems:
        raise BadInput("\n".join(first_problems(uri, in_file_order(problems), len(rows) + unreadable)))
    return np.array(times, np.float64) / (_MS_PER_S if is_mooncake_row(rows[0].columns) else 1.0)


def _time_problem(columns: Mapping[str, Any]) -> str:
    if _COLUMN not in columns:
        present = ", ".join(map(repr, list(columns)[:8])) or "nothing"
        return f"has no {_COLUMN!r}, it has {present}: rename the column of the timestamps to {_COLUMN!r}"
    remedy = "give seconds, such as 12.5, or RFC 3339, such as 2026-01-31T09:30:00.5Z"
    return f"{_COLUMN} is {columns[_COLUMN]!r:.60}: {remedy}"
