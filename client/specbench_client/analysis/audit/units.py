"""Units of cells and headings: what a printed number is to be multiplied by, and what no cell can be in.

A cell's own unit stands over its heading's. Some units say something else than the number seems to: a speed-up of
`+89%` may be 0.89 or 1.89, so a unit that does not belong to its quantity is refused and not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from specbench_client.analysis.audit.columns import COUNTS, SHARES, SPEEDUPS, TIMES, Column, Name

_TIMES = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
"""To ms. Both signs for micro are in use."""
_OF: tuple[tuple[tuple[Name, ...], Mapping[str, float]], ...] = (
    (TIMES, _TIMES),
    (SHARES, {"%": 0.01}),
    (SPEEDUPS, {"x": 1.0, "×": 1.0}),
    (COUNTS, {"k": 1000.0}),
)


def units_of(name: Name) -> Mapping[str, float]:
    """The units that a quantity may be printed in, each with the factor to ours; none for what has no unit."""
    return next((units for names, units in _OF if name in names), {})


def heading_unit(column: Column) -> str:
    """The unit that a heading gives its cells; empty where it gives none."""
    known = units_of(column.name) if column.name else {}
    return next((word for word in column.units if word in known), "")


def factor(name: Name, heading: str, cell: str) -> float:
    """To our unit. `heading`, `cell`: their units, empty where they have none. Raises ValueError."""
    known = units_of(name)
    if cell and cell not in known:
        others = ", ".join(known) or "none"
        raise ValueError(f"{cell!r} is no unit of {name} (its units: {others})")
    return known[cell] if cell else known.get(heading, 1.0)
