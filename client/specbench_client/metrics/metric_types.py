"""The types of metrics: a ratio of sums over requests, and a percentile over requests; `catalog` lists the metrics.

A mean over requests is also a ratio of sums (of values over ones), so one kind of resampling serves both. Every metric
has what a reader needs: unit, formula, when it is missing, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np

from specbench_api.spec.latency_percentiles import REPORTED_PERCENTS
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import Mask, Values


class TimingFault(IntEnum):
    """Why some times of a point are not the engine's and are left out; each includes the times of those before it."""

    NONE = 0
    COALESCED = 1
    """TTFT."""
    AT_ONCE = 2
    """Time per token and per step."""

    @property
    def reason(self) -> str:
        """Why a figure is missing; empty for NONE."""
        return _FAULT_REASONS[self]

    @classmethod
    def of(cls, rows: Table) -> TimingFault:
        """Return the worst one among the rows."""
        return cls(int(rows.array("timing_fault").max(initial=0)))


_FAULT_REASONS = (
    "",
    "chunks arrived only with those of later steps (ChunksCoalesced)",
    "half of an answer arrived at once (ChunksCoalesced)",
)


SENT_LATE = "the client sent too late (ClientSaturated)"
"""Why a figure is missing that late sends change too much, see `metrics.late_sends`."""


class FigureOrigin(StrEnum):
    """The side that counted. In a figure, `acceptance` is replaced by the records' own acceptance source."""

    CLIENT = "client"
    ENGINE = "engine"
    BOTH = "both"
    ACCEPTANCE = "acceptance"

    @property
    def description(self) -> str:
        """The origin as shown in the reference documentation."""
        return "engine (`acceptance_source`)" if self is FigureOrigin.ACCEPTANCE else self.value


Reason = Callable[[Table], str]
"""Returns the one reason why none of the rows has a value; empty if there are several."""


@dataclass(frozen=True)
class RequestMetric:
    """A number per request: `values` returns an array of shape (rows,), with NaN for requests without it."""

    name: str
    unit: str
    definition: str
    missing: str
    origin: FigureOrigin
    values: Callable[[Table], Values]
    percents: tuple[int, ...] = REPORTED_PERCENTS
    """Percentiles to report: upper ones if large values are bad, lower ones if small values are bad."""
    long_tailed: bool = False
    """Whether a few requests have many times the usual value, as latencies of whole answers do and speeds do not."""
    why: Reason | None = None


@dataclass(frozen=True)
class RatioMetric:
    """Σ numerator / Σ denominator over the steady requests that have both.

    `parts` returns both, shape (rows,) each; values are between `lowest` and `highest`.
    """

    name: str
    unit: str
    definition: str
    missing: str
    origin: FigureOrigin
    parts: Callable[[Table], tuple[Values, Values]]
    lowest: float = 0.0
    highest: float = float("inf")
    long_tailed: bool = False
    """See `RequestMetric`: the interval is a bootstrap-t interval."""
    why: Reason | None = None

    def value(self, rows: Table) -> float | None:
        """Return the ratio, or None if no request has both parts."""
        over, under = np.empty(len(rows)), np.empty(len(rows))
        start = 0
        for piece in rows.pieces():
            some = slice(start, start + len(piece))
            over[some], under[some] = self.parts(piece)
            start += len(piece)
        known = ~(np.isnan(over) | np.isnan(under))
        total = under[known].sum()
        return float(over[known].sum() / total) if total > 0 else None


@dataclass(frozen=True)
class PercentileMetric:
    """A percentile of a metric over the steady requests, by linear interpolation between neighbours."""

    measure: RequestMetric
    percent: int

    @property
    def name(self) -> str:
        return f"{self.measure.name}_p{self.percent}"

    @property
    def definition(self) -> str:
        return f"Percentile {self.percent} over requests (linear interpolation) of: {self.measure.definition}"

    def value(self, rows: Table) -> float | None:
        """Return the percentile, or None if no request has the metric."""
        values = self.measure.values(rows)
        return self.among(values[~np.isnan(values)])

    def among(self, known: Values) -> float | None:
        """Return the percentile of the metric's known values, shape (requests,), or None if there are none."""
        return float(np.percentile(known, self.percent)) if known.size else None


def mean_metric(measure: RequestMetric) -> RatioMetric:
    """Return the mean over requests of a metric."""

    def parts(rows: Table) -> tuple[Values, Values]:
        values = measure.values(rows)
        return values, np.ones_like(values)

    definition = f"Mean over requests of: {measure.definition}"
    return RatioMetric(
        f"{measure.name}_mean",
        measure.unit,
        definition,
        measure.missing,
        measure.origin,
        parts,
        long_tailed=measure.long_tailed,
        why=measure.why,
    )


NO_ANSWER = "no request was answered in the steady state"


def why_missing(metric: RequestMetric | RatioMetric, rows: Table) -> str:
    """Return why no row has a value of the metric: the reason that applies, if it is one, else all of them."""
    if not len(rows):
        return NO_ANSWER
    return (metric.why(rows) if metric.why else "") or metric.missing


def why_no_first_token(rows: Table) -> str:
    """Return why no answer has the time of its first token; empty if some have."""
    if not rows.known("last_token_ns").any():
        return "no answer has content"
    if not rows.known("first_token_ns").any():
        return "no answer was streamed"
    if starts_uncounted(rows).all():
        return "answers begin with blank text or <think>, and their chunks are not counted (UncountedStart)"
    return ""


def starts_uncounted(rows: Table) -> Mask:
    """Return the answers whose first chunk may be no token, shape (rows,); none of a sweep's rows."""
    return np.isnan(rows.array("first_tokens")) if "first_tokens" in rows else np.zeros(len(rows), dtype=np.bool_)
