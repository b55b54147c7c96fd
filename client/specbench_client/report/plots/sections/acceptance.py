"""Acceptance length by category, and acceptance by position of the draft; both at the lightest load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, takewhile

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import Series, reading, told
from specbench_client.report.plots.dots import Dots, draw_dots, height_of
from specbench_client.report.plots.ink import Style, companies, styles_of
from specbench_client.report.plots.loads import OverLoads, draw_over_loads
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arms,
    figure_of,
    intervals,
    known,
    lightest,
    rests_on,
    series_of,
    sizes,
)
from specbench_client.report.plots.sections.section import Drawn

KINDS = {"accepted_conditional": "given the one before", "accepted_joint": "all up to here"}
"""Figures by position, and what stands over their panels."""
ALL = "all"


def by_category(summary: RunSummary) -> Drawn | None:
    """A panel a workload and company of arms; a row a category, and one for all of them."""
    looks = styles_of(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, partial(figure_of, name=Headline.ACCEPTANCE_LENGTH)):
        rows = (*sorted({name for cell in cells for name in cell.by_category}), ALL)
        for together in companies(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            data = Dots(rows, tuple(_row_marks(cell, rows, looks) for cell in mine), "tokens a step", level=1.0)
            words = told([_overall(cell, looks) for cell in mine], [ALL])
            panels.append(Panel(partial(draw_dots, data=data), title, words, height_of(len(rows), len(mine))))
        drawn += known(_length(cell, row) for cell in cells for row in rows)
    caption = f"{rests_on(drawn)} The dashed line is the baseline: one token a step. {INVALID}"
    return Drawn(tuple(panels), caption) if panels else None


def _row_marks(cell: Cell, rows: Sequence[str], looks: Mapping[str, Style]) -> Series:
    readings = (reading(_length(cell, row), valid=cell.valid) for row in rows)
    return series_of(cell.arm, looks[cell.arm], readings)


def _overall(cell: Cell, looks: Mapping[str, Style]) -> Series:
    return series_of(cell.arm, looks[cell.arm], [reading(_length(cell, ALL))])


def _length(cell: Cell, row: str) -> Figure | None:
    figures = cell.figures if row == ALL else cell.by_category.get(row, {})
    return figures.get(Headline.ACCEPTANCE_LENGTH)


def by_position(summary: RunSummary) -> Drawn | None:
    """Two panels a workload and company of arms: chance of each position given the one before, and with all before."""
    looks = styles_of(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, partial(figure_of, name="accepted_joint_1")):
        for together in companies(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            for kind, meaning in KINDS.items():
                data = _positions(kind, mine, looks)
                words = told(data.series, [f"position {each}" for each in data.labels])
                panels.append(Panel(partial(draw_over_loads, data=data), f"{meaning}, {title}", words))
                drawn += known(figure for cell in mine for figure in _by_position(cell, kind))
    if not panels:
        return None
    caption = (
        "Share of draft steps that accepted the draft at each position, given that the one before was accepted"
        f" (conditional), and together with all before it (joint). {sizes(drawn)} {intervals(drawn)} {INVALID}"
    )
    return Drawn(tuple(panels), caption)


def _positions(kind: str, cells: Sequence[Cell], looks: Mapping[str, Style]) -> OverLoads:
    longest = max(len(_by_position(cell, kind)) for cell in cells)
    lines = []
    for cell in cells:
        figures = _by_position(cell, kind)
        readings = [reading(each, valid=cell.valid) for each in figures] + [None] * (longest - len(figures))
        lines.append(series_of(cell.arm, looks[cell.arm], readings))
    places = tuple(str(place + 1) for place in range(longest))
    return OverLoads(places, tuple(lines), "position in the draft", "share accepted", from_zero=True)


def _by_position(cell: Cell, kind: str) -> list[Figure | None]:
    """The figure of each position, as far as there are any."""
    places = takewhile(lambda place: f"{kind}_{place}" in cell.figures, count(1))
    return [cell.figures[f"{kind}_{place}"] for place in places]
