"""A figure never travels alone: value, unit, definition, sample size, interval and source."""

from __future__ import annotations

from specbench_api.model import ApiModel


class FigureInterval(ApiModel):
    """A confidence interval and how it was made."""

    low: float
    """Lower bound."""
    high: float
    """Upper bound."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How it was made, and what its sampling unit is."""


class Figure(ApiModel):
    """One number with all that is needed to read it. `value` is missing when it was not to be had."""

    value: float | None = None
    """The number."""
    unit: str
    """Its unit; `ratio` for ratios."""
    definition: str
    """What it is, in one sentence."""
    n: int
    """How many sampling units it rests on."""
    interval: FigureInterval | None = None
    """Its uncertainty."""
    source: str
    """Where the numbers came from: client, engine (per_request, counters), or both."""
