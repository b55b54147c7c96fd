"""Colours, markers and dashes. An arm looks the same in every plot, and no two arms of a panel differ in colour alone.

An SVG is drawn in placeholder colours, which become the page's CSS variables: light, dark or paper. The two palettes
were searched for: every pair, and each against the baseline's grey, is at least 19 CIE76 units apart for normal sight
and under simulated protanopia, deuteranopia and tritanopia (Machado et al. 2009), and every colour has a contrast of 3
: 1 and more against its page. A test computes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from specbench_api.spec.drafter import BASELINE_NAME

LIGHT = ("#005fc6", "#c46f07", "#039960", "#ac51a7", "#874807", "#382a86")
"""Series on a light page, and in a PNG."""
DARK = ("#67a0fa", "#f88b0a", "#02c772", "#f39cdc", "#fff446", "#816eff")
"""The same series on a dark page."""
GREY_LIGHT, GREY_DARK = "#767c85", "#8a8f98"
"""The baseline, and lines of reference."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)), (0, (8, 2, 2, 2, 2, 2)))
HATCHES = ("", "///", "||", "\\\\\\", "xx", "--")
SERIES_PER_PANEL_MAX = len(LIGHT)
"""Largest number of arms in a panel; more are divided over panels."""

Dash = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Theme:
    """The colours that are not a series'."""

    ink: str
    """Letters and axes."""
    paper: str
    """Background: the inside of hollow marks, and lines of hatches."""


PAGE = Theme(ink="#010203", paper="#fdfcfb")
"""Stand-ins for the page's own colours; nothing else uses them."""
PRINT = Theme(ink="#1f2328", paper="#fffffe")
"""For a PNG, which cannot use the page's variables."""


@dataclass(frozen=True)
class Style:
    """Colour, marker, dash and hatch that distinguish an arm from the others."""

    colour: str
    marker: str = "o"
    dash: Dash = "-"
    hatch: str = ""


BASELINE = Style(GREY_LIGHT, marker="X", dash=(0, (4, 2)))


def series_style(index: int) -> Style:
    """The style of the index-th series; it repeats after `SERIES_PER_PANEL_MAX`."""
    place = index % SERIES_PER_PANEL_MAX
    return Style(LIGHT[place], MARKERS[place], DASHES[place], HATCHES[place])


def split_into_panels(names: Sequence[str]) -> list[list[str]]:
    """Divide series over panels, at most `SERIES_PER_PANEL_MAX` in each, in parts of about equal size."""
    panels = -(-len(names) // SERIES_PER_PANEL_MAX)
    if not panels:
        return []
    each, more = divmod(len(names), panels)
    ends = [index * each + min(index, more) for index in range(panels + 1)]
    return [list(names[start:end]) for start, end in pairwise(ends)]


def arm_styles(arms: Iterable[str]) -> Mapping[str, Style]:
    """Return the style of each arm: the same in all plots of a run, and distinct within each panel."""
    named = [arm for arm in dict.fromkeys(arms) if arm != BASELINE_NAME]
    found = {arm: series_style(index) for group in split_into_panels(named) for index, arm in enumerate(group)}
    return {BASELINE_NAME: BASELINE, **found}


def use_css_variables(svg: str) -> str:
    """Replace the placeholders by the page's colours."""
    svg = svg.replace(PAGE.ink, "currentColor").replace(PAGE.paper, "var(--paper)")
    for index, colour in enumerate(LIGHT):
        svg = svg.replace(colour, f"var(--series-{index})")
    return svg.replace(GREY_LIGHT, "var(--grey)")
