"""A figure: a value with its unit, definition, sample size, interval and source; the verdict on a ratio; its cell."""

from __future__ import annotations

import operator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel


class StatusFigure(StrEnum):
    """Names of the figures in `status`.

    Latencies have one figure per percentile of `spec.percentiles`: `ttft_ms_p50`.
    """

    ACCEPTANCE_LENGTH = "acceptance_length_emitted_pooled"
    ACCEPTANCE_LENGTH_VERIFIED = "acceptance_length_verified_pooled"
    ACCEPTANCE_RATE = "acceptance_rate"
    USER_TPS = "user_tps_p50"
    OUTPUT_TPS = "output_tps"
    TTFT_MS = "ttft_ms"
    TPOT_MS = "tpot_ms"
    E2E_MS = "e2e_ms"


COUNTERS_SOURCE = "engine (counters)"
"""Source of acceptance by the engine's counters, which answers do not report."""


class Verdict(StrEnum):
    """Verdict on a ratio: of an arm to its baseline, or of a later result to an earlier one."""

    FASTER = "Faster"
    SLOWER = "Slower"
    BETTER = "Better"
    """Of figures that are not all speeds; more may be better or worse."""
    WORSE = "Worse"
    INDISTINGUISHABLE = "Indistinguishable"
    """The interval contains 1."""
    UNCLEAR = "Unclear"
    """The interval excludes 1, but with this many comparisons that happens by chance."""
    TOO_FEW_REPEATS = "TooFewRepeats"
    """The interval does not include run-to-run variation."""
    NO_INTERVAL = "NoInterval"
    NOT_COMPARABLE = "NotComparable"
    """A check invalidated the comparison, or nothing was paired."""

    @property
    def is_claim(self) -> bool:
        """Whether a difference is claimed."""
        return self in (Verdict.FASTER, Verdict.SLOWER, Verdict.BETTER, Verdict.WORSE)


class CellReference(ApiModel):
    """What identifies the cell that a row of a document is about."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level: `8`, `2.5/s`, `trace`."""

    @property
    def place(self) -> str:
        """Description for messages: `eagle3 on chat at 8`."""
        return f"{self.arm} on {self.workload} at {self.load}"


def _is_none(value: object) -> bool:
    return value is None


class FigureInterval(ApiModel):
    """A confidence interval, and how it was computed."""

    low: float
    """Lower bound."""
    high: float
    """Upper bound."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How it was computed, and its sampling unit."""
    freedom: float | None = None
    """Degrees of freedom of the t distribution that determines its width; None for other methods."""
    runs_share: Annotated[float | None, Field(exclude_if=_is_none)] = None
    """Share of its squared width that is differences between `runs`; the rest is that of prompts. Left out of
    documents where the two were not separated."""
    runs: Annotated[Literal["repeats", "launches"] | None, Field(exclude_if=_is_none)] = None
    """What `runs_share` is about. With a launch for each repeat, what else differs between repeats is in it, too."""


# What may be shown is decided in `minimum_samples` and when a figure is made; tables, pages, plots, spreadsheets and
# documents only render the figure.


WIDE = 3.0
"""An interval of a ratio is too wide for a figure if its upper bound is more than this many times its lower one."""
TOO_WIDE = "interval too wide"


def counted(count: int, unit: str) -> str:
    """Return `1 repeat`, `2 repeats`."""
    return f"{count} {unit}{'s' if count != 1 else ''}"


class Figure(ApiModel):
    """One number with everything needed to interpret it, or the reason why it is missing."""

    value: float | None = None
    """The number, in `unit`; None if it is missing."""
    unit: str
    """Unit; `ratio` for ratios."""
    definition: str
    """Definition in one sentence."""
    n: int
    """Number of sampling units."""
    interval: FigureInterval | None = None
    """Confidence interval; None if it is missing."""
    missing: Annotated[str, Field(exclude_if=operator.not_)] = ""
    """Why the value or the interval is missing; empty, and left out of documents, if neither is, or if the figure never
    has it."""
    source: str
    """Origin of the data: client, engine (per_request, counters), or both."""

    def without_interval(self, why: str) -> Figure:
        """Return the figure without its interval, with the reason; unchanged if that is empty."""
        return self.model_copy(update={"interval": None, "missing": why}) if why else self

    def without_value(self, why: str) -> Figure:
        """Return the figure without its value and interval, with the reason."""
        return self.model_copy(update={"value": None, "interval": None, "missing": why})

    def within(self, low: float, high: float = float("inf")) -> Figure:
        """Return the figure with its interval limited to possible values, which its method then states.

        If the value itself is impossible by more than rounding, the interval is not changed.
        """
        bounds, value = self.interval, self.value
        if bounds is None or value is None or not low - 1e-9 <= value <= high + 1e-9:
            return self
        limited = {"low": max(low, bounds.low), "high": min(high, bounds.high)}
        if limited == {"low": bounds.low, "high": bounds.high}:
            return self
        most = f"to {high:g}" if high < float("inf") else "on"
        method = f"{bounds.method}; limited to possible values, from {low:g} {most}"
        return self.model_copy(update={"interval": bounds.model_copy(update={**limited, "method": method})})

    @property
    def factor(self) -> str:
        """Text of a ratio: `1.48x [1.38, 1.60]`, `1.48x` without an interval; empty without a value."""
        if self.value is None:
            return ""
        bounds = self.interval
        return f"{self.value:.2f}x" + (f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else "")

    @property
    def is_too_wide(self) -> bool:
        """Whether the interval of a ratio is too wide for a figure, whatever it contains."""
        return self.interval is not None and self.interval.high > WIDE * self.interval.low

    @property
    def excluded(self) -> str:
        """What the interval of a ratio excludes: `excludes a gain above 29%`; empty if no gain up to 100 %."""
        most = 100 * (self.interval.high - 1) if self.interval else 0.0
        return f"excludes a gain above {most:.0f}%" if 0 < most <= 100 else ""
