"""The two shapes that all figures have: a ratio of sums over requests, and a percentile over requests.

A mean over requests is a ratio of sums too (over one each), so one way of resampling serves both. Every metric brings
what a reader must know: unit, formula, when it is missing, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.rows import Columns, pieces

PERCENTILES = (50, 95, 99)


class Origin(StrEnum):
    """Who counted. `acceptance` is spelled out in a figure by the records' own acceptance source."""

    CLIENT = "client"
    ENGINE = "engine"
    BOTH = "both"
    ACCEPTANCE = "acceptance"

    @property
    def told(self) -> str:
        """For people who read about a figure, not one."""
        return "engine; per step or per request, as the record says" if self is Origin.ACCEPTANCE else self.value


@dataclass(frozen=True)
class Measure:
    """A number of one request; NaN where the request does not have it."""

    name: str
    unit: str
    definition: str
    missing: str
    origin: Origin
    values: Callable[[Columns], Values]
    percents: tuple[int, ...] = PERCENTILES
    """Percentiles that are shown: where large is bad the upper ones, where small is bad the lower ones."""
    long_tailed: bool = False
    """Whether a few requests have many times the usual: whole answers have, paces have not."""


@dataclass(frozen=True)
class Ratio:
    """Σ numerator / Σ denominator over the steady requests that have both. No value can leave `lowest` to `highest`."""

    name: str
    unit: str
    definition: str
    missing: str
    origin: Origin
    parts: Callable[[Columns], tuple[Values, Values]]
    lowest: float = 0.0
    highest: float = float("inf")
    long_tailed: bool = False
    """See `Measure`: its interval is studentised."""

    def of(self, rows: Columns) -> Parts:
        """Return both parts of each row; whoever asks several things of them asks for them once."""
        parts = [self.parts(piece) for piece in pieces(rows)]
        over, under = (np.concatenate(side) for side in zip(*parts, strict=True))
        known = ~(np.isnan(over) | np.isnan(under))
        return Parts(np.where(known, over, 0.0), np.where(known, under, 0.0), known)

    def value(self, rows: Columns) -> float | None:
        """Return the ratio, or None where no request has both parts."""
        return self.of(rows).value


@dataclass(frozen=True)
class Parts:
    """Numerator and denominator of each row, 0 in both where either is missing, so that sums pass over such rows."""

    over: Values
    under: Values
    known: Mask
    """Which rows have both."""

    @property
    def value(self) -> float | None:
        """The ratio of the sums, or None where no row has both parts."""
        return float(self.over.sum() / self.under.sum()) if self.under.sum() > 0 else None


@dataclass(frozen=True)
class Percentile:
    """A percentile of a measure over the steady requests, by linear interpolation between neighbours."""

    measure: Measure
    percent: int

    @property
    def name(self) -> str:
        return f"{self.measure.name}_p{self.percent}"

    @property
    def definition(self) -> str:
        return f"{self.percent}th percentile over requests (linear interpolation) of: {self.measure.definition}"

    def value(self, rows: Columns) -> float | None:
        """Return the percentile, or None where no request has the measure."""
        values = self.measure.values(rows)
        return self.among(values[~np.isnan(values)])

    def among(self, known: Values) -> float | None:
        """Return the percentile of the measure's known values, or None where there are none."""
        return float(np.percentile(known, self.percent)) if known.size else None


def mean_of(measure: Measure) -> Ratio:
    """Return the mean over requests of a measure."""

    def parts(rows: Columns) -> tuple[Values, Values]:
        values = measure.values(rows)
        return values, np.ones_like(values)

    definition = f"Mean over requests of: {measure.definition}"
    return Ratio(
        f"{measure.name}_mean",
        measure.unit,
        definition,
        measure.missing,
        measure.origin,
        parts,
        long_tailed=measure.long_tailed,
    )
