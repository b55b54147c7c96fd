"""What a command draws of its own answer: as a page (light, dark and on paper), or as a picture on white paper."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_client.report.plots import canvas
from specbench_client.report.plots.ink import PRINT
from specbench_client.report.plots.page import MARK, Plot, plot_of
from specbench_client.report.plots.sections.section import Drawn

KINDS = ("html", "svg", "png")
LETTERS = 82
"""Of a line of the caption, for each panel that stands beside another."""


@dataclass(frozen=True)
class Picture:
    """Plots, each with its title, under one title."""

    title: str
    drawn: Sequence[tuple[str, Drawn]]
    simulated: bool = False

    @property
    def plots(self) -> list[Plot]:
        """As a page has them."""
        return [plot_of(title, drawn, simulated=self.simulated) for title, drawn in self.drawn]


def paper(picture: Picture, kind: str) -> bytes:
    """The picture as `svg` or `png`: every panel, and below them the captions."""
    panels = [panel for _, drawn in picture.drawn for panel in drawn.panels]
    across = min(2, len(panels))
    title = picture.title + (MARK if picture.simulated else "")
    captions = [f"{name}. {drawn.caption}" for name, drawn in picture.drawn]
    below = "\n".join(textwrap.fill(each.replace("$", r"\$"), LETTERS * across) for each in captions)
    draw = canvas.png if kind == "png" else canvas.paper_svg
    return draw(panels, PRINT, title.replace("$", r"\$"), across, below)
