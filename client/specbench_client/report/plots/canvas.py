"""Panels: their axes, and their drawing as SVG for the page or PNG for READMEs. No pyplot, which keeps global state."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots.styles import GREY_LIGHT, PAGE, Theme, use_css_variables
from specbench_client.visible_text import visible

# Helpers for the axes of all plots: plain axes, named ticks and shortened names.

DrawArguments = dict[str, Any]
"""Keyword arguments for matplotlib."""

LETTERS_PT = 9
SMALL_PT = 8
NAME_MAX = 32
"""Longest name in a plot; names of arms are never longer, and tables show categories in full."""
SLANT_IN = 0.037
"""Height of a letter in a slanted name: half its width, at 30 degrees."""
SLANTED_FROM = 38
"""Number of letters under one axis above which labels are slanted."""


def style_axes(axes: Axes, theme: Theme) -> None:
    """Remove frame and background; draw letters and axes in the theme's ink."""
    axes.patch.set_alpha(0)
    axes.tick_params(colors=theme.ink, which="both", labelsize=LETTERS_PT)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.ink)
        label.set_fontsize(LETTERS_PT)
    for name, spine in axes.spines.items():
        spine.set_visible(name in {"left", "bottom"})
        spine.set_color(theme.ink)
    axes.set_axisbelow(True)


def grid(axes: Axes, along: str = "y") -> None:
    """Draw thin lines that help to read values off one axis."""
    axes.grid(axis="x" if along == "x" else "y", color=GREY_LIGHT, alpha=0.3, linewidth=0.6)


def label_columns(axes: Axes, labels: Sequence[str]) -> None:
    """Label one tick for each place: slanted if names are long, thinned if there are very many places."""
    shown = _shown(labels)
    slanted = _slanted(shown)
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(labels)))))
    axes.xaxis.set_minor_locator(NullLocator())
    turn: DrawArguments = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(len(labels)), shown, **turn)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def slanted_height_in(labels: Sequence[str]) -> float:
    """Return the extra height in inches of slanted names below the axis; 0 if they are horizontal."""
    shown = _shown(labels)
    return SLANT_IN * max(map(len, shown)) if _slanted(shown) else 0.0


def _shown(labels: Sequence[str]) -> list[str]:
    every = max(1, -(-len(labels) // 16))
    return [shortened(label) if place % every == 0 else "" for place, label in enumerate(labels)]


def _slanted(shown: Sequence[str]) -> bool:
    return sum(len(label) + 1 for label in shown) > SLANTED_FROM


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label one row for each name, the first on top."""
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def format_numbers(axes: Axes, which: str) -> None:
    """Format an axis with a few plain numbers, without an offset."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def reference_line(axes: Axes, at: float, *, upright: bool = False) -> None:
    """Draw a dashed line of reference."""
    draw = axes.axvline if upright else axes.axhline
    draw(at, color=GREY_LIGHT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)


def shortened(name: str, most: int = NAME_MAX) -> str:
    """Shorten a name in its middle, since names of drafters often differ at their ends."""
    name = visible(name)
    if len(name) > most:
        head = (most - 1) // 2
        name = f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"
    return _without_formulas(name)


def _without_formulas(text: str) -> str:
    """Escape dollar signs: matplotlib would read a formula."""
    return text.replace("$", r"\$")


def dodge(index: int, count: int, room: float) -> float:
    """Return the offset of the index-th of so many neighbours from their tick."""
    return (index - (count - 1) / 2) * room / max(1, count)


WIDTH_IN = 5.0
"""Width of one panel in inches."""
HEIGHT_IN = 3.1
LEGEND_LETTERS = 52
"""Letters of a line of the legend; names of rows next to it reduce it."""
NUMBER_LETTERS = 6
"""Letters reserved for an axis of numbers."""
LEGEND_IN = 0.19
"""Height of a legend's line; further lines make the panel higher instead of the axes smaller."""
TITLE_MAX = 60


class Draw(Protocol):
    """A function that draws on given axes."""

    def __call__(self, axes: Axes, *, theme: Theme) -> None: ...


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    draw: Draw
    title: str = ""
    """Shown above it."""
    words: str = ""
    """Description for screen readers."""
    height: float = HEIGHT_IN
    """Height in inches."""


@dataclass(frozen=True)
class PanelGroup:
    """The panels of one plot and their caption."""

    panels: tuple[Panel, ...]
    caption: str
    """Definition, n and interval."""


@dataclass(frozen=True)
class PlotSection:
    """A plot of the page."""

    title: str
    draw: Callable[[RunSummary], PanelGroup | None]
    """Returns None where the run has no data for it."""


def compose(panels: Sequence[Panel], theme: Theme, across: int = 1) -> Canvas:
    """Draw panels in rows of `across`; a row is as high as its highest panel."""
    across = min(across, len(panels))
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    heights = [max(panel.height for panel in row) for row in rows]
    canvas = Canvas(figsize=(across * WIDTH_IN, sum(heights)), layout="constrained")
    canvas.patch.set_alpha(0)
    grid = canvas.subplots(len(rows), across, squeeze=False, gridspec_kw={"height_ratios": heights})
    for row, places in zip(rows, grid, strict=True):
        lines = [_drawn(panel, axes, theme) for panel, axes in zip(row, places, strict=False)]
        canvas.set_figheight(canvas.get_figheight() + LEGEND_IN * max(0, max(lines) - 1))
        for axes in places[len(row) :]:
            axes.set_visible(False)
    _settle(canvas)
    return canvas


def _drawn(panel: Panel, axes: Axes, theme: Theme) -> int:
    """Draw a panel; return the lines of its legend."""
    panel.draw(axes, theme=theme)
    style_axes(axes, theme)
    return _head(axes, panel.title, theme)


def _settle(canvas: Canvas) -> None:
    """Lay out once: with a layout engine, saving would draw everything a second time."""
    engine = canvas.get_layout_engine()
    assert engine is not None
    engine.execute(canvas)
    canvas.set_layout_engine("none")


def _head(axes: Axes, title: str, theme: Theme) -> int:
    """Draw title and legend above the axes, where they hide nothing; return the number of the legend's lines."""
    title = shortened(title, TITLE_MAX)
    _, names = axes.get_legend_handles_labels()
    if not names:
        axes.set_title(title, color=theme.ink, fontsize=LETTERS_PT, loc="left")
        return 0
    longest = max(len(name) for name in names) + 6
    beside = max((len(label.get_text()) for label in axes.get_yticklabels()), default=0)
    room = LEGEND_LETTERS - max(0, beside - NUMBER_LETTERS)
    columns = max(1, min(len(names), room // longest))
    looks: DrawArguments = {"frameon": False, "fontsize": LETTERS_PT, "labelcolor": theme.ink, "alignment": "left"}
    place: DrawArguments = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    legend = axes.legend(ncols=columns, handlelength=3, columnspacing=1.2, title=title or None, **looks, **place)
    legend.get_title().set_color(theme.ink)
    legend.get_title().set_fontsize(LETTERS_PT)
    return -(-len(names) // columns)


def svg(panel: Panel, name: str, words: str) -> str:
    """Return one panel as an SVG in the page's colours; the page sets its width.

    `name`: unique on the page, because the ids in the SVG contain it. `words`: the text for screen readers.
    """
    with mpl.rc_context({"svg.hashsalt": f"specbench/{name}", "svg.fonttype": "none"}):
        canvas = compose([panel], PAGE)
        target = io.StringIO()
        canvas.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = target.getvalue()
    text = use_css_variables(_minified(text[text.index("<svg") :]))
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(visible(words), quote=True)}" ', 1)


def text_only(text: str) -> Draw:
    """Draw a sentence where there is no data."""

    def draw(axes: Axes, *, theme: Theme) -> None:
        axes.text(
            0.5,
            0.5,
            _without_formulas(visible(text)),
            ha="center",
            va="center",
            color=theme.ink,
            transform=axes.transAxes,
        )
        axes.set_xticks([])
        axes.set_yticks([])

    return draw


def png(panels: Sequence[Panel], theme: Theme, title: str, across: int = 1, below: str = "") -> bytes:
    """Return a PNG on white. `below`: lines under all panels."""
    target = io.BytesIO()
    _on_paper(panels, theme, title, across, below).savefig(target, format="png", dpi=140)
    return target.getvalue()


def paper_svg(panels: Sequence[Panel], theme: Theme, title: str, across: int = 1, below: str = "") -> bytes:
    """Return the same as an SVG, identical from run to run."""
    target = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "specbench/paper", "svg.fonttype": "none"}):
        canvas = _on_paper(panels, theme, title, across, below)
        canvas.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return target.getvalue()


def _on_paper(panels: Sequence[Panel], theme: Theme, title: str, across: int, below: str) -> Canvas:
    canvas = compose(panels, theme, across)
    canvas.set_layout_engine("constrained")
    canvas.suptitle(_without_formulas(visible(title)), color=theme.ink, fontsize=LETTERS_PT)
    if below:
        canvas.set_figheight(canvas.get_figheight() + LEGEND_IN * (below.count("\n") + 1))
        canvas.supxlabel(_without_formulas(visible(below)), color=theme.ink, fontsize=SMALL_PT, x=0.01, ha="left")
    canvas.patch.set_alpha(1)
    canvas.set_facecolor(theme.paper)
    return canvas


_NUMBERS = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_IDLE = re.compile(
    r'(?<=<g) id="[^"]*"'  # alike in every SVG of the page
    r"| font-family: [^;]*;"  # the page's own
    r'| transform="rotate\(-0 [^"]*"'
    r"|(?<=>)\s+(?=<)"
)


def _minified(text: str) -> str:
    """Remove invisible parts: digits beyond a hundredth of a point, fonts, names of groups, white space."""
    text = _NUMBERS.sub(lambda found: _LONG.sub(r"\1", found.group()).replace("\n", ""), text)
    return _IDLE.sub("", text)
