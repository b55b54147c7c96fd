"""`spec.load`: load levels, repeats, and the order of the arms.

A closed loop (`concurrency`) measures the throughput for a fixed number of waiting users; an open loop (`rate`)
measures the latency when users arrive independently. Speculative decoding behaves differently in the two, so a run uses
only one of them.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api.api_model import ApiModel, Distinct, RuledModel, ValidationRule


class ArmOrder(StrEnum):
    """Order of the arms over the repeats.

    Sequential launches each engine once. Interleaved launches it for each repeat and runs the arms alternately forwards
    and backwards (ABBA): drift of the machine affects all arms equally, and intervals include how much launches of one
    engine differ. Soak launches each engine once and
    keeps it under load: its repeats are windows of `durationSeconds`, and how figures change over them is reported.
    """

    SEQUENTIAL = "Sequential"
    INTERLEAVED = "Interleaved"
    SOAK = "Soak"


class ArrivalProcess(StrEnum):
    """How conversations arrive in an open loop."""

    CONSTANT = "Constant"
    """One every 1 / rate seconds."""
    POISSON = "Poisson"
    """Independent arrivals: exponential inter-arrival times, CV 1."""
    GAMMA = "Gamma"
    """Gamma-distributed inter-arrival times of shape `burstiness`: CV 1 / sqrt(burstiness). Below 1 is burstier than
    Poisson, above 1 is smoother."""
    TRACE = "Trace"
    """At the timestamps of a recording."""


CONVERSATIONS_MAX = 1_000_000
"""Maximum conversations of one point: the whole schedule is generated and each request is recorded."""
LONGEST_S = 86_400
"""Maximum seconds over which the conversations of one point may start."""

REPEATS_MAX, WINDOWS_MAX = 32, 1000
"""Maximum repeats, and maximum windows of a soak test."""

STREAMS_MAX = 4096
Concurrency = Annotated[int, Field(ge=1, le=STREAMS_MAX)]
Rate = Annotated[float, Field(gt=0, le=100_000)]


class Arrival(RuledModel):
    """When conversations start in an open loop. Generated before the run from `seed`, and stored with the result."""

    rules: ClassVar = (
        ValidationRule(
            "self.process != 'Trace' || has(self.uri)",
            "load.arrival.process Trace needs load.arrival.uri: set it to the trace's path or URI",
            lambda arrival: arrival.process is not ArrivalProcess.TRACE or arrival.uri is not None,
        ),
        ValidationRule(
            "self.process == 'Trace' || !has(self.uri)",
            "load.arrival.uri needs load.arrival.process Trace: set it, or remove load.arrival.uri",
            lambda arrival: arrival.process is ArrivalProcess.TRACE or arrival.uri is None,
        ),
        ValidationRule(
            "self.process == 'Gamma' || self.burstiness == 1.0",
            "load.arrival.burstiness needs load.arrival.process Gamma: set it, or remove load.arrival.burstiness",
            lambda arrival: arrival.process is ArrivalProcess.GAMMA or arrival.burstiness == 1.0,
        ),
    )

    process: ArrivalProcess = ArrivalProcess.POISSON
    """The arrival process."""
    burstiness: Annotated[float, Field(ge=0.01, le=1000)] = 1.0
    """Process Gamma: shape of the inter-arrival times. 1 is Poisson; 0.25 has a CV of 2."""
    uri: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Process Trace: the JSONL or CSV file, as a path or `s3://bucket/key`. Its column `timestamp` has seconds or RFC
    3339; a Mooncake trace is recognised by its columns, and its timestamps are milliseconds."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Seed of the inter-arrival times."""
    max_in_flight: Annotated[int, Field(ge=1, le=STREAMS_MAX)] | None = None
    """At most this many conversations at once, as behind a gateway with a limit: others wait in the client, and their
    latency counts from the scheduled time. Without it: no limit."""

    @property
    def cv(self) -> float | None:
        """Coefficient of variation of inter-arrival gaps; None for a trace, which is not a stochastic process."""
        if self.process is ArrivalProcess.CONSTANT:
            return 0.0
        return None if self.process is ArrivalProcess.TRACE else 1 / math.sqrt(self.burstiness)


class Level(ApiModel):
    """One load level: a number of streams, or of conversations per second. Neither: a trace at its own speed."""

    concurrency: Concurrency | None = None
    """Closed loop: number of concurrent streams."""
    rate: Rate | None = None
    """Open loop: conversations per second; a trace is scaled to this mean rate."""

    @property
    def label(self) -> str:
        """Label for tables: `8`, `2.5/s`, `trace`. Unique in a run, because a rate is printed with all its digits."""
        if self.concurrency is not None:
            return str(self.concurrency)
        return "trace" if self.rate is None else f"{str(self.rate).removesuffix('.0')}/s"

    @property
    def words(self) -> str:
        """Text for sentences, after `at`: `concurrency 8`, `2.5/s`, `the trace's own speed`."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        return "the trace's own speed" if self.rate is None else self.label

    @property
    def order(self) -> float:
        """Sort key. All levels of a run are of the same kind."""
        return self.concurrency or self.rate or 0.0

    @model_validator(mode="after")
    def _one_of_two(self) -> Level:
        if self.concurrency is not None and self.rate is not None:
            raise ValueError("a load level has either concurrency or rate: remove one of them")
        return self


class Load(RuledModel):
    """Load of every arm.

    Closed loop (`concurrency`): each stream sends its next request when the previous one is answered. Open loop
    (`rate`, `arrival`): conversations start at scheduled times, regardless of the engine's progress.
    """

    rules: ClassVar = (
        ValidationRule(
            "has(self.concurrency) ? !has(self.rate)"
            " : has(self.rate) || (has(self.arrival) && self.arrival.process == 'Trace')",
            "set exactly one of load.concurrency (closed loop) and load.rate (open loop; with load.arrival.process"
            " Trace it may be omitted, and the trace runs at its own speed)",
            lambda load: (
                load.rate is None
                if load.concurrency
                else load.rate is not None or (load.arrival and load.arrival.process is ArrivalProcess.TRACE)
            ),
        ),
        ValidationRule(
            "!has(self.concurrency) || !has(self.arrival)",
            "only an open loop has load.arrival: set load.rate instead of load.concurrency, or remove it",
            lambda load: load.concurrency is None or load.arrival is None,
        ),
        ValidationRule(
            "[has(self.requests), has(self.requestsPerStream), has(self.durationSeconds)].filter(given, given).size()"
            " <= 1",
            "set only one of load.requests, load.requestsPerStream and load.durationSeconds: one of them ends a point",
            lambda load: [load.requests, load.requests_per_stream, load.duration_seconds].count(None) >= 2,
        ),
        ValidationRule(
            "!has(self.requestsPerStream) || has(self.concurrency)",
            "load.requestsPerStream needs load.concurrency: set load.requests or load.durationSeconds for an open loop",
            lambda load: load.requests_per_stream is None or load.concurrency is not None,
        ),
        ValidationRule(
            "has(self.concurrency) || has(self.slots)",
            "load.rate needs load.slots: set it to the number of requests that the engine must serve at once",
            lambda load: load.concurrency is not None or load.slots is not None,
        ),
        ValidationRule(
            "!has(self.slots) || !has(self.concurrency) || self.concurrency.all(c, c <= self.slots)",
            "load.slots is smaller than the highest load.concurrency: raise load.slots, or remove it",
            lambda load: load.slots is None or load.concurrency is None or max(load.concurrency) <= load.slots,
        ),
        ValidationRule(
            "!has(self.rate) || !has(self.durationSeconds)"
            f" || self.rate.all(r, r * double(self.durationSeconds) <= {CONVERSATIONS_MAX}.0)",
            f"load.rate times load.durationSeconds is more than {CONVERSATIONS_MAX:,} conversations per point:"
            " lower load.rate or load.durationSeconds",
            lambda load: (
                load.rate is None
                or load.duration_seconds is None
                or max(load.rate) * load.duration_seconds <= CONVERSATIONS_MAX
            ),
        ),
        ValidationRule(
            "!has(self.rate) || !has(self.durationSeconds)"
            " || self.rate.all(r, r * double(self.durationSeconds) >= 1.0)",
            "load.rate times load.durationSeconds is less than one conversation: raise load.rate or"
            " load.durationSeconds",
            lambda load: (
                load.rate is None or load.duration_seconds is None or min(load.rate) * load.duration_seconds >= 1
            ),
        ),
        ValidationRule(
            "!has(self.rate)"
            f" || self.rate.all(r, r * {LONGEST_S}.0 >= (has(self.requests) ? double(self.requests) : 1.0))",
            f"at this load.rate the conversations of a point would start over more than {LONGEST_S} s:"
            " raise load.rate, or lower load.requests",
            lambda load: load.rate is None or min(load.rate) * LONGEST_S >= (load.requests or 1),
        ),
        ValidationRule(
            f"self.repeats <= {REPEATS_MAX} || self.order == 'Soak'",
            f"load.repeats above {REPEATS_MAX} needs load.order: Soak, in which repeats are windows",
            lambda load: load.repeats <= REPEATS_MAX or load.order is ArmOrder.SOAK,
        ),
        ValidationRule(
            "self.order != 'Soak' || (has(self.durationSeconds)"
            " && (!has(self.concurrency) || size(self.concurrency) == 1) && (!has(self.rate) || size(self.rate) == 1))",
            "load.order Soak keeps one load up: give a single concurrency or rate, and the length of a window as"
            " load.durationSeconds",
            lambda load: (
                load.order is not ArmOrder.SOAK or (load.duration_seconds is not None and len(load.levels) == 1)
            ),
        ),
        ValidationRule(
            "!has(self.stop) || self.order == 'Soak'",
            "load.stop ends a soak test early: remove load.stop, or set load.order: Soak",
            lambda load: load.stop is None or load.order is ArmOrder.SOAK,
        ),
    )

    remedies: ClassVar = {"clients": "one client sends the whole load: give it more CPU (placement.client.resources)"}

    concurrency: Annotated[list[Concurrency], Field(min_length=1, max_length=16), Distinct()] | None = None
    """Closed loop: numbers of concurrent streams, each measured as its own level: `[1, 8, 32]`."""
    rate: Annotated[list[Rate], Field(min_length=1, max_length=16), Distinct()] | None = None
    """Open loop: conversations per second, each value measured as its own level: `[0.5, 2]`."""
    arrival: Arrival | None = None
    """Open loop: the arrival process. Without it: Poisson."""
    slots: Annotated[int, Field(ge=1, le=STREAMS_MAX)] | None = None
    """Number of requests that every arm's engine must be able to serve at once. Without it: the highest concurrency."""
    requests: Annotated[int, Field(ge=1, le=CONVERSATIONS_MAX)] | None = None
    """Conversations per point. More than there are prompts repeats the prompts. Without it: every prompt once."""
    requests_per_stream: Annotated[int, Field(ge=1, le=CONVERSATIONS_MAX // STREAMS_MAX)] | None = None
    """Instead of requests: conversations per point and stream, so that every load takes about as long."""
    duration_seconds: Annotated[int, Field(ge=1, le=LONGEST_S)] | None = None
    """Instead of requests: seconds during which conversations start; those that started are completed."""
    warmup_requests: Annotated[int, Field(ge=0, le=10_000)] = 4
    """Minimum warm-up requests before the first point of each launch, at that point's load and at least one per stream.
    Warm-up continues until step times are steady, up to four times as many. The requests are recorded, but excluded
    from every figure. 0: no warm-up."""
    repeats: Annotated[int, Field(ge=1, le=WINDOWS_MAX)] = 3
    """Number of times each point is measured, at most 32. Confidence intervals need at least 3. With order Soak: number
    of windows."""
    order: ArmOrder = ArmOrder.INTERLEAVED
    """Order of the arms over the repeats: Sequential, Interleaved, or Soak."""
    stop: Literal["WhenDecayed"] | None = None
    """Order Soak: an arm ends as soon as its acceptance length has certainly fallen, from twelve windows on. Without
    it: after all windows."""

    @property
    def levels(self) -> list[Level]:
        """All levels to measure, the lightest first."""
        if self.concurrency is not None:
            return [Level(concurrency=streams) for streams in sorted(self.concurrency)]
        return [Level(rate=rate) for rate in sorted(self.rate or [])] or [Level()]

    @property
    def engine_slots(self) -> int:
        """Number of requests that every arm's engine must be able to serve at once."""
        return self.slots or max(self.concurrency or [1])

    def requested(self, level: Level) -> int | None:
        """Return how many conversations a point at this level is to have; None: each prompt once, or by time."""
        if self.requests_per_stream is not None and level.concurrency is not None:
            return self.requests_per_stream * level.concurrency
        return self.requests

    @model_validator(mode="before")
    @classmethod
    def _without_clients(cls, data: Any) -> Any:
        """Accept what plans and resources of earlier versions contain by default: one client."""
        if isinstance(data, dict) and data.get("clients") == 1:
            return {name: value for name, value in data.items() if name != "clients"}
        return data
