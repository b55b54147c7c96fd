"""The style that all figures share: fonts, the colours of arms, and output as SVG for the page or as a picture.

An SVG of the page is drawn in the colours of a light page, which become the page's CSS variables: light, dark or paper.
The two palettes were searched for: every pair, and each against the baseline's grey, is at least 19 CIE76 units apart
for normal sight and under simulated protanopia, deuteranopia and tritanopia (Machado et al. 2009), and every colour has
a contrast of 3 : 1 and more against its page. A test computes both.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.documents.figure import Figure
from specbench_client.numpy_columns import Values
from specbench_client.visible_text import visible

LIGHT = ("#005fc6", "#c46f07", "#039960", "#ac51a7", "#874807", "#382a86")
"""Arms on a light page, and in a picture."""
DARK = ("#67a0fa", "#f88b0a", "#02c772", "#f39cdc", "#fff446", "#816eff")
"""The same arms on a dark page."""
GREY_LIGHT, GREY_DARK = "#767c85", "#8a8f98"
INK, PAPER = "#1f2328", "#fffffe"
"""Letters and axes; the inside of hollow marks."""
MARKERS = "os^DvP<*"
DASHES = ("-", (0, (4, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
Look = Mapping[str, Any]
"""Arguments of matplotlib that distinguish an arm from the others."""
REFERENCE: Look = {"color": GREY_LIGHT, "linestyle": (0, (4, 2)), "zorder": 1}
"""The baseline, and lines of reference."""
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.ymargin": 0.1,
    "errorbar.capsize": 2,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.color": GREY_LIGHT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name begins no formula
    "xtick.color": INK,
    "ytick.color": INK,
}
NAME_MAX = 32
"""Longest name in a figure; names of arms are never longer, and tables show categories in full."""
PANEL_IN = 5.0
"""Width of one panel in inches."""
LEGEND_LETTERS = 12
"""Letters of a legend's line in an inch."""
LINE_IN = 0.19
"""Height of a line of the legend."""
Reading = tuple[Figure | None, bool]
"""A figure, and whether its cell is valid."""
SERIES_ID, READING = "series ", " · "
"""How the id of a part of a series begins, and what divides the series' name from the text of one mark."""
READING_POINTS = 16
"""Diameter of the area around a mark that shows its text."""
HOLLOW = "Hollow: a check made it invalid."
HOLLOW_MARK: Look = {"label": None, "linestyle": "none", "markerfacecolor": PAPER, "zorder": 4}


@dataclass(frozen=True)
class Drawing:
    """A drawn figure, and its caption, which is text of the page as its title is."""

    canvas: Canvas
    caption: str

    @property
    def is_wide(self) -> bool:
        """Whether it has several panels in a row."""
        return self.canvas.get_figwidth() > PANEL_IN


def arm_looks(arms: Iterable[str]) -> Mapping[str, Look]:
    """Return the label, colour, marker and dash of each arm: the same in every figure of a run."""
    drafters = [arm for arm in dict.fromkeys(arms) if arm != BASELINE_NAME]
    baseline = {"label": "baseline", "marker": "X", **REFERENCE}
    return {BASELINE_NAME: baseline, **{arm: series_look(index, arm) for index, arm in enumerate(drafters)}}


def series_look(index: int, name: str) -> Look:
    """Return the look of the index-th series; colours repeat with another marker and dash."""
    turn, place = divmod(index, len(LIGHT))
    dash, marker = DASHES[turn % len(DASHES)], MARKERS[index % len(MARKERS)]
    return {"label": shortened(name), "color": LIGHT[place], "marker": marker, "linestyle": dash}


def shortened(name: str, most: int = NAME_MAX) -> str:
    """Shorten a name in its middle, since names of drafters often differ at their ends."""
    name = visible(name)
    head = (most - 1) // 2
    return name if len(name) <= most else f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


def new_panels(titles: Collection[str], height_in: float = 2.7, **options: Any) -> tuple[Canvas, Sequence[Axes]]:
    """Return a figure with a panel for each title, two in a row."""
    across, rows = min(2, len(titles)), math.ceil(len(titles) / 2)
    canvas = Canvas(figsize=(PANEL_IN * across, height_in * rows))
    found = canvas.subplots(rows, across, squeeze=False, **options).ravel()
    for axes, title in zip(found, titles, strict=False):
        axes.set_title(shortened(title, 60))
        axes.xaxis.grid(visible=False)
    for axes in found[len(titles) :]:
        axes.set_visible(False)
    return canvas, found[: len(titles)]


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name rows, the first on top, with the grid along their values."""
    axes.set_yticks(range(len(names)), [shortened(name, 24) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.grid(visible=True)
    axes.yaxis.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def draw_lines(
    axes: Axes, places: Sequence[str], lines: Mapping[str, Sequence[Reading]], looks: Mapping[str, Look]
) -> None:
    """Draw a line for each arm over places that are spaced equally; a line may have fewer places."""
    for index, (arm, line) in enumerate(lines.items()):
        x = dodged(len(line), index, len(lines), min(0.12, 0.5 / len(lines)))
        draw_marks(axes, looks[arm], x, bounds([figure for figure, _ in line]), [valid for _, valid in line])
    axes.set_xticks(range(len(places)), places)
    axes.set_xlim(-0.5, len(places) - 0.5)


def draw_marks(axes: Axes, look: Look, x: Values, y: Values, valid: Sequence[bool]) -> None:
    """Draw marks with their intervals, joined by a line as the look says; those of invalid cells are hollow.

    x, y: places, shape (places,), or values with their bounds, shape (3, places).
    """
    (x, across), (y, up) = _with_reach(x), _with_reach(y)
    name = f"{SERIES_ID}{look['label']}"
    for part in axes.errorbar(x, y, up, across, elinewidth=1, **look).get_children():
        part.set_gid(name)
    hollow = ~np.array(valid)
    axes.plot(x[hollow], y[hollow], **{**look, **HOLLOW_MARK, "gid": name})


def draw_readings(axes: Axes, texts: Mapping[str, Sequence[str]]) -> None:
    """Lay transparent marks over the marks of an axes, with texts that the page shows when one is pointed at.

    `texts`: by the label of a series, one for each of its marks.
    """
    for series in (each for each in axes.containers if isinstance(each, ErrorbarContainer)):
        label = str(series.get_label())
        for (x, y), text in zip(np.column_stack(series.lines[0].get_data()), texts[label], strict=True):
            axes.plot(
                x,
                y,
                "o",
                color=INK,
                markersize=READING_POINTS,
                alpha=0,
                zorder=6,
                gid=f"{SERIES_ID}{label}{READING}{text}",
            )


def _with_reach(places: Values) -> tuple[Values, Values | None]:
    """Return the values, and their distances down and up to the bounds; None for places, which have no bounds."""
    if places.ndim == 1:
        return places, None
    value, low, high = places
    return value, np.maximum(0, np.array([value - low, high - value]))


def bounds(figures: Sequence[Figure | None]) -> Values:
    """Return values and bounds, shape (3, places); NaN where there is none."""
    rows = np.full((3, len(figures)), np.nan)
    for place, each in enumerate(figures):
        for figure in known([each]):
            held = figure.interval
            rows[:, place] = (figure.value, *((held.low, held.high) if held else (np.nan, np.nan)))
    return rows


def dodged(places: int, index: int, of: int, apart: float) -> Values:
    """Return the places of one of several series, which are drawn beside each other."""
    return np.arange(places, dtype=np.float64) + (index - (of - 1) / 2) * apart


def known(figures: Iterable[Figure | None]) -> list[Figure]:
    """Return those that have a finite value."""
    return [each for each in figures if each is not None and each.value is not None and math.isfinite(each.value)]


def finished(canvas: Canvas, figures: Iterable[Figure | None], *notes: str, definition: str = "") -> Drawing:
    """Add one legend above all panels, where it hides nothing, and the caption of the figures that were drawn.

    `notes`: sentences at the end of the caption. `definition`: of the figures; by default that of the first.
    """
    handles = {name: each for axes in canvas.axes for each, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    letters, width = [len(name) + 6 for name in handles], canvas.get_figwidth() * LEGEND_LETTERS
    fitting = (each for each in range(len(handles), 1, -1) if sum(map(max, np.array_split(letters, each))) <= width)
    columns = next(fitting, 1)
    place: Any = "outside upper left"
    canvas.legend(handles.values(), handles, loc=place, ncols=columns, handlelength=2.5, columnspacing=1.2)
    canvas.set_figheight(canvas.get_figheight() + LINE_IN * math.ceil(len(handles) / columns))
    ConstrainedLayoutEngine().execute(canvas)  # once: an engine of the figure would lay it out again for each output
    return Drawing(canvas, " ".join([_caption(known(figures), definition), *filter(None, notes)]))


def _caption(drawn: Sequence[Figure], definition: str) -> str:
    """Return the definition of the figures, the number of their sampling units, and the method of their intervals."""
    sizes = sorted({each.n for each in drawn})
    held = [each.interval for each in drawn if each.interval]
    methods = " or ".join(sorted({_clause(each.method) for each in held}))
    parts = [
        definition or _clause(drawn[0].definition),
        f"n {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "") if sizes else "",
        f"Intervals: {held[0].level:.0%}, {methods}" if held else "No intervals" if drawn else "",
    ]
    return " ".join(f"{part}." for part in parts if part)


def _clause(text: str) -> str:
    """Return the text before its first semicolon outside of brackets; what follows are details."""
    return re.split(r";(?![^(\[]*[)\]])", text)[0]


def _described(canvas: Canvas) -> str:
    """Return first and last value of each series, for screen readers."""
    parts = []
    for axes in canvas.axes:
        series = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
        values = {str(each.get_label()): np.asarray(each.lines[0].get_data()[int(each.has_yerr)]) for each in series}
        known = {name: found[np.isfinite(found)] for name, found in values.items()}
        spans = [f"{name} {found[0]:.4g} to {found[-1]:.4g}" for name, found in known.items() if found.size]
        parts.append(" ".join([axes.get_title(loc="left"), ", ".join(spans)]))
    return "; ".join(parts)


def svg(title: str, drawing: Drawing) -> str:
    """Return the figure as an SVG in the page's colours. `title`: unique on the page, because ids are made from it."""
    text = _saved(title, drawing.canvas, "svg", transparent=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(f'<g id="{SERIES_ID}([^"]*){READING}([^"]*)">', r'<g data-arm="\1"><title>\1 \2</title>', text)
    text = re.sub(f'<g id="{SERIES_ID}([^"]*)"', r'<g data-arm="\1"', text)
    text = re.sub(r'(?<=<g) id="[^"]*"', "", text)  # the same in every SVG of the page
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--paper)").replace(GREY_LIGHT, "var(--grey)")
    for index, colour in enumerate(LIGHT):
        text = text.replace(colour, f"var(--series-{index})")
    words = escape(visible(f"{title}: {_described(drawing.canvas)}"))
    return text.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)


def picture(title: str, drawing: Drawing, kind: str) -> bytes:
    """Return the figure as a picture on white, `svg` or `png`, with its title above and its caption below."""
    canvas, height = drawing.canvas, drawing.canvas.get_figheight()
    title, caption = (
        textwrap.fill(visible(text), int(letters * canvas.get_figwidth()))
        for text, letters in ((title, 13), (drawing.caption, 16))
    )
    with mpl.rc_context(STYLE):
        for legend in canvas.legends:
            legend.set_title(title, FontProperties(size=10))
            legend.set_alignment("left")
        canvas.supxlabel(caption, x=0.01, ha="left", fontsize=8)
    canvas.set_figheight(height + LINE_IN * (title.count("\n") + caption.count("\n") + 2))
    canvas.set_layout_engine("constrained")
    data = _saved(title, canvas, kind, facecolor="white", dpi=140)
    canvas.set_figheight(height)
    return data


def _saved(salt: str, canvas: Canvas, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None} if kind == "svg" else None
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        canvas.savefig(target, format=kind, metadata=nothing, **options)
    return target.getvalue()
