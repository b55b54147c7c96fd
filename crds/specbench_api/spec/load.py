"""`spec.load`: how hard the engine is driven, how often, and in which order."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from specbench_api.model import ApiModel, Distinct


class Order(StrEnum):
    """Order of the arms over the repeats.

    Sequential launches each engine once. Interleaved runs the arms forwards and backwards in turn (ABBA), so
    that a machine that drifts hurts all arms alike; it pays with more launches.
    """

    SEQUENTIAL = "Sequential"
    INTERLEAVED = "Interleaved"


Concurrency = Annotated[int, Field(ge=1, le=4096)]


class Load(ApiModel):
    """A closed loop: each of `concurrency` streams sends its next request when the last one is answered."""

    concurrency: Annotated[list[Concurrency], Field(min_length=1, max_length=16), Distinct()]
    """Concurrent streams; every value is measured."""
    requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Conversations a point. Without it: every prompt once. More than there are prompts: they go round again."""
    warmup_requests: Annotated[int, Field(ge=0, le=10_000)] = 4
    """Requests before each launch's first point, recorded and left out of every figure."""
    repeats: Annotated[int, Field(ge=1, le=32)] = 3
    """How often each point is measured."""
    order: Order = Order.INTERLEAVED
    """Sequential or Interleaved."""
