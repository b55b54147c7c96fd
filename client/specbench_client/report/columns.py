"""What a cell's line shows, said once for terminal, Markdown and page.

Missing is a dash, never 0; a speed-up never stands without its interval, and where the interval holds 1 the word is
`indistinguishable`; where repeats are too few to tell, they are said instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench_api.outcome.claims import Standing
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.statistics.bootstrap import PROMPTS_MIN
from specbench_client.metrics.energy import JOULES
from specbench_client.report import sheets

DASH = sheets.DASH
SIMULATED = "Simulated. These numbers are not a measurement of any engine."


@dataclass(frozen=True)
class Column:
    """One column: its title, the text of a cell's field, and whether it holds numbers."""

    title: str
    text: Callable[[Cell], str]
    numeric: bool = True


def columns_of(summary: RunSummary) -> list[Column]:
    """Return the columns; the workload's only where there are several."""
    several = len({cell.workload for cell in summary.cells}) > 1
    workload = [Column("Workload", lambda cell: cell.workload, numeric=False)] if several else []
    *columns, findings = _COLUMNS
    goodput = [_GOODPUT, _MET] if summary.slo else []
    energy = [_ENERGY] if any(JOULES in cell.figures for cell in summary.cells) else []
    return [Column("Arm", lambda cell: cell.arm, numeric=False), *workload, *columns, *goodput, *energy, findings]


def terminal_columns(summary: RunSummary) -> list[Column]:
    """Return fewer and narrower columns: a terminal has a hundred characters or so."""
    arm, *others = columns_of(summary)
    workload = [column for column in others if column.title == "Workload"]
    *narrow, findings = _NARROW
    energy = [column for column in others if column is _ENERGY]
    return [arm, *workload, *narrow, *([_GOOD] if summary.slo else []), *energy, findings]


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for people, or a dash."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def with_interval(figure: Figure | None, digits: int = 2) -> str:
    """Return `1.83 [1.76, 1.90]`, without the brackets where there is no interval."""
    if figure is None or figure.value is None:
        return DASH
    bounds = figure.interval
    tail = f" [{number(bounds.low, digits)}, {number(bounds.high, digits)}]" if bounds else f" ({_why_bare(figure)})"
    return number(figure.value, digits) + tail


def compared_text(cell: Cell, figure: Figure | None) -> str:
    """Return a figure that compares; from too few repeats without its interval, in which what runs do is not."""
    if not cell.too_few_repeats or figure is None or figure.value is None:
        return with_interval(figure)
    return f"{number(figure.value)} ({cell.too_few_repeats})"


def _why_bare(figure: Figure) -> str:
    """Why a figure has no interval, as far as its number of prompts tells."""
    if figure.n >= PROMPTS_MIN:
        return "no interval"
    return "1 prompt: no interval" if figure.n == 1 else f"{figure.n} prompts: no interval"


def speedup_text(cell: Cell, figure: Figure | None) -> str:
    """Return a speed-up with its interval and, where it cannot be told from 1, with the word.

    `unclear`: it can, but not after the correction for the number of comparisons.
    """
    if cell.arm == BASELINE_NAME:
        return "baseline"
    text = compared_text(cell, figure)
    if not cell.valid:
        return f"{text} invalid" if text != DASH else "invalid"
    bounds = figure.interval if figure and not cell.too_few_repeats else None
    if bounds and bounds.low <= 1 <= bounds.high:
        return f"{text} {Standing.INDISTINGUISHABLE}"
    claimed = cell.claims.overall if cell.claims and figure is cell.speedup else None
    return f"{text} {claimed}" if claimed is Standing.UNCLEAR else text


def value_of(cell: Cell, name: str) -> float | None:
    """Return the value of a figure of the cell, or None."""
    figure = cell.figures.get(name)
    return figure.value if figure else None


def arrivals_of(summary: RunSummary) -> str:
    """Return how requests came, which is alike in all cells of a run; empty where no cell tells."""
    return "; ".join(dict.fromkeys(cell.arrivals.words for cell in summary.cells if cell.arrivals))


def steady_share(cell: Cell) -> float | None:
    """Return the steady windows' share of all the cell's points; None where none has one."""
    windows = [window for window in cell.windows if window and window.share > 0]
    whole_s = sum(window.length_s / window.share for window in windows)
    return sum(window.length_s for window in windows) / whole_s if whole_s else None


def _steady_text(cell: Cell) -> str:
    share = steady_share(cell)
    return DASH if share is None else f"{share:.0%}"


def _ms(value: float | None) -> str:
    return number(value, 0 if value is not None and value >= 100 else 1)


def _percentiles(name: str) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        found = [value_of(cell, f"{name}_p{percent}") for percent in (50, 95, 99)]
        return DASH if found[0] is None else " / ".join(_ms(value) for value in found)

    return text


def _acceptance(cell: Cell) -> str:
    rate = value_of(cell, "acceptance_rate")
    return DASH if rate is None else f"{rate:.0%}"


def _two(name: str) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        found = [value_of(cell, f"{name}_p{percent}") for percent in (50, 99)]
        return DASH if found[0] is None else "/".join(_ms(value) for value in found)

    return text


def _met(cell: Cell) -> str:
    share = cell.goodput.share.value if cell.goodput else None
    return DASH if share is None else f"{share:.0%}"


_GOODPUT = Column("Goodput req/s [95 %]", lambda cell: with_interval(cell.goodput.rate if cell.goodput else None))
_MET = Column("In time", _met)
_GOOD = Column(
    "In time\nreq/s", lambda cell: number(cell.goodput.rate.value if cell.goodput else None) + f" ({_met(cell)})"
)

_ENERGY = Column("J/token", lambda cell: number(value_of(cell, JOULES), 3))

_NARROW = (
    Column("Load", lambda cell: cell.level.label),
    Column("Speed-up [95 %]", lambda cell: speedup_text(cell, cell.speedup)),
    Column("AL", lambda cell: number(value_of(cell, "acceptance_length_emitted_pooled"))),
    Column("Acc.", _acceptance),
    Column("TTFT ms\np50/p99", _two("ttft_ms")),
    Column("TPOT ms\np50/p99", _two("tpot_ms")),
    Column("E2E ms\np50/p99", _two("e2e_ms")),
    Column("tok/s", lambda cell: number(value_of(cell, "output_tps"), 1)),
    Column("Findings", lambda cell: "\n".join(cell.findings) or DASH, numeric=False),
)

_COLUMNS = (
    Column("Load", lambda cell: cell.level.label),
    Column("Speed-up [95 %]", lambda cell: speedup_text(cell, cell.speedup)),
    Column("TPOT speed-up [95 %]", lambda cell: speedup_text(cell, cell.tpot_speedup)),
    Column("AL emitted", lambda cell: number(value_of(cell, "acceptance_length_emitted_pooled"))),
    Column("AL verified", lambda cell: number(value_of(cell, "acceptance_length_verified_pooled"))),
    Column("Accepted", _acceptance),
    Column("TTFT ms p50 / p95 / p99", _percentiles("ttft_ms")),
    Column("TPOT ms p50 / p95 / p99", _percentiles("tpot_ms")),
    Column("E2E ms p50 / p95 / p99", _percentiles("e2e_ms")),
    Column("Output tok/s", lambda cell: number(value_of(cell, "output_tps"), 1)),
    Column("Steady", _steady_text),
    Column("Findings", lambda cell: ", ".join(cell.findings) or DASH, numeric=False),
)
