"""Cells of a run as the plots ask for them, and figures in words for their captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.columns import DASH
from specbench_client.report.plots.data import Reading, Series, reading
from specbench_client.report.plots.ink import Style

INVALID = "Hollow: a check made it invalid."


def workloads(summary: RunSummary) -> list[tuple[str, list[Cell]]]:
    """Each workload with its cells; it has a name only where there are several."""
    names = list(dict.fromkeys(cell.workload for cell in summary.cells))
    several = len(names) > 1
    return [(name if several else "", [cell for cell in summary.cells if cell.workload == name]) for name in names]


def arms(cells: Iterable[Cell]) -> list[str]:
    """Names of the arms, the baseline left out."""
    return [arm for arm in dict.fromkeys(cell.arm for cell in cells) if arm != BASELINE_NAME]


def arm_label(arm: str) -> str:
    """The baseline by what it is."""
    return "baseline" if arm == BASELINE_NAME else arm


def loads(cells: Iterable[Cell]) -> list[Level]:
    """The levels of these cells, the lightest first."""
    return sorted({cell.level for cell in cells}, key=lambda level: level.order)


def load_name(levels: Sequence[Level]) -> str:
    """What the axis of these levels is called."""
    closed = all(level.concurrency is not None for level in levels)
    return "concurrency" if closed else "conversations a second"


def at_load(level: Level, workload: str = "") -> str:
    """A panel's title: the workload, where it has a name, and the load."""
    return ", ".join(part for part in (workload, f"at {level.words}") if part)


def cell_of(cells: Iterable[Cell], arm: str, level: Level) -> Cell | None:
    """The cell of an arm at a level; None where it was not measured."""
    return next((cell for cell in cells if cell.arm == arm and cell.level == level), None)


def lightest(summary: RunSummary, tells: Callable[[Cell], object]) -> list[tuple[str, list[Cell]]]:
    """Each workload's title and its cells at its lightest load that tell something, the baseline's left out."""
    found = []
    for workload, cells in workloads(summary):
        level, named = loads(cells)[0], arms(cells)
        mine = [cell for cell in cells if cell.level == level and cell.arm in named and tells(cell)]
        if mine:
            found.append((at_load(level, workload), mine))
    return found


def figure_of(cell: Cell | None, name: str) -> Figure | None:
    """A figure of a cell that has a value."""
    figure = None if cell is None else cell.figures.get(name)
    return figure if figure is not None and figure.value is not None else None


def known(figures: Iterable[Figure | None]) -> list[Figure]:
    """Those that have a value."""
    return [figure for figure in figures if figure is not None and figure.value is not None]


def compared(cell: Cell | None, figure: Figure | None) -> Reading | None:
    """A figure that compares; without its interval where too few repeats leave out of it what runs do."""
    return None if cell is None else reading(figure, valid=cell.valid, bounds=not cell.too_few_repeats)


def series_of(name: str, style: Style, readings: Iterable[Reading | None]) -> Series:
    """A series under the name that people read."""
    return Series(arm_label(name), style, tuple(readings))


def rests_on(figures: Sequence[Figure], *, bounds: bool = True) -> str:
    """The definition, how many sampling units these figures rest on, and how their intervals were made.

    bounds: whether intervals are drawn.
    """
    if not figures:
        return ""
    return " ".join((f"{_clause(figures[0].definition)}.", sizes(figures), *([intervals(figures)] if bounds else [])))


def _clause(text: str) -> str:
    """What stands before the first semicolon that no bracket holds: what follows is of one cell, or a detail."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == ";" and depth == 0:
            return text[:place]
    return text


def sizes(figures: Sequence[Figure]) -> str:
    """Over how many sampling units: `n 20.`, or `n 18 to 20.`."""
    found = sorted({figure.n for figure in figures})
    return f"n {found[0]}." if len(found) == 1 else f"n {found[0]} to {found[-1]}."


def intervals(figures: Sequence[Figure]) -> str:
    """At which level, and how, without the numbers of one cell."""
    held = [figure.interval for figure in figures if figure.interval]
    if not held:
        return "No intervals."
    methods = sorted({each.method.partition(";")[0] for each in held})
    return f"Intervals: {held[0].level:.0%}, {' or '.join(methods)}."


def amount(value: float | None, digits: int = 1) -> str:
    """A number at a bar's end."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}f}"
