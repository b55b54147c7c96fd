"""Draws panels onto a canvas, as SVG for the page or PNG for READMEs. No pyplot, which keeps global state."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots.axes import LETTERS_PT, SMALL_PT, DrawArguments, shortened, style_axes
from specbench_client.report.plots.styles import PAGE, Theme, use_css_variables

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

    name: unlike any other of the page, for the ids within. words: said instead of it to who cannot see it.
    """
    with mpl.rc_context({"svg.hashsalt": f"specbench/{name}", "svg.fonttype": "none"}):
        canvas = compose([panel], PAGE)
        target = io.StringIO()
        canvas.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = target.getvalue()
    text = use_css_variables(_minified(text[text.index("<svg") :]))
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(words, quote=True)}" ', 1)


def text_only(text: str) -> Draw:
    """Draw a sentence where there is no data."""

    def draw(axes: Axes, *, theme: Theme) -> None:
        axes.text(0.5, 0.5, text, ha="center", va="center", color=theme.ink, transform=axes.transAxes)
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
    canvas.suptitle(title, color=theme.ink, fontsize=LETTERS_PT)
    if below:
        canvas.set_figheight(canvas.get_figheight() + LEGEND_IN * (below.count("\n") + 1))
        canvas.supxlabel(below, color=theme.ink, fontsize=SMALL_PT, x=0.01, ha="left")
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
