"""A request and its result in no engine's words: what every dialect reads a body into, and writes an answer from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specbench_client.simulator.process import StepOutcome


class Kind(StrEnum):
    """Which of the two OpenAI routes was called."""

    CHAT = "chat"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt: its identity (decides the answer), its texts (looked up for a category), its tokens."""

    identity: str
    texts: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the client wants to be answered."""

    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    speculation: bool = False
    """Whether the answer shall tell of its drafts, where the engine tells only who asks."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came: which route, its body, its id, and when (monotonic ns)."""

    kind: Kind
    body: bytes
    request_id: str
    received_ns: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. ``max_tokens`` None means as many as the context holds; times are monotonic ns."""

    request_id: str
    received_ns: int
    kind: Kind
    model: str
    prompt: Prompt
    delivery: Delivery = Delivery()
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a request came, was admitted, had its first and its last token; monotonic ns, null before it happened."""

    received_ns: int
    scheduled_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A finished answer. ``reported_tokens`` is what usage says, which a fault can make differ from ``len(words)``."""

    words: tuple[str, ...]
    finish_reason: str
    outcomes: tuple[StepOutcome, ...]
    reported_tokens: int
    cached_tokens: int
    timing: Timing
