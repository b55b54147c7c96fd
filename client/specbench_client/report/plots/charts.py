"""The charts of a run's report: one function each, which draws from the summary alone.

The page can therefore be made again from `summary.json`. A chart of a value that the summary lacks starts there: add
the field in `documents.summary` and compute it in `analysis.summary`. A gap in a line is a missing value,
and a hollow mark is a cell that a check made invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, takewhile

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.documents.figure import Figure, StatusFigure
from specbench_client.documents.summary import ArmEnvironment, Cell, RunSummary
from specbench_client.report.plots.style import (
    HOLLOW,
    PANEL_IN,
    REFERENCE,
    SERIES_ID,
    STYLE,
    Drawing,
    Look,
    Reading,
    arm_looks,
    bounds,
    dodged,
    draw_lines,
    draw_marks,
    draw_readings,
    finished,
    known,
    name_rows,
    new_panels,
    picture,
)
from specbench_client.report.text.text_table import mark_simulated

ALL = "all"
POSITIONS = {
    "conditional_position_acceptance_rate": "given that the one before was accepted",
    "position_acceptance_rate": "together with all before it",
}
LATENCIES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}


@mpl.rc_context(STYLE)
def speedup(summary: RunSummary) -> Drawing | None:
    """Draw each arm's speed-up over the paired baseline by load, and the load at which it falls to 1."""
    shown = _workloads(summary, lambda cell: cell.speedup)
    if not shown:
        return None
    canvas, panels = new_panels(shown, sharey=True)
    looks = arm_looks(cell.arm for cell in summary.cells)
    for axes, cells in zip(panels, shown.values(), strict=True):
        axes.axhline(1, label="baseline", **REFERENCE)
        _draw_by_load(axes, cells, lambda cell: cell.speedup, looks)
        draw_readings(axes, {look["label"]: _readings(arm, cells) for arm, look in looks.items()})
        axes.set_ylabel("speed-up (1 = baseline)")
        loads = [level.order for level in _levels(cells)]
        for each in summary.crossovers:
            at, interval = each.crossover.at.value, each.crossover.interval
            if each.workload == cells[0].workload and at is not None:
                ends = (interval.low or 0.0, interval.high or np.inf) if interval else (at, at)
                left, place, right = _place(loads, ends[0]), _place(loads, at), _place(loads, ends[1])
                look = {"color": looks[each.arm]["color"], "gid": f"{SERIES_ID}{looks[each.arm]['label']}"}
                axes.plot([left, right], [1, 1], linewidth=5, alpha=0.4, zorder=2, **look)
                axes.plot(place, 1, marker="|", markersize=16, markeredgewidth=2.2, zorder=5, **look)
    crossed = any(each.crossover.at.value is not None for each in summary.crossovers)
    crossing = "Stroke on the line at 1: where a speed-up falls to 1; its bar: the interval." if crossed else ""
    return finished(canvas, (cell.speedup for cell in summary.cells), crossing, HOLLOW)


@mpl.rc_context(STYLE)
def throughput(summary: RunSummary) -> Drawing | None:
    """Draw the throughput of the engine against the speed of one user: a line per arm over the loads."""
    name, unit = "output_tps_per_gpu", "a GPU"
    if not _workloads(summary, lambda cell: cell.figures.get(name)):
        name, unit = StatusFigure.OUTPUT_TPS, "the engine"
    of_user = StatusFigure.USER_TPS
    shown = _workloads(summary, lambda cell: cell.figures.get(name) if known([cell.figures.get(of_user)]) else None)
    if not shown:
        return None
    canvas, panels = new_panels(shown, height_in=3.4)
    looks = arm_looks(cell.arm for cell in summary.cells)
    for axes, cells in zip(panels, shown.values(), strict=True):
        labels = list[tuple[float, float, str]]()
        for arm in dict.fromkeys(cell.arm for cell in cells):
            mine = sorted((cell for cell in cells if cell.arm == arm), key=lambda cell: cell.level.order)
            x, y = (bounds([cell.figures.get(each) for cell in mine]) for each in (of_user, name))
            draw_marks(axes, looks[arm], x, y, [cell.valid for cell in mine])
            labels += zip(x[0], y[0], [cell.level.label for cell in mine], strict=True)
        _label_spots(axes, labels)
        axes.set_xlabel("output tokens a second of one user (median)")
        axes.set_ylabel(f"output tokens a second of {unit}")
    note = "Up: more from the machine; right: more for each user. Numbers at the marks: the load, where there is room."
    return finished(canvas, (cell.figures.get(name) for cell in summary.cells), note, HOLLOW)


@mpl.rc_context(STYLE)
def acceptance_by_position(summary: RunSummary) -> Drawing | None:
    """Draw the share of drafts accepted at each position of the draft: conditional and joint."""
    shown = {
        f"{meaning}, {at}": {cell.arm: _positions(cell, kind) for cell in cells}
        for at, cells in _lightest(summary, "position_acceptance_rate_1").items()
        for kind, meaning in POSITIONS.items()
    }
    if not shown:
        return None
    canvas, panels = new_panels(shown, sharey=True)
    looks = arm_looks(cell.arm for cell in summary.cells)
    for axes, lines in zip(panels, shown.values(), strict=True):
        longest = max(map(len, lines.values()))
        draw_lines(axes, [str(place + 1) for place in range(longest)], lines, looks)
        axes.set_xlabel("position in the draft")
        axes.set_ylabel("share accepted")
        axes.set_ylim(0, 1.05)
    drawn = (figure for lines in shown.values() for line in lines.values() for figure, _ in line)
    definition = "Share of draft steps that accepted the draft at each position"
    return finished(canvas, drawn, HOLLOW, definition=definition)


@mpl.rc_context(STYLE)
def acceptance_by_category(summary: RunSummary) -> Drawing | None:
    """Draw the acceptance length of each category, and of all of them."""
    shown = _lightest(summary, StatusFigure.ACCEPTANCE_LENGTH)
    if not shown:
        return None
    rows = [*sorted({name for cells in shown.values() for cell in cells for name in cell.by_category}), ALL]
    arms = max(map(len, shown.values()))
    canvas, panels = new_panels(shown, height_in=0.8 + len(rows) * (0.14 + 0.1 * arms))
    looks, drawn = arm_looks(cell.arm for cell in summary.cells), list[Figure | None]()
    for axes, cells in zip(panels, shown.values(), strict=True):
        axes.axvline(1, label="baseline", **REFERENCE)
        for index, cell in enumerate(cells):
            by_row = {**cell.by_category, ALL: cell.figures}
            figures = [by_row.get(row, {}).get(StatusFigure.ACCEPTANCE_LENGTH) for row in rows]
            look = {**looks[cell.arm], "linestyle": "none"}
            y = dodged(len(rows), index, len(cells), 0.7 / len(cells))
            draw_marks(axes, look, bounds(figures), y, [cell.valid] * len(rows))
            drawn += figures
        name_rows(axes, rows)
        axes.set_xlabel("tokens a step")
    return finished(canvas, drawn, HOLLOW)


@mpl.rc_context(STYLE)
def latency(summary: RunSummary) -> Drawing | None:
    """Draw the median and the 99th percentile of TTFT, TPOT and E2E latency by load."""
    shown = {
        _joined(f"{title} {percentile}", workload): (f"{name}_{percentile}", cells)
        for name, title in LATENCIES.items()
        for percentile in ("p50", "p99")
        for workload, cells in _workloads(summary, _figure_of(f"{name}_{percentile}")).items()
    }
    if not shown:
        return None
    canvas, panels = new_panels(shown, height_in=2.1)
    looks = arm_looks(cell.arm for cell in summary.cells)
    for axes, (name, cells) in zip(panels, shown.values(), strict=True):
        _draw_by_load(axes, cells, _figure_of(name), looks)
        axes.set_ylabel("ms")
        axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
    drawn = (cell.figures.get(name) for name, cells in shown.values() for cell in cells)
    definition = "TTFT: to the first token, queueing included; TPOT: per output token after it; E2E: to the last token"
    return finished(canvas, drawn, HOLLOW, definition=definition)


@mpl.rc_context(STYLE)
def memory_and_cost(summary: RunSummary) -> Drawing | None:
    """Draw the KV cache of each arm's engine, and by load the cost of a request relative to the baseline's."""
    engines = [each for each in summary.arm_environments if _fact(each, FactName.KV_CACHE_TOKENS)]
    costs = _workloads(summary, _relative_cost)
    memory = ["KV cache of the engine"] if engines else []
    titles = [*memory, *(_joined("Cost of a request, at the same price an hour", name) for name in costs)]
    if not titles:
        return None
    canvas, panels = new_panels(titles)
    looks = arm_looks([*(cell.arm for cell in summary.cells), *(each.arm for each in engines)])
    for axes in panels[: len(memory)]:
        for row, each in enumerate(engines):
            tokens, weights = _fact(each, FactName.KV_CACHE_TOKENS), _fact(each, FactName.DRAFTER_WEIGHTS_BYTES)
            lost = f" ({-each.kv_cache_lost.value:+.1%})" if each.kv_cache_lost and each.kv_cache_lost.value else ""
            drafter = f", drafter {weights / 2**30:.2f} GiB" if weights else ""
            axes.barh(row, tokens, height=0.6, color=looks[each.arm]["color"])
            text = f"{tokens:,.0f}{lost}{drafter}"
            axes.annotate(text, (tokens, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_xmargin(1.1)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        name_rows(axes, [looks[each.arm]["label"] for each in engines])
        axes.xaxis.grid(visible=False)
        axes.set_xlabel("tokens of all requests together")
    for axes, cells in zip(panels[len(memory) :], costs.values(), strict=True):
        axes.axhline(1, label="baseline", **REFERENCE)
        _draw_by_load(axes, cells, _relative_cost, looks)
        axes.set_ylabel("cost (1 = baseline)")
    cache = "KV cache: as the engine reports it, in brackets against the baseline's" if engines else ""
    cost = "Cost: requests per hour of the baseline / those of the arm, over the same requests" if costs else ""
    definition = "; ".join(filter(None, (cache, cost)))
    return finished(canvas, map(_relative_cost, summary.cells), HOLLOW, definition=definition)


@mpl.rc_context(STYLE)
def acceptance_over_time(summary: RunSummary) -> Drawing | None:
    """Draw the fitted line of the acceptance length over a soak test, with the interval of its change at the end."""
    trends = {
        cell.arm: (trend, cell.valid)
        for cell in summary.cells
        for trend in cell.trends
        if trend.name == StatusFigure.ACCEPTANCE_LENGTH
    }
    if not trends:
        return None
    canvas, (axes,) = new_panels([""])
    looks = arm_looks(cell.arm for cell in summary.cells)
    for arm, (trend, valid) in trends.items():
        held = trend.change.interval
        low, high = (trend.start * (1 + each) for each in ((held.low, held.high) if held else (np.nan, np.nan)))
        lengths = np.array([[trend.start, trend.end], [np.nan, low], [np.nan, high]])
        draw_marks(axes, looks[arm], np.array([0.0, 60 * trend.hours]), lengths, [valid] * 2)
    axes.set_xlabel("minutes since the first window")
    axes.set_ylabel("tokens a step")
    definition = "A line fitted to the windows' acceptance lengths, with the interval of its change at the end"
    changes = (trend.change for trend, _ in trends.values())
    return finished(canvas, changes, HOLLOW, definition=definition)


SPEEDUP = "Speed-up over the paired baseline, by load"
FIGURES: Mapping[str, Callable[[RunSummary], Drawing | None]] = {
    SPEEDUP: speedup,
    "Throughput of the engine and speed of one user": throughput,
    "Acceptance by position of the draft": acceptance_by_position,
    "Acceptance length by category": acceptance_by_category,
    "Latency by load": latency,
    "Memory and cost": memory_and_cost,
    "Acceptance length over the soak test": acceptance_over_time,
}
"""By title, in the order of the page. Each function returns None where the run has no data for it."""


def draw_figures(summary: RunSummary, titles: Iterable[str] = FIGURES) -> dict[str, Drawing]:
    """Return the figures with these titles that have data. Titles of simulated results are marked."""
    drawn = {mark_simulated(title, simulated=summary.simulated): FIGURES[title](summary) for title in titles}
    return {title: each for title, each in drawn.items() if each is not None}


def speedup_png(summary: RunSummary) -> bytes:
    """Return the speed-up by load as a PNG; a sentence as a picture if nothing was compared."""
    drawing = speedup(summary) or Drawing(Canvas(figsize=(PANEL_IN, 1)), "")
    if not drawing.caption:
        drawing.canvas.text(0.02, 0.5, f"{summary.name}: nothing was compared with a baseline")
    return picture(f"{summary.name}: {mark_simulated(SPEEDUP, simulated=summary.simulated)}", drawing, "png")


def _workloads(summary: RunSummary, of: Callable[[Cell], Figure | None]) -> dict[str, list[Cell]]:
    """Return the cells of each workload in which some cell has this figure. The only workload of a run has no title."""
    names = dict.fromkeys(cell.workload for cell in summary.cells)
    found = {name: [cell for cell in summary.cells if cell.workload == name] for name in names}
    return {name if len(names) > 1 else "": cells for name, cells in found.items() if known(map(of, cells))}


def _lightest(summary: RunSummary, name: str) -> dict[str, list[Cell]]:
    """Return the drafters' cells that have this figure at the lightest load, by workload and load in words."""
    found = dict[str, list[Cell]]()
    for workload, cells in _workloads(summary, _figure_of(name)).items():
        level = _levels(cells)[0]
        mine = [cell for cell in cells if cell.level == level and cell.arm != BASELINE_NAME]
        shown = [cell for cell in mine if known([cell.figures.get(name)])]
        found |= {_joined(workload, f"at {level.words}"): shown} if shown else {}
    return found


def _draw_by_load(
    axes: Axes, cells: Sequence[Cell], of: Callable[[Cell], Figure | None], looks: Mapping[str, Look]
) -> None:
    """Draw a line for each arm over the loads."""
    levels, lines = _levels(cells), dict[str, list[Reading]]()
    for arm in dict.fromkeys(cell.arm for cell in cells if known([of(cell)])):
        by_level = {cell.level: (of(cell), cell.valid) for cell in cells if cell.arm == arm}
        lines[arm] = [by_level.get(level, (None, True)) for level in levels]
    draw_lines(axes, [level.label for level in levels], lines, looks)
    axes.set_xlabel("concurrency" if levels[0].concurrency else "conversations a second")


def _readings(arm: str, cells: Sequence[Cell]) -> list[str]:
    """Return the speed-up of an arm at each load in words; empty texts where it was not compared."""
    mine = {
        cell.level: f"at {cell.level.words}: {cell.speedup.factor}{'' if cell.valid else ', invalid'}"
        for cell in cells
        if cell.arm == arm and cell.speedup
    }
    return [mine.get(level, "") for level in _levels(cells)]


def _label_spots(axes: Axes, spots: Sequence[tuple[float, float, str]]) -> None:
    """Label spots where the labels do not overlap."""
    axes.autoscale_view()
    taken = list[npt.NDArray[np.float64]]()
    for x, y, label in spots:
        place = axes.transLimits.transform((x, y))
        if np.isfinite(place).all() and all((np.abs(place - other) > (0.08, 0.06)).any() for other in taken):
            axes.annotate(label, (x, y), (5, 3), textcoords="offset points", fontsize=8)
            taken.append(place)


def _positions(cell: Cell, kind: str) -> list[Reading]:
    """Return the acceptance at each position of the draft, from the first on."""
    names = takewhile(cell.figures.__contains__, (f"{kind}_{place}" for place in count(1)))
    return [(cell.figures[name], cell.valid) for name in names]


def _relative_cost(cell: Cell) -> Figure | None:
    """Return the cost of a request relative to the baseline's: 1 − the share that is saved."""
    saved = cell.end_to_end.cost_saved if cell.end_to_end else None
    if saved is None or saved.value is None:
        return None
    held = saved.interval
    interval = held and held.model_copy(update={"low": 1 - held.high, "high": 1 - held.low})
    return saved.model_copy(update={"value": 1 - saved.value, "interval": interval})


def _figure_of(name: str) -> Callable[[Cell], Figure | None]:
    return lambda cell: cell.figures.get(name)


def _fact(engine: ArmEnvironment, name: FactName) -> float:
    """Return a number that the engine reported; 0 if it did not."""
    return engine.facts[name].number or 0.0 if name in engine.facts else 0.0


def _place(loads: Sequence[float], load: float) -> float:
    """Return where a load lies between the loads' places, on a logarithmic scale; half a place outside beyond them."""
    places = np.arange(len(loads))
    return float(np.interp(np.log(max(load, 1e-9)), np.log(loads), places, left=-0.5, right=len(loads) - 0.5))


def _levels(cells: Iterable[Cell]) -> list[Level]:
    return sorted({cell.level for cell in cells}, key=lambda level: level.order)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
