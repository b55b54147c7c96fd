"""Printed numbers with the range that their rounding leaves open.

`0.81` is any number from 0.805 to 0.815. Arithmetic is done on both ends (interval arithmetic), so that no
contradiction is an effect of rounding. Factors and divisors are positive. The lower bound of a divisor can be 0 or less
where it is the end of a confidence interval; the upper bound of the quotient is then infinite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite

_NUMBER = re.compile(
    r"^[~≈$€]*\s*(?P<number>[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)"
    r"\s*(?P<unit>%|x|×|ns|us|µs|μs|ms|s|sec|seconds|k)?$",
    re.IGNORECASE,
)
"""A comma separates thousands only: `42,3` is not a number, and is never read as 423."""
_MISSING = {"", "-", "–", "—", "n/a", "na", "none", "null", "nan", "err", "?"}


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number, or one computed from such: its value, and the least and the largest that it may be."""

    value: float
    low: float
    high: float
    printed: str = ""
    """Its text in the table; empty for a computed number."""

    def __add__(self, other: PrintedNumber) -> PrintedNumber:
        return PrintedNumber(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: PrintedNumber) -> PrintedNumber:
        return PrintedNumber(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: PrintedNumber) -> PrintedNumber:
        return PrintedNumber(self.value * other.value, self.low * other.low, self.high * other.high)

    def __truediv__(self, other: PrintedNumber) -> PrintedNumber:
        high = self.high / other.low if other.low > 0 else inf
        return PrintedNumber(self.value / other.value, self.low / other.high, high)

    def scaled(self, factor: float) -> PrintedNumber:
        """Return the number in another unit."""
        return self if factor == 1 else PrintedNumber(self.value * factor, self.low * factor, self.high * factor)

    def exceeds(self, other: PrintedNumber, tolerance: float) -> bool:
        """Return whether it is larger than rounding and this relative tolerance can explain."""
        return self.low > other.high + abs(other.high) * tolerance

    def differs(self, other: PrintedNumber, tolerance: float) -> bool:
        """Return whether the two differ by more than rounding and this relative tolerance can explain."""
        return self.exceeds(other, tolerance) or other.exceeds(self, tolerance)

    def __str__(self) -> str:
        return self.printed or f"{self.value:.4g}"


def exactly(value: float) -> PrintedNumber:
    """Return a number without rounding, such as a count."""
    return PrintedNumber(value, value, value)


def read_number(text: str) -> tuple[PrintedNumber, str] | None:
    """Return the number in a cell and its unit in lower case (empty for none); None if the cell is empty.

    Reads `0.81`, `81%`, `2.89x`, `1,200`, `$4.10`, `42.3 ms`. Units are not converted here, because their meaning
    depends on the quantity. Raises ValueError if the cell has text that is not a number.
    """
    stripped = text.strip().strip("*").strip()
    if stripped.lower() in _MISSING:
        return None
    found = _NUMBER.match(stripped)
    if found is None:
        raise ValueError(f"{stripped!r} is not a number")
    written = Decimal(found["number"].replace(",", ""))
    exponent = written.as_tuple().exponent
    assert isinstance(exponent, int)  # the pattern matches digits only, so it is neither infinite nor NaN
    half = 0.5 * 10.0 ** min(exponent, 0)
    value = float(written)
    if not isfinite(value):
        raise ValueError(f"{stripped!r} is too large")
    low = value - half if written.is_signed() else max(0.0, value - half)  # -0.0 is a small loss, rounded
    return PrintedNumber(value, low, value + half, found["number"]), (found["unit"] or "").lower()
