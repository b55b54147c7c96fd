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

import csv
import hashlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specbench_api.spec.load import CONVERSATIONS_MAX, LONGEST_S, Arrival, ArrivalProcess
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.file_roots import readable_path
from specbench_client.workload.source_detection import is_mooncake_row

ScheduledTimes = NDArray[np.int64]
Offsets = NDArray[np.float64]

PURPOSE = "arrivals"
NS_PER_S = 1e9
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


@dataclass(frozen=True)
class ScheduleSeed:
    """The inputs of a random draw. `purpose` separates draws of one seed for different uses."""

    seed: int
    repeat: int
    purpose: str = PURPOSE

    def generator(self) -> np.random.Generator:
        """Return a generator that is independent of all other seeds, repeats and purposes."""
        digest = hashlib.sha256(f"{self.seed}/{self.repeat}/{self.purpose}".encode()).digest()
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
        blocks = _random_gaps(arrival, rate, ScheduleSeed(arrival.seed, repeat, purpose).generator())
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


# A trace is one column of timestamps in a JSONL or CSV file. A row without a valid timestamp is an error: skipping it
# would make the load lighter than the recording. The numbers are seconds, except in Mooncake's traces, which are
# recognised by their columns: https://github.com/kvcache-ai/Mooncake, FAST25-release/traces.

_MAX_SHOWN_PROBLEMS = 5
_COLUMN = "timestamp"
_EXAMPLE = f'{{"{_COLUMN}": 12.5}}'
_REMEDY = f"rename the column of the timestamps to {_COLUMN!r}"
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_MS_PER_S = 1000.0


def load_trace(uri: str, base_dir: Path, fetch: Callable[[str], bytes] | None = None) -> Offsets:
    """Return the timestamps of a file. `base_dir`: the folder of relative paths. Raises BadInput."""
    if uri.startswith("s3://"):
        if fetch is None:
            raise BadInput(f"{uri}: S3 is not available here: give a local file")
        return read_trace(fetch(uri), uri)
    if "://" in uri:
        raise BadInput(f"{uri}: a trace is read from a path or from s3://BUCKET/KEY: download the file first")
    path = readable_path(base_dir / Path(uri).expanduser(), "load.arrival.uri")
    try:
        data = path.read_bytes()
    except OSError as error:
        remedy = "relative paths start at the spec's folder (in a pod: in the client's image)"
        raise BadInput(f"{path}: {error.strerror}: {remedy}") from error
    return read_trace(data, str(path))


def read_trace(data: bytes, name: str) -> Offsets:
    """Return a file's timestamps in seconds, in its order: CSV if the name ends in .csv, else JSON Lines.

    Raises BadInput.
    """
    if data.startswith(_GZIP):
        raise BadInput(f"{name}: is compressed: unpack it first (gunzip)")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from error
    rows = _csv(text, name) if name.lower().endswith(".csv") else _jsonl(text)
    times: list[float] = []
    problems: list[str] = []
    for number, value in rows:
        seconds = value if isinstance(value, _InvalidTime) else _seconds(value)
        if isinstance(seconds, _InvalidTime):
            problems.append(f"{name}, line {number}: {seconds}")
        else:
            times.append(seconds)
    if problems:
        more = len(problems) - _MAX_SHOWN_PROBLEMS
        total = len(times) + len(problems)
        rest = [f"and {more} more of {total} rows"] if more > 0 else []
        raise BadInput("\n".join([*problems[:_MAX_SHOWN_PROBLEMS], *rest]))
    if not times:
        raise BadInput(f"{name}: contains no rows: give one arrival per row")
    return np.array(times) / (_MS_PER_S if _is_mooncake_trace(text, name) else 1.0)


def _is_mooncake_trace(text: str, name: str) -> bool:
    """Return whether the first row has the columns of a Mooncake trace. Every row was read before."""
    if name.lower().endswith(".csv"):
        return is_mooncake_row(word.strip() for word in next(csv.reader(io.StringIO(text, newline=""))))
    return is_mooncake_row(parse_json(next(line for line in text.split("\n") if line.strip())))


class _InvalidTime(str):
    """The problem with a row, and its remedy."""

    __slots__ = ()


def _jsonl(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _member(line)


def _member(line: str) -> Any:
    try:
        row = parse_json(line)
    except (ValueError, RecursionError) as error:
        remedy = f"every line is one object, such as {_EXAMPLE}; a CSV's name ends in .csv"
        return _InvalidTime(f"not JSON ({error}): {remedy}")
    if not isinstance(row, dict):
        return _InvalidTime(f"a JSON {type(row).__name__}: write one object per line, such as {_EXAMPLE}")
    if _COLUMN not in row:
        present = ", ".join(map(repr, list(row)[:8])) or "nothing"
        return _InvalidTime(f"has no {_COLUMN!r}, it has {present}: {_REMEDY}")
    return row[_COLUMN]


def _csv(text: str, name: str) -> Iterator[tuple[int, Any]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [word.strip() for word in next(rows, [])]
        if _COLUMN not in header:
            present = ", ".join(map(repr, header[:8])) or "nothing"
            remedy = f"the first line contains the column names; {_REMEDY}"
            raise BadInput(f"{name}, line 1: has no column {_COLUMN!r}, it has {present}: {remedy}")
        index = header.index(_COLUMN)
        for row in rows:
            if row:
                short = _InvalidTime(f"has {len(row)} fields, but {_COLUMN!r} is column {index + 1}: write all fields")
                yield rows.line_num, row[index] if index < len(row) else short
    except csv.Error as error:
        remedy = "correct the quotes of this line"
        raise BadInput(f"{name}, line {rows.line_num}: not CSV: {error}: {remedy}") from error


def _seconds(value: Any) -> float | _InvalidTime:
    if isinstance(value, str):
        value = _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        remedy = "give seconds, such as 12.5, or RFC 3339, such as 2026-01-31T09:30:00.5Z"
        return _InvalidTime(f"{_COLUMN} is {value!r:.60}: {remedy}")
    return float(value)


def _number(text: str) -> float | str:
    """Parse seconds or RFC 3339; return the text itself if it is neither. A time without an offset is UTC."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
