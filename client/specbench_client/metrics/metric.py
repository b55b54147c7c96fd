"""The two shapes that all figures have: a ratio of sums over requests, and a percentile over requests.

A mean over requests is a ratio of sums too (over one each), so one way of resampling serves both. Every metric brings
what a reader must know: unit, formula, when it is missing, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values

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
    values: Callable[[pd.DataFrame], Values]
    percents: tuple[int, ...] = PERCENTILES
    """Percentiles that are shown: where large is bad the upper ones, where small is bad the lower ones."""


@dataclass(frozen=True)
class Ratio:
    """Σ numerator / Σ denominator over the steady requests that have both. No value can leave `lowest` to `highest`."""

    name: str
    unit: str
    definition: str
    missing: str
    origin: Origin
    parts: Callable[[pd.DataFrame], tuple[Values, Values]]
    lowest: float = 0.0
    highest: float = float("inf")

    def known(self, rows: pd.DataFrame) -> tuple[Values, Values]:
        """Return both parts, with 0 in both where either is missing, so that sums pass over such rows."""
        over, under = self.parts(rows)
        absent = np.isnan(over) | np.isnan(under)
        return np.where(absent, 0.0, over), np.where(absent, 0.0, under)

    def value(self, rows: pd.DataFrame) -> float | None:
        """Return the ratio, or None where no request has both parts."""
        over, under = self.known(rows)
        return float(over.sum() / under.sum()) if under.sum() > 0 else None


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

    def value(self, rows: pd.DataFrame) -> float | None:
        """Return the percentile, or None where no request has the measure."""
        values = self.measure.values(rows)
        known = values[~np.isnan(values)]
        return float(np.percentile(known, self.percent)) if known.size else None


def mean_of(measure: Measure) -> Ratio:
    """Return the mean over requests of a measure."""

    def parts(rows: pd.DataFrame) -> tuple[Values, Values]:
        values = measure.values(rows)
        return values, np.ones_like(values)

    definition = f"Mean over requests of: {measure.definition}"
    return Ratio(f"{measure.name}_mean", measure.unit, definition, measure.missing, measure.origin, parts)
