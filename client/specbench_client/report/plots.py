"""Plots as SVG for the page and as PNG for READMEs.

An SVG carries no background, and its lines and letters are drawn in a colour that stands for `currentColor`: the page
decides, light or dark. Series colours are middle tones that read on both. Nothing here is global: no pyplot.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level

INK = "#010203"
"""Stands for the page's own text colour; a colour that nothing else uses."""
PALETTE = ("#3b82f6", "#e8710a", "#16a34a", "#c026d3", "#dc2626", "#0e9aa7", "#a16207", "#7c6cf0")
BASELINE_COLOUR = "#8a8f98"
PANEL_INCHES = (6.4, 3.4)
COLUMNS = 2
LEGEND_COLUMNS = 5

Draw = Callable[[Axes, Sequence[Cell], dict[str, str]], None]


def png(summary: RunSummary) -> bytes:
    """Return the plot of speed-up by load as PNG."""
    ink = "#1f2328"
    canvas = _draw(summary, _speedup, ink=ink)
    canvas.suptitle(f"{summary.name}: speed-up over the paired baseline{_mark(summary)}", color=ink, fontsize=11)
    canvas.set_facecolor("white")
    target = io.BytesIO()
    canvas.savefig(target, format="png", dpi=110)
    return target.getvalue()


@dataclass(frozen=True)
class Plot:
    """One plot of the page; the title stands in the page, where it wraps."""

    title: str
    svg: str


def svgs(summary: RunSummary) -> list[Plot]:
    """Return the page's plots, each where there is something to draw."""
    found = []
    if any(_known(cell.speedup) for cell in summary.cells):
        found.append(_svg(summary, "Speed-up over the paired baseline, with 95 % intervals", _speedup))
    if any(_known(cell.figures.get(_AL)) for cell in summary.cells if cell.arm != BASELINE_NAME):
        found.append(_svg(summary, "Acceptance length (emitted) by category, at the lightest load", _acceptance))
    if any(_known(cell.figures.get(_TPOT)) for cell in summary.cells):
        found.append(_svg(summary, "Time per output token: median, whisker to the 95th percentile", _tpot))
    return found


_AL = "acceptance_length_emitted_pooled"
_TPOT = "tpot_ms_p50"


def _svg(summary: RunSummary, title: str, draw: Draw) -> Plot:
    with mpl.rc_context({"svg.hashsalt": f"specbench/{title}", "svg.fonttype": "none"}):
        canvas = _draw(summary, draw, ink=INK)
        target = io.StringIO()
        canvas.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return Plot(title + _mark(summary), text[text.index("<svg") :].replace(INK, "currentColor"))


def _mark(summary: RunSummary) -> str:
    return " (simulated, not a measurement)" if summary.simulated else ""


def _draw(summary: RunSummary, draw: Draw, *, ink: str) -> Canvas:
    workloads = list(dict.fromkeys(cell.workload for cell in summary.cells)) or [""]
    across = min(COLUMNS, len(workloads))
    down = -(-len(workloads) // across)
    canvas = Canvas(figsize=(PANEL_INCHES[0] * across, PANEL_INCHES[1] * down + 0.5), layout="constrained")
    canvas.patch.set_alpha(0 if ink == INK else 1)
    colours = _colours(summary)
    panels = canvas.subplots(down, across, squeeze=False).flat
    for axes, workload in zip(panels, workloads, strict=False):
        _dress(axes, ink)
        draw(axes, [cell for cell in summary.cells if cell.workload == workload], colours)
        if len(workloads) > 1:
            axes.set_title(workload, color=ink, fontsize=10, loc="right")
        if axes.get_legend_handles_labels()[0]:
            many = len(axes.get_legend_handles_labels()[0])
            above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": min(many, LEGEND_COLUMNS)}
            axes.legend(frameon=False, labelcolor=ink, fontsize=9, borderaxespad=0.2, **above)
    for axes in list(panels)[len(workloads) :]:
        axes.set_visible(False)
    return canvas


def _dress(axes: Axes, ink: str) -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=ink, which="both", labelsize=9)
    axes.xaxis.label.set_color(ink)
    axes.yaxis.label.set_color(ink)
    for name, spine in axes.spines.items():
        spine.set_visible(name in {"left", "bottom"})
        spine.set_color(ink)
    axes.grid(axis="y", color=BASELINE_COLOUR, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def _colours(summary: RunSummary) -> dict[str, str]:
    arms = [arm for arm in dict.fromkeys(cell.arm for cell in summary.cells) if arm != BASELINE_NAME]
    colours = {arm: PALETTE[index % len(PALETTE)] for index, arm in enumerate(arms)}
    return {BASELINE_NAME: BASELINE_COLOUR, **colours}


def _known(figure: Figure | None) -> bool:
    return figure is not None and figure.value is not None


def _speedup(axes: Axes, cells: Sequence[Cell], colours: dict[str, str]) -> None:
    """Points with intervals; invalid cells are hollow, and what cannot be shown is left out."""
    loads = _loads(cells)
    arms = [arm for arm in colours if any(cell.arm == arm and _known(cell.speedup) for cell in cells)]
    for index, arm in enumerate(arms):
        mine = [cell for cell in cells if cell.arm == arm and _known(cell.speedup)]
        at = [loads.index(cell.level) + _shift(index, len(arms), 0.3) for cell in mine]
        figures = [_compared(cell) for cell in mine]
        values = [figure.value or 0.0 for figure in figures]
        axes.plot(at, values, color=colours[arm], linewidth=1, alpha=0.6)
        axes.errorbar(at, values, yerr=_reach(figures), fmt="none", ecolor=colours[arm], capsize=3, linewidth=1.4)
        faces = [colours[arm] if cell.valid else "none" for cell in mine]
        axes.scatter(at, values, s=36, c=faces, edgecolors=colours[arm], label=arm, zorder=3)
    axes.axhline(1, color=BASELINE_COLOUR, linewidth=1.2, linestyle="--", label="baseline")
    _load_axis(axes, loads)
    axes.set_ylabel("speed-up (1 = baseline)")


def _acceptance(axes: Axes, cells: Sequence[Cell], colours: dict[str, str]) -> None:
    lightest = _loads(cells)[0]
    shown = [cell for cell in cells if cell.level == lightest and _known(cell.figures.get(_AL))]
    shown = [cell for cell in shown if cell.arm != BASELINE_NAME]
    names = sorted({name for cell in shown for name in cell.by_category})
    places = [*names, "all"]
    for index, cell in enumerate(shown):
        figures = [*(cell.by_category.get(name, {}).get(_AL) for name in names), cell.figures.get(_AL)]
        known = [(place, figure) for place, figure in enumerate(figures) if figure is not None and _known(figure)]
        at = [place + _shift(index, len(shown), 0.7) for place, _ in known]
        values = [figure.value or 0.0 for _, figure in known]
        width = 0.7 / max(1, len(shown))
        axes.bar(at, values, width=width * 0.9, color=colours[cell.arm], label=cell.arm)
        reach = _reach([figure for _, figure in known])
        axes.errorbar(at, values, yerr=reach, fmt="none", ecolor=INK, capsize=2, linewidth=1)
    axes.axhline(1, color=BASELINE_COLOUR, linewidth=1.2, linestyle="--")
    _ticks(axes, places, slanted=len(places) > 6)
    axes.set_ylabel("tokens a step")


def _tpot(axes: Axes, cells: Sequence[Cell], colours: dict[str, str]) -> None:
    loads = _loads(cells)
    arms = [arm for arm in colours if any(cell.arm == arm and _known(cell.figures.get(_TPOT)) for cell in cells)]
    for index, arm in enumerate(arms):
        mine = [cell for cell in cells if cell.arm == arm and _known(cell.figures.get(_TPOT))]
        at = [loads.index(cell.level) + _shift(index, len(arms), 0.7) for cell in mine]
        median = [cell.figures[_TPOT].value or 0.0 for cell in mine]
        high = [cell.figures["tpot_ms_p95"].value or 0.0 for cell in mine]
        axes.bar(at, median, width=0.63 / max(1, len(arms)), color=colours[arm], label=_arm_label(arm))
        reach = [[0.0] * len(at), [top - middle for top, middle in zip(high, median, strict=True)]]
        axes.errorbar(at, median, yerr=reach, fmt="none", ecolor=INK, capsize=2, linewidth=1)
    _load_axis(axes, loads)
    axes.set_ylabel("ms a token")


def _loads(cells: Sequence[Cell]) -> list[Level]:
    """The levels of these cells, the lightest first."""
    return sorted({cell.level for cell in cells}, key=lambda level: level.order)


def _load_axis(axes: Axes, loads: Sequence[Level]) -> None:
    """One tick a level, named, and not to scale: levels are mostly powers of two."""
    closed = all(level.concurrency is not None for level in loads)
    _ticks(axes, [level.label for level in loads])
    axes.set_xlabel("concurrency" if closed else "conversations a second")


def _arm_label(arm: str) -> str:
    return "baseline" if arm == BASELINE_NAME else arm


def _shift(index: int, count: int, room: float) -> float:
    """Where the index-th of so many neighbours stands around its tick."""
    return (index - (count - 1) / 2) * room / max(1, count)


def _compared(cell: Cell) -> Figure:
    """The speed-up; without its interval where too few repeats leave out of it what runs do."""
    assert cell.speedup is not None
    return cell.speedup.model_copy(update={"interval": None}) if cell.too_few_repeats else cell.speedup


def _reach(figures: Sequence[Figure]) -> list[list[float]]:
    """Distances down and up from the value to the bounds; 0 where there is no interval."""
    down = [max(0.0, (each.value or 0.0) - each.interval.low) if each.interval else 0.0 for each in figures]
    up = [max(0.0, each.interval.high - (each.value or 0.0)) if each.interval else 0.0 for each in figures]
    return [down, up]


def _ticks(axes: Axes, labels: Sequence[str], *, slanted: bool = False) -> None:
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(labels)))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(len(labels)), labels, rotation=30 if slanted else 0, ha="right" if slanted else "center")
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axes.set_xlim(-0.6, len(labels) - 0.4)
