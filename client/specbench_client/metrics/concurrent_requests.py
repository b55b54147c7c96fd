"""What shares an engine's steps with a request: other requests in flight, and prompts computed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Values


def computed_tokens(rows: Table) -> Values:
    """Return the computed prompt tokens of each request; all of them if the engine does not report cached ones."""
    return numbers(rows, "input_tokens") - np.nan_to_num(numbers(rows, "cached_tokens"))


def mean_context(rows: Table) -> Values:
    """Return the mean number of tokens whose keys and values a step reads for each request, shape (rows,)."""
    return numbers(rows, "input_tokens") + numbers(rows, "tokens") / 2


def total_by(times: Values, amounts: Values) -> Callable[[Values], Values]:
    """Return a function of times of any shape: the sum of the amounts until then, which have the shape of `times`.

    Given first tokens and the prompt tokens that were computed for them, it counts the prompts computed by a time.
    """
    order = np.argsort(times, kind="stable")
    ordered, totals = times[order], np.append(0.0, np.cumsum(amounts[order]))
    return lambda until: totals[np.searchsorted(ordered, until, side="right")]


@dataclass(frozen=True)
class InFlight:
    """The sum, over the requests in flight, of an amount of each; with amounts of 1 their number."""

    origin: float
    """Times are relative to the first one: sums of products of absolute times in ns lose digits."""
    begun: _Moments
    ended: _Moments

    @classmethod
    def of(cls, first: Values, last: Values, amounts: Values) -> InFlight:
        """Requests that decode from `first` to `last`, in ns; those of which one is NaN are left out."""
        known = ~np.isnan(first + last + amounts)
        origin = float(first[known].min()) if known.any() else 0.0
        begun, ended = (_Moments.of(times[known] - origin, amounts[known]) for times in (first, last))
        return cls(origin, begun, ended)

    def mean(self, first: Values, last: Values) -> Values:
        """Return the mean over time between these times in ns, NaN if they are not in this order; any shape."""
        start, end = first - self.origin, last - self.origin
        total = self.begun.since(end) - self.begun.since(start) - self.ended.since(end) + self.ended.since(start)
        return np.asarray(total / np.where(last > first, last - first, np.nan), dtype=np.float64)


@dataclass(frozen=True)
class _Moments:
    """Sorted moments in ns, and sums until each of them: of the amounts, and of amount times moment."""

    moments: Values
    amounts: Values
    products: Values

    @classmethod
    def of(cls, moments: Values, amounts: Values) -> _Moments:
        order = np.argsort(moments, kind="stable")
        moments, amounts = moments[order], amounts[order]
        return cls(moments, *(np.append(0.0, np.cumsum(each)) for each in (amounts, amounts * moments)))

    def since(self, until: Values) -> Values:
        """Return, for each of these times, the sum over earlier moments of the amount times the time since then."""
        before = np.searchsorted(self.moments, until)
        return np.asarray(self.amounts[before] * until - self.products[before], dtype=np.float64)
