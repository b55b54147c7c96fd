"""Whether acceptance has changed since a reference, and whether by the traffic or by the drafter."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class DriftCause(StrEnum):
    """What a change is made of, as far as categories tell."""

    NONE = "none"
    """No alarm."""
    MIX = "mix"
    """Other categories are asked for than before."""
    DRAFTER = "drafter"
    """Within categories it is accepted otherwise: drafter, target, prompts inside a category."""
    BOTH = "mix and drafter"
    UNKNOWN = "unknown"
    """An alarm of which neither part is clear."""


class DriftSide(ApiModel):
    """One of the two logs."""

    source: str
    """Where it was read."""
    requests: int
    """Requests with at least one step."""
    left_out: int
    """Requests without a step, or whose acceptance is not told."""
    acceptance_length: Figure
    """1 + Σ accepted / Σ steps."""
    acceptance_rate: Figure | None = None
    """Σ accepted / Σ drafted; None where no request tells its drafted tokens."""


class DriftWindow(ApiModel):
    """Consecutive requests of the current log."""

    first: int
    """Number of its first request, from 1."""
    requests: int
    """Requests in it."""
    begun: str | None = None
    """Time of its first request, RFC 3339, where the log has times."""
    acceptance_length: Figure
    """1 + Σ accepted / Σ steps."""
    acceptance_rate: Figure | None = None
    """Σ accepted / Σ drafted."""


class DriftChart(ApiModel):
    """One control chart of the log of each request's acceptance length."""

    name: str
    """`EWMA` or `CUSUM`."""
    definition: str
    """Its formula with its constants."""
    statistic: float
    """The largest that it came to, in either direction."""
    limit: float
    """Where it alarms: by simulation from the reference, for the run length that was asked for."""
    alarm_at: int | None = None
    """The request at which it first did, from 1; None where it never did."""
    alarm_time: str | None = None
    """When, RFC 3339, where the log has times."""
    direction: Literal["lower", "higher"] | None = None
    """Where acceptance had gone then."""


class CategoryChange(ApiModel):
    """One category's part of a change. Parts of all categories sum up to the whole."""

    category: str | None = None
    """Its name; None for requests without one."""
    reference_share: float
    """Its share of the reference's weight."""
    current_share: float
    """Its share now."""
    reference: float | None = None
    """The metric in it then; None where it had no request."""
    current: float | None = None
    """The metric in it now."""
    mix: float
    """(share now - share then) × mean of the metric then and now."""
    drafter: float
    """(metric now - metric then) × mean of the shares then and now."""


class DriftChange(ApiModel):
    """A change of a pooled metric and what it is made of (Kitagawa 1955): change = mix + drafter, exactly."""

    metric: str
    """`acceptance_length` or `acceptance_rate`."""
    weight: str
    """What a category's share is a share of."""
    change: Figure
    """Now - then."""
    mix: Figure
    """What other shares make, with its interval."""
    drafter: Figure
    """What other values within categories make, with its interval."""
    categories: list[CategoryChange]
    """By category, in the order of their names."""


class DriftReport(ApiModel):
    """A current log beside a reference."""

    schema_version: Literal["specbench.io/drift/v1"] = "specbench.io/drift/v1"
    """Version of this document."""
    reference: DriftSide
    """What was."""
    current: DriftSide
    """What is."""
    run_length: float
    """Requests between two false alarms on average, over both charts, were nothing to change."""
    false_alarm: float
    """Chance of a false alarm in a current log as long as this one."""
    charts: list[DriftChart]
    """Each request of the current log in its order."""
    windows: list[DriftWindow]
    """The current log in pieces."""
    changes: list[DriftChange]
    """The current log as a whole against the reference."""
    alarm: bool
    """Whether a chart alarmed."""
    cause: DriftCause
    """Of which part of the change of acceptance length the interval leaves out 0."""
    verdict: str
    """In one sentence."""
    limits: list[str]
    """What a reader must know."""
