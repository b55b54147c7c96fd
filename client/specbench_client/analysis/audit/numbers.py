"""A number as it was printed: its value, and the range that its last digit leaves open.

`0.81` is any number from 0.805 to 0.815. Sums over such numbers are done on both ends (interval arithmetic), so that a
contradiction is never one of rounding. Factors and divisors are positive; the least that a divisor may be is not
always, where it is the end of an interval, and then the most of the quotient is open.
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
"""A comma parts thousands and nothing else: `42,3` is no number here, and never 423."""
_MISSING = {"", "-", "–", "—", "n/a", "na", "none", "null", "nan", "err", "?"}


@dataclass(frozen=True)
class Told:
    """A printed number, or one made of such: value, and the least and the most that it may be."""

    value: float
    low: float
    high: float
    printed: str = ""
    """As it stood in the table; empty for what was computed."""

    def __add__(self, other: Told) -> Told:
        return Told(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Told) -> Told:
        return Told(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Told) -> Told:
        return Told(self.value * other.value, self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Told) -> Told:
        high = self.high / other.low if other.low > 0 else inf
        return Told(self.value / other.value, self.low / other.high, high)

    def scaled(self, factor: float) -> Told:
        """The same in another unit."""
        return self if factor == 1 else Told(self.value * factor, self.low * factor, self.high * factor)

    def above(self, other: Told, tolerance: float) -> bool:
        """Whether it is larger by more than rounding and this relative tolerance can explain."""
        return self.low > other.high + abs(other.high) * tolerance

    def apart(self, other: Told, tolerance: float) -> bool:
        """Whether the two differ by more than rounding and this relative tolerance can explain."""
        return self.above(other, tolerance) or other.above(self, tolerance)

    def __str__(self) -> str:
        return self.printed or f"{self.value:.4g}"


def exactly(value: float) -> Told:
    """A number without rounding, such as a count."""
    return Told(value, value, value)


def read(text: str) -> tuple[Told, str] | None:
    """The number in a cell and its unit in small letters, empty where it has none; None where the cell has no number.

    `0.81`, `81%`, `2.89x`, `1,200`, `$4.10`, `42.3 ms`. Nothing is converted: what a unit means, its quantity says.
    Raises ValueError where there is something that is no number.
    """
    stripped = text.strip().strip("*").strip()
    if stripped.lower() in _MISSING:
        return None
    found = _NUMBER.match(stripped)
    if found is None:
        raise ValueError(f"{stripped!r} is no number")
    written = Decimal(found["number"].replace(",", ""))
    exponent = written.as_tuple().exponent
    assert isinstance(exponent, int)  # it is neither infinite nor NaN: the pattern has digits
    half = 0.5 * 10.0 ** min(exponent, 0)
    value = float(written)
    if not isfinite(value):
        raise ValueError(f"{stripped!r} is too large")
    low = value - half if written.is_signed() else max(0.0, value - half)  # -0.0 is a small loss, rounded
    return Told(value, low, value + half, found["number"]), (found["unit"] or "").lower()
