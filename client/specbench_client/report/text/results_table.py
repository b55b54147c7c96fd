"""The cells of a run as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.api_model import in_words
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.latency_percentiles import PERCENTILES, TERMINAL_STATISTICS
from specbench_client.documents.figure import COUNTERS_SOURCE, TOO_WIDE, Figure, StatusFigure, Verdict
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    TextTable,
    cell_place,
    mark_simulated,
    number,
    percent,
    with_interval,
)
from specbench_client.trust.check_type import list_names

# Columns of a cell, shared by terminal, Markdown and page.
#
# A missing value is a dash, never 0. A speed-up is shown with its interval, or with the reason why it has none; if the
# interval contains 1, it is marked `indistinguishable`.


@dataclass(frozen=True)
class CellColumn:
    """One column: its title, the text of a cell's field, and whether it contains numbers."""

    title: str
    text: Callable[[Cell], str]
    numeric: bool = True
    figures: Sequence[str] = ()
    """The figures that it shows, if the table has to state why one of them is missing."""


INVALID_STYLE = "red"
"""Style of the rows of invalid cells."""
CATEGORY_COLUMNS = (
    "Arm",
    "Workload",
    "Load",
    "Category",
    f"Speed-up {AT_LEVEL}",
    f"TPOT speed-up {AT_LEVEL}",
    f"AL emitted {AT_LEVEL}",
    f"Accepted / drafted {AT_LEVEL}",
)
_CATEGORY_WORDS = ("Arm", "Workload", "Category")


def cell_columns(summary: RunSummary, statistics: Sequence[str] = PERCENTILES) -> list[CellColumn]:
    """Return the columns. `statistics` of each latency: suffixes of figures, such as `p90` or `mean`."""
    columns = [
        *_place_columns(summary),
        CellColumn(f"Speed-up {AT_LEVEL}", lambda cell: speedup_text(cell, cell.speedup)),
        CellColumn(f"TPOT speed-up {AT_LEVEL}", lambda cell: speedup_text(cell, cell.tpot_speedup)),
        CellColumn("AL emitted", lambda cell: number(cell.value(StatusFigure.ACCEPTANCE_LENGTH))),
        CellColumn("AL verified", _verified),
        CellColumn("Accepted", _acceptance),
        *_latency_columns(statistics, " ", " / "),
        CellColumn("Output tok/s", lambda cell: number(cell.value(StatusFigure.OUTPUT_TPS), 1)),
        CellColumn("Steady", lambda cell: percent(steady_share(cell), 0)),
    ]
    if summary.slo:
        rate = CellColumn(
            f"Goodput req/s {AT_LEVEL}",
            lambda cell: with_interval(cell.goodput.rate if cell.goodput else None),
        )
        columns += [rate, CellColumn("In time", _met)]
    return [*columns, CellColumn("Findings", lambda cell: ", ".join(cell.findings) or DASH, numeric=False)]


def terminal_columns(summary: RunSummary, statistics: Sequence[str] = TERMINAL_STATISTICS) -> list[CellColumn]:
    """Return fewer and narrower columns than the page has. `statistics`: see `cell_columns`."""
    columns = [
        *_place_columns(summary),
        CellColumn(f"Speed-up {AT_LEVEL}", lambda cell: speedup_text(cell, cell.speedup)),
        CellColumn("AL", _length),
        CellColumn("Acc.", _acceptance),
        *_latency_columns(statistics, "\n", "/"),
        CellColumn("tok/s", lambda cell: number(cell.value(StatusFigure.OUTPUT_TPS), 1)),
    ]
    if summary.slo:
        in_time = CellColumn(
            "In time\nreq/s",
            lambda cell: f"{number(cell.goodput.rate.value if cell.goodput else None)} ({_met(cell)})",
        )
        columns.append(in_time)
    return [*columns, CellColumn("Findings", lambda cell: "\n".join(cell.findings) or DASH, numeric=False)]


def _place_columns(summary: RunSummary) -> list[CellColumn]:
    """Return arm, workload and load; the workload only where there are several."""
    several = len({cell.workload for cell in summary.cells}) > 1
    workload = [CellColumn("Workload", lambda cell: cell.workload, numeric=False)] if several else []
    arm, load = (
        CellColumn("Arm", lambda cell: cell.arm, numeric=False),
        # In a run without a baseline, no speed-up states that a load is invalid.
        CellColumn("Load", lambda cell: cell.level.label + " (invalid)" * (_is_alone(cell) and not cell.valid)),
    )
    return [arm, *workload, load]


def speedup_text(cell: Cell, figure: Figure | None) -> str:
    """Return a speed-up with its interval and, where it contains 1, `indistinguishable` or `interval too wide`.

    `unclear`: the interval excludes 1, but not after the correction for the number of comparisons. A dash in a run
    without a baseline.
    """
    text = "baseline" if cell.arm == BASELINE_NAME else with_interval(figure)
    if not cell.valid and not _is_alone(cell):
        return f"{text} invalid" if text != DASH else "invalid"
    bounds = figure.interval if figure else None
    if figure and bounds and bounds.low <= 1 <= bounds.high:
        return f"{text} {TOO_WIDE if figure.is_too_wide else in_words(Verdict.INDISTINGUISHABLE)}"
    claimed = cell.claims.overall if cell.claims and figure is cell.speedup else None
    return f"{text} {in_words(claimed)}" if claimed is Verdict.UNCLEAR else text


def _is_alone(cell: Cell) -> bool:
    return cell.arm != BASELINE_NAME and cell.speedup is None


def arrival_text(summary: RunSummary) -> str:
    """Return the arrival process, which is the same in all cells of a run."""
    return "; ".join(dict.fromkeys(cell.arrivals.words for cell in summary.cells))


def steady_share(cell: Cell) -> float | None:
    """Return the steady windows' share of all the cell's points; None where none has one."""
    windows = [window for window in cell.windows if window and window.share > 0]
    whole_s = sum(window.length_s / window.share for window in windows)
    return sum(window.length_s for window in windows) / whole_s if whole_s else None


def _ms(value: float | None) -> str:
    return number(value, 0 if value is not None and value >= 100 else 1)


def _latency_columns(statistics: Sequence[str], after_title: str, separator: str) -> list[CellColumn]:
    """Return a column for each latency with these statistics."""
    heading = after_title + separator.join(statistics)
    names = {title: [f"{name}_{each}" for each in statistics] for title, name in _LATENCIES.items()}
    return [CellColumn(title + heading, _joined_ms(each, separator), figures=each) for title, each in names.items()]


def _joined_ms(names: Sequence[str], separator: str) -> Callable[[Cell], str]:
    return lambda cell: separator.join(_ms(cell.value(name)) for name in names)


def _acceptance(cell: Cell) -> str:
    return percent(cell.value(StatusFigure.ACCEPTANCE_RATE), 0) + _counted_mark(cell, StatusFigure.ACCEPTANCE_RATE)


def _verified(cell: Cell) -> str:
    name = StatusFigure.ACCEPTANCE_LENGTH_VERIFIED
    return number(cell.value(name)) + _counted_mark(cell, name)


def _length(cell: Cell) -> str:
    """Return the emitted length; the verified one if only counters have it."""
    emitted = cell.value(StatusFigure.ACCEPTANCE_LENGTH)
    is_counted = _counted_mark(cell, StatusFigure.ACCEPTANCE_LENGTH_VERIFIED)
    return _verified(cell) if emitted is None and is_counted else number(emitted)


_COUNTED_MARK = "*"


def _counted_mark(cell: Cell, name: str) -> str:
    figure = cell.figures.get(name)
    return _COUNTED_MARK if figure and figure.source == COUNTERS_SOURCE else ""


def _met(cell: Cell) -> str:
    return percent(cell.goodput.slo_attainment.value if cell.goodput else None, 0)


_LATENCIES = {"TTFT ms": "ttft_ms", "TPOT ms": "tpot_ms", "E2E ms": "e2e_ms"}
"""Title of a latency → its figures without their suffix."""


_OPTIONAL = ("Acc.", "E2E ms", "TTFT ms", "tok/s", "Findings", "TPOT ms", "J/token", "AL")
"""Columns, by the first line of their title, that a narrow terminal leaves out, the first one first; findings are
listed below the table."""


def cells_table(summary: RunSummary, statistics: Sequence[str] = TERMINAL_STATISTICS) -> TextTable:
    """Return the cells for a terminal, one line each. `statistics`: see `cell_columns`."""
    named = mark_simulated(summary.name, simulated=summary.simulated)
    targets = f"in time: {summary.slo.words}" if summary.slo else ""
    title = ": ".join(part for part in (named, arrival_text(summary), targets) if part)
    return table_of_cells(title, terminal_columns(summary, statistics), summary)


def table_of_cells(title: str, columns: Sequence[CellColumn], summary: RunSummary) -> TextTable:
    """Return the cells in these columns, and below them why figures are missing."""
    explained = [column for column in columns if column.figures]
    named = [
        (column.title.split()[0], cell.figures[name])
        for cell in summary.cells
        for column in explained
        for name in column.figures
        if name in cell.figures
    ]
    names_by_reason: dict[str, dict[str, None]] = {}
    for name, figure in named:
        if figure.value is None and figure.missing:
            names_by_reason.setdefault(figure.missing, {})[name] = None
    reasons = [
        why if len(names) == len(explained) else f"{', '.join(names)}: {why}" for why, names in names_by_reason.items()
    ]
    notes = [f"{DASH}: {'; '.join(reasons)}"] if reasons else []
    if any(_counted_mark(cell, name) for cell in summary.cells for name in cell.figures):
        notes.append(f"{_COUNTED_MARK}: by the engine's counters, over all requests of the points")
    notes += _repeats_not_compared(summary.cells)
    return TextTable(
        title,
        [column.title for column in columns],
        [[column.text(cell) for column in columns] for cell in summary.cells],
        words=[column.title for column in columns if not column.numeric],
        styles=[INVALID_STYLE * (not cell.valid) for cell in summary.cells],
        caption=". ".join(notes),
        optional=[
            column.title for first in _OPTIONAL for column in columns if column.title.partition("\n")[0] == first
        ],
    )


def _repeats_not_compared(cells: Sequence[Cell]) -> list[str]:
    """Return where a speed-up is over fewer repeats than the figures beside it, as after an interruption."""
    measured = {(cell.arm, cell.workload, cell.level.label): len(cell.points) for cell in cells}
    found, fewer = [], dict[tuple[int, int], dict[str, None]]()
    for cell in cells:
        baseline = measured.get((BASELINE_NAME, cell.workload, cell.level.label), 0)
        if cell.compared_repeats == len(cell.points) < baseline:
            fewer.setdefault((cell.compared_repeats, baseline), {})[cell.arm] = None
        elif cell.compared_repeats is not None and cell.compared_repeats < max(len(cell.points), baseline):
            found.append(
                f"the speed-up of {cell.arm} at {cell.level.label} is over {cell.compared_repeats} repeats, its other"
                f" figures over {len(cell.points)}, the baseline's over {baseline}"
            )
    for (less, most), arms in fewer.items():
        found.append(f"{less} of the baseline's {most} repeats: {list_names(list(arms))}")
    return found


def categories_table(summary: RunSummary) -> TextTable:
    """Return the figures of each category of every cell but the baseline's."""
    pairs = [
        (cell, [*cell_place(cell), name, *_category(figures)])
        for cell in summary.cells
        if cell.arm != BASELINE_NAME
        for name, figures in cell.by_category.items()
    ]
    styles = [INVALID_STYLE * (not cell.valid) for cell, _ in pairs]
    return TextTable(
        "Results by category", CATEGORY_COLUMNS, [row for _, row in pairs], words=_CATEGORY_WORDS, styles=styles
    )


def _category(figures: Mapping[str, Figure]) -> list[str]:
    speedups = [with_interval(figures.get(name)) for name in ("speedup", "tpot_speedup")]
    return [
        *speedups,
        *(with_interval(figures.get(name)) for name in (StatusFigure.ACCEPTANCE_LENGTH, StatusFigure.ACCEPTANCE_RATE)),
    ]
