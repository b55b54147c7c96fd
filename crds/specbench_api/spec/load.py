"""`spec.load`: how hard the engine is driven, how often, and in which order.

A closed loop (`concurrency`) asks what an engine gives to so many users who wait; an open loop (`rate`) asks what
users wait when they come by themselves. Speculative decoding looks different in the two, so a run is one of them.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Distinct, Rule, refuse_broken


class Order(StrEnum):
    """Order of the arms over the repeats.

    Sequential launches each engine once. Interleaved runs the arms forwards and backwards in turn (ABBA), so
    that a machine that drifts hurts all arms alike; it pays with more launches.
    """

    SEQUENTIAL = "Sequential"
    INTERLEAVED = "Interleaved"


class Process(StrEnum):
    """How conversations arrive in an open loop."""

    CONSTANT = "Constant"
    """One every 1 / rate seconds."""
    POISSON = "Poisson"
    """Independent of each other: exponential gaps, CV 1."""
    GAMMA = "Gamma"
    """Gamma gaps of shape `burstiness`: CV 1 / sqrt(burstiness). Below 1 burstier than Poisson, above 1 smoother."""
    TRACE = "Trace"
    """At the time stamps of a recording."""


CONVERSATIONS_MAX = 1_000_000
"""Conversations of one point: a schedule is drawn whole and every request's record is kept."""
LONGEST_S = 86_400
"""For how long the conversations of one point may begin."""

Concurrency = Annotated[int, Field(ge=1, le=4096)]
Rate = Annotated[float, Field(gt=0, le=100_000)]


class Arrival(ApiModel):
    """When conversations begin in an open loop. Drawn before the run from `seed`, and stored with the result."""

    rules: ClassVar = (
        Rule("self.process != 'Trace' || has(self.uri)", "load.arrival.process Trace needs load.arrival.uri"),
        Rule("self.process == 'Trace' || !has(self.uri)", "load.arrival.uri goes with process Trace alone"),
        Rule(
            "self.process == 'Gamma' || self.burstiness == 1.0",
            "load.arrival.burstiness goes with process Gamma alone",
        ),
    )

    process: Process = Process.POISSON
    """Constant, Poisson, Gamma or Trace."""
    burstiness: Annotated[float, Field(ge=0.01, le=1000)] = 1.0
    """Shape of Gamma's gaps: 1 is Poisson, 0.25 has a CV of 2."""
    uri: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The trace: JSONL or CSV, a path or s3://bucket/key."""
    column: Annotated[str, Field(min_length=1, max_length=64)] = "timestamp"
    """Its column of time stamps: seconds, or RFC 3339."""
    seed: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Seed of the gaps."""

    @model_validator(mode="after")
    def _coherent(self) -> Arrival:
        holds = (
            self.process is not Process.TRACE or self.uri is not None,
            self.process is Process.TRACE or self.uri is None,
            self.process is Process.GAMMA or self.burstiness == 1.0,
        )
        refuse_broken(self.rules, holds)
        return self


class Level(ApiModel):
    """One load level: so many streams, or so many conversations a second. Neither: a trace at its own speed."""

    concurrency: Concurrency | None = None
    """Closed loop: streams."""
    rate: Rate | None = None
    """Open loop: conversations a second; a trace is stretched to this mean rate."""

    @property
    def label(self) -> str:
        """For tables: `8`, `2.5/s`, `trace`. Two levels of a run never share it: no digit of a rate is left out."""
        if self.concurrency is not None:
            return str(self.concurrency)
        return "trace" if self.rate is None else f"{str(self.rate).removesuffix('.0')}/s"

    @property
    def words(self) -> str:
        """For sentences, after `at`: `concurrency 8`, `2.5/s`, `the trace's own speed`."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        return "the trace's own speed" if self.rate is None else self.label

    @property
    def order(self) -> float:
        """Sort key: a run's levels are all of one sort."""
        return self.concurrency or self.rate or 0.0

    @model_validator(mode="after")
    def _one_of_two(self) -> Level:
        if self.concurrency is not None and self.rate is not None:
            raise ValueError("a level is a concurrency or a rate, never both")
        return self


class Load(ApiModel):
    """Closed loop (`concurrency`): each stream sends its next request when the last one is answered.

    Open loop (`rate`, `arrival`): conversations begin when the schedule says so, whatever the engine does.
    """

    rules: ClassVar = (
        Rule(
            "has(self.concurrency) ? !has(self.rate) && !has(self.arrival)"
            " : has(self.rate) || (has(self.arrival) && self.arrival.process == 'Trace')",
            "give exactly one of load.concurrency (closed loop) and load.rate (open loop; with arrival.process Trace"
            " the rate may be left out, and the trace runs at its own speed)",
        ),
        Rule(
            "!has(self.requests) || !has(self.durationSeconds)",
            "give one of load.requests and load.durationSeconds: a point ends by count or by time",
        ),
        Rule(
            "has(self.concurrency) || has(self.slots)",
            "load.slots is needed with load.rate: an open loop does not say how many requests are served at once",
        ),
        Rule(
            "!has(self.slots) || !has(self.concurrency) || self.concurrency.all(c, c <= self.slots)",
            "load.slots is smaller than the highest load.concurrency",
        ),
        Rule(
            "!has(self.rate) || !has(self.durationSeconds)"
            f" || self.rate.all(r, r * double(self.durationSeconds) <= {CONVERSATIONS_MAX}.0)",
            f"load.rate times load.durationSeconds is more than {CONVERSATIONS_MAX:,} conversations a point:"
            " lower the rate, or make it shorter",
        ),
        Rule(
            "!has(self.rate) || !has(self.durationSeconds)"
            " || self.rate.all(r, r * double(self.durationSeconds) >= 1.0)",
            "load.rate times load.durationSeconds is less than one conversation: raise the rate, or make it longer",
        ),
        Rule(
            "!has(self.rate)"
            f" || self.rate.all(r, r * {LONGEST_S}.0 >= (has(self.requests) ? double(self.requests) : 1.0))",
            f"at this load.rate the conversations of a point would begin over more than {LONGEST_S} s:"
            " raise load.rate, or lower load.requests",
        ),
    )

    concurrency: Annotated[list[Concurrency], Field(min_length=1, max_length=16), Distinct()] | None = None
    """Closed loop: concurrent streams; every value is measured."""
    rate: Annotated[list[Rate], Field(min_length=1, max_length=16), Distinct()] | None = None
    """Open loop: conversations a second; every value is measured."""
    arrival: Arrival | None = None
    """Open loop: how they arrive. Without it: Poisson."""
    slots: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Requests that every arm's engine must be able to serve at once. Without it: the highest concurrency."""
    requests: Annotated[int, Field(ge=1, le=CONVERSATIONS_MAX)] | None = None
    """Conversations a point. Without it: every prompt once. More than there are prompts: they go round again."""
    duration_seconds: Annotated[int, Field(ge=1, le=LONGEST_S)] | None = None
    """Instead of requests: conversations begin for so long, and those that began are ended."""
    warmup_requests: Annotated[int, Field(ge=0, le=10_000)] = 4
    """Least requests before each launch's first point, at that point's load (and one a stream at least); it goes on
    until step times are steady, at most four times as long. Recorded and left out of every figure. 0: no warm-up."""
    repeats: Annotated[int, Field(ge=1, le=32)] = 3
    """How often each point is measured."""
    order: Order = Order.INTERLEAVED
    """Sequential or Interleaved."""

    @property
    def levels(self) -> list[Level]:
        """Every level that is measured, the lightest first."""
        if self.concurrency is not None:
            return [Level(concurrency=streams) for streams in sorted(self.concurrency)]
        return [Level(rate=rate) for rate in sorted(self.rate or [])] or [Level()]

    @property
    def engine_slots(self) -> int:
        """What every arm's engine must be able to serve at once."""
        return self.slots or max(self.concurrency or [1])

    @model_validator(mode="after")
    def _coherent(self) -> Load:
        closed, trace = self.concurrency is not None, self.arrival and self.arrival.process is Process.TRACE
        slowest, fastest = min(self.rate or [math.inf]), max(self.rate or [0.0])
        lasting_s = self.duration_seconds
        holds = (
            not (self.rate or self.arrival) if closed else bool(self.rate or trace),
            self.requests is None or self.duration_seconds is None,
            closed or self.slots is not None,
            self.slots is None or max(self.concurrency or [0]) <= self.slots,
            lasting_s is None or fastest * lasting_s <= CONVERSATIONS_MAX,
            lasting_s is None or slowest * lasting_s >= 1,
            slowest * LONGEST_S >= (self.requests or 1),
        )
        refuse_broken(self.rules, holds)
        return self
