"""The same requests and steps of a cell, by where they stand: position, context, length, turn, thought or answer.

A slice tells where a drafter is good and where it is not. Slices of steps put every decode step by its own place, so
one answer is in several of them; slices of requests put whole answers. Two slices of one cell are not paired with one
another: other prompts reach them, and what differs between them may be the prompts.
"""

from __future__ import annotations

from pydantic import Field

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class Slice(ApiModel):
    """One class of steps or of requests."""

    label: str
    """For tables: `64–127`, `turn 2`, `thought`."""
    low: int | None = None
    """Where classes are ranges of tokens: the least that belongs to it."""
    high: int | None = None
    """The most; None: no upper end."""
    steps: int
    """Decode steps of the target in it; of requests, as far as they tell their steps."""
    requests: int
    """Requests that have any of these steps; of slices of requests, all of the class."""
    prompts: int
    """Different prompts of these."""
    figures: dict[str, Figure]
    """By name, see docs/metrics.md."""


class LengthClass(ApiModel):
    """The answers of one class of total length, and how their steps go on from the first position to the last."""

    whole: Slice
    """The class as a slice of requests."""
    by_position: list[Slice] = []
    """Its steps by output position; empty where steps cannot be placed."""


class Spread(ApiModel):
    """How one number differs from request to request: what a box plot shows."""

    unit: str
    """Its unit."""
    definition: str
    """What the number is of one request."""
    n: int
    """Requests that have it."""
    prompts: int
    """Different prompts of these."""
    source: str
    """Who counted."""
    minimum: float
    """Smallest."""
    lower_quartile: float
    """25th percentile, by linear interpolation, as all of these."""
    median: float
    """50th percentile."""
    upper_quartile: float
    """75th percentile."""
    maximum: float
    """Largest."""
    deciles: list[float] = Field(min_length=9, max_length=9)
    """10th, 20th, … 90th percentile."""


class TokenRange(ApiModel):
    """Some numbers of tokens; both bounds belong to it."""

    first: int
    """The least."""
    last: int
    """The most."""


class AcceptedMap(ApiModel):
    """Answers, the shortest first, × positions in them: what the steps that began there emitted."""

    unit: str = "tokens/step"
    """Its unit."""
    definition: str
    """What each value is."""
    requests: int
    """How many requests it is of: the first of one repeat."""
    repeat: int
    """Which repeat."""
    rows: list[TokenRange]
    """Output tokens of each row's answers: one request a row, or neighbours by length where they are more."""
    columns: list[TokenRange]
    """Positions of each column."""
    emitted: list[list[float | None]]
    """A list a row; None where no step of its answers began in the column."""


class Slices(ApiModel):
    """All slices of one cell. A dimension that could not be had is empty, and `missing` says why."""

    acceptance_by_request: Spread | None = None
    """Acceptance length (emitted) of each request."""
    by_position: list[Slice] = []
    """Steps by the output position of the first token that they emit; the prompt's own token has position 0."""
    by_context: list[Slice] = []
    """Steps by the tokens before it: prompt and output so far."""
    by_length: list[LengthClass] = []
    """Requests by their output tokens."""
    length_classes: str = ""
    """How these classes were chosen."""
    by_turn: list[Slice] = []
    """Requests by their turn in the conversation; empty where all are first turns."""
    by_part: list[Slice] = []
    """Steps by what they wrote: thought, or answer."""
    accepted_map: AcceptedMap | None = None
    """A line a request, by position; at the lightest load of the workload alone, where steps can be placed."""
    placed_share: float | None = None
    """Of the requests that tell their steps, the share whose steps can be placed; None where none tells them."""
    missing: dict[str, str] = {}
    """Name of the dimension → why it is empty."""
