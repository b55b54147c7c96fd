"""Selects the cells of a run for its plots, and describes figures for their captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.plots.series import PlotValue, Series, plot_value
from specbench_client.report.plots.styles import Style
from specbench_client.report.text.text_table import DASH

INVALID = "Hollow: a check made it invalid."
PLACED_MIN = 0.95
"""Share of an arm's requests whose steps must have a known position for the arm to be drawn by position.

Engines that list only the steps with drafts leave the other requests out, and those are not a random sample: what is
left of an n-gram drafter may have an acceptance length of 1.00 where the arm's is 1.24.
"""


def workloads(summary: RunSummary) -> list[tuple[str, list[Cell]]]:
    """Return each workload with its cells; the name is empty if there is only one workload."""
    names = list(dict.fromkeys(cell.workload for cell in summary.cells))
    several = len(names) > 1
    return [(name if several else "", [cell for cell in summary.cells if cell.workload == name]) for name in names]


def arms(cells: Iterable[Cell]) -> list[str]:
    """Return the names of the arms without the baseline."""
    return [arm for arm in dict.fromkeys(cell.arm for cell in cells) if arm != BASELINE_NAME]


def arm_label(arm: str) -> str:
    """Return the arm's name for a legend; the baseline is called so."""
    return "baseline" if arm == BASELINE_NAME else arm


def loads(cells: Iterable[Cell]) -> list[Level]:
    """Return the load levels of these cells, the lightest first."""
    return sorted({cell.level for cell in cells}, key=lambda level: level.order)


def load_name(levels: Sequence[Level]) -> str:
    """Return the label of the load axis."""
    closed = all(level.concurrency is not None for level in levels)
    return "concurrency" if closed else "conversations a second"


def at_load(level: Level, workload: str = "") -> str:
    """Return a panel's title: the workload, where it has a name, and the load."""
    return ", ".join(part for part in (workload, f"at {level.words}") if part)


def cell_of(cells: Iterable[Cell], arm: str, level: Level) -> Cell | None:
    """Return the cell of an arm at a level; None where it was not measured."""
    return next((cell for cell in cells if cell.arm == arm and cell.level == level), None)


def lightest(summary: RunSummary, include: Callable[[Cell], object]) -> list[tuple[str, list[Cell]]]:
    """Return each workload's title and its cells at the lightest load that pass the filter, without the baseline's."""
    found = []
    for workload, cells in workloads(summary):
        level, named = loads(cells)[0], arms(cells)
        mine = [cell for cell in cells if cell.level == level and cell.arm in named and include(cell)]
        if mine:
            found.append((at_load(level, workload), mine))
    return found


def is_placed(cell: Cell) -> bool:
    """Whether the positions of enough of the cell's steps are known to draw it by position."""
    share = cell.breakdown.placed_share
    return share is None or share >= PLACED_MIN


def placement_note(summary: RunSummary) -> str:
    """For a caption: arms that are not drawn, or drawn in part, because positions of steps are unknown."""
    notes = {}
    for _, cells in lightest(summary, lambda cell: bool(cell.breakdown.by_position)):
        for cell in cells:
            share = cell.breakdown.placed_share
            if share is not None and share < 1:
                drawn = "drawn from" if is_placed(cell) else "not drawn: its engine reports where steps begin in"
                notes[cell.arm] = f"{cell.arm} is {drawn} only {share:.0%} of its requests."
    return " ".join(notes.values())


def figure_of(cell: Cell | None, name: str) -> Figure | None:
    """Return a figure of the cell; None if it has no value."""
    figure = None if cell is None else cell.figures.get(name)
    return figure if figure is not None and figure.value is not None else None


def known(figures: Iterable[Figure | None]) -> list[Figure]:
    """Return those that have a value."""
    return [figure for figure in figures if figure is not None and figure.value is not None]


def compared(cell: Cell | None, figure: Figure | None) -> PlotValue | None:
    """Return a comparison; without its interval if there are too few repeats to cover the variation between runs."""
    return None if cell is None else plot_value(figure, valid=cell.valid, bounds=not cell.too_few_repeats)


def series_of(name: str, style: Style, readings: Iterable[PlotValue | None]) -> Series:
    """Return a series under the name that the legend shows."""
    return Series(arm_label(name), style, tuple(readings))


def rests_on(figures: Sequence[Figure], *, bounds: bool = True) -> str:
    """Describe figures for a caption: definition, number of sampling units and method of the intervals.

    `bounds`: whether intervals are drawn.
    """
    if not figures:
        return ""
    return " ".join((f"{_clause(figures[0].definition)}.", sizes(figures), *([intervals(figures)] if bounds else [])))


def _clause(text: str) -> str:
    """Return the text before the first semicolon outside of brackets; what follows are details."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == ";" and depth == 0:
            return text[:place]
    return text


def sizes(figures: Sequence[Figure]) -> str:
    """Return the number of sampling units: `n 20.`, or `n 18 to 20.`."""
    found = sorted({figure.n for figure in figures})
    return f"n {found[0]}." if len(found) == 1 else f"n {found[0]} to {found[-1]}."


def intervals(figures: Sequence[Figure]) -> str:
    """Return level and methods of the intervals."""
    held = [figure.interval for figure in figures if figure.interval]
    if not held:
        return "No intervals."
    methods = sorted({each.method.partition(";")[0] for each in held})
    return f"Intervals: {held[0].level:.0%}, {' or '.join(methods)}."


def amount(value: float | None, digits: int = 1) -> str:
    """Return a number for the end of a bar."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}f}"
