"""The report of `specbench analyze drift`: whether acceptance changed, and whether traffic or drafter changed it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure


class DriftCause(StrEnum):
    """The cause of a change, as far as categories show it."""

    NONE = "none"
    """No alarm."""
    MIX = "mix"
    """The shares of the categories changed."""
    DRAFTER = "drafter"
    """Acceptance within categories changed: drafter, target, or prompts inside a category."""
    BOTH = "mix and drafter"
    """Both changed."""
    UNKNOWN = "unknown"
    """An alarm for which the intervals of both parts contain 0."""


class LoggedAcceptance(ApiModel):
    """The acceptance of requests of a log."""

    requests: int
    """Number of requests. Each has at least one step."""
    acceptance_length: Figure
    """1 + Σ accepted / Σ steps."""
    acceptance_rate: Figure | None = None
    """Σ accepted / Σ drafted; None if no request has its drafted tokens."""


class DriftSide(LoggedAcceptance):
    """One of the two logs."""

    source: str
    """File or run it was read from."""
    left_out: int
    """Requests without a step or without acceptance."""


class DriftWindow(LoggedAcceptance):
    """Consecutive requests of the current log."""

    first: int
    """Number of its first request, counted from 1."""
    begun: str | None = None
    """Time of its first request, RFC 3339; None if the log has no times."""


class DriftChart(ApiModel):
    """One control chart of each request's log acceptance length."""

    name: str
    """`EWMA` or `CUSUM`."""
    definition: str
    """Formula with its constants."""
    statistic: float
    """Largest absolute value of the statistic."""
    limit: float
    """Alarm limit, from simulations with the reference for the requested run length."""
    alarm_at: int | None = None
    """Request of the first alarm, counted from 1; None without an alarm."""
    alarm_time: str | None = None
    """Time of the first alarm, RFC 3339; None without an alarm or times."""
    direction: Literal["lower", "higher"] | None = None
    """Direction of the change at the first alarm."""


class CategoryChange(ApiModel):
    """One category's part of a change; the parts of all categories sum up to the change."""

    category: str | None = None
    """Name of the category; None for requests without one."""
    reference_share: float
    """Share of the weight in the reference."""
    current_share: float
    """Share of the weight in the current log."""
    reference: float | None = None
    """The metric in the reference; None if there was no request."""
    current: float | None = None
    """The metric in the current log; None if there was no request."""
    mix: float
    """(share now - share then) × mean of the metric then and now."""
    drafter: float
    """(metric now - metric then) × mean of the shares then and now."""


class DriftChange(ApiModel):
    """A change of a pooled metric and its parts (Kitagawa 1955): change = mix + drafter, exactly."""

    metric: str
    """`acceptance_length` or `acceptance_rate`."""
    weight: str
    """The column that a category's share is a share of: `steps` or `drafted_tokens`."""
    change: Figure
    """Current − reference."""
    mix: Figure
    """Part that comes from changed shares of the categories."""
    drafter: Figure
    """Part that comes from changed values within categories."""
    categories: list[CategoryChange]
    """Parts by category, sorted by name."""


class DriftReport(ApiModel):
    """A comparison of a current log with a reference."""

    schema_version: Literal["specbench.io/drift/v2"] = "specbench.io/drift/v2"
    """Version of this document."""
    reference: DriftSide
    """The reference log."""
    current: DriftSide
    """The current log."""
    run_length: float
    """Mean requests between two false alarms of either chart, without any change."""
    false_alarm: float
    """Probability of a false alarm in a log as long as the current one."""
    charts: list[DriftChart]
    """Control charts over the requests of the current log."""
    windows: list[DriftWindow]
    """Acceptance of the current log by window."""
    changes: list[DriftChange]
    """Change of the whole current log against the reference, by metric."""
    alarm: bool
    """Whether a chart alarmed."""
    cause: DriftCause
    """The parts of the change of acceptance length whose interval excludes 0."""
    headline: str
    """The result in one sentence."""
    limits: list[str]
    """Limits of this report."""
