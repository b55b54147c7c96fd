"""A run's plots: every section of the table that has something to draw; and the one for a README."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots import canvas
from specbench_client.report.plots.ink import PRINT
from specbench_client.report.plots.sections.cells import INVALID
from specbench_client.report.plots.sections.section import Drawn
from specbench_client.report.plots.sections.speedup import speedup
from specbench_client.report.plots.sections.table import SECTIONS

MARK = " (simulated, not a measurement)"
"""Behind the title of every plot that is of no engine."""
NOTHING = "nothing was compared with a baseline"


@dataclass(frozen=True)
class Plot:
    """One plot of the page. Title and caption stand in the page, where they wrap."""

    title: str
    caption: str
    """What is drawn: its definition, how many sampling units it rests on, how its intervals were made."""
    panels: tuple[str, ...]
    """SVGs, one a panel; several take the whole width of the page."""


def svgs(summary: RunSummary) -> list[Plot]:
    """The page's plots, each where there is something to draw."""
    found = []
    for section in SECTIONS:
        drawn = section.draw(summary)
        if drawn is not None:
            found.append(plot_of(section.title, drawn, simulated=summary.simulated))
    return found


def plot_of(name: str, drawn: Drawn, *, simulated: bool) -> Plot:
    """One plot as the page has it. name: its title, unlike any other's of the page."""
    title = name + (MARK if simulated else "")
    return Plot(title, drawn.caption, tuple(_panels(name, title, drawn)))


def _panels(name: str, title: str, drawn: Drawn) -> Iterator[str]:
    for index, panel in enumerate(drawn.panels):
        words = ": ".join(part for part in (title, panel.title, panel.words) if part)
        yield canvas.svg(panel, f"{name}/{index}", words)


def png(summary: RunSummary) -> bytes:
    """The plot of speed-up by load as PNG; a sentence where there is none."""
    drawn = speedup(summary)
    panels = drawn.panels if drawn else (canvas.Panel(canvas.sentence(NOTHING), height=1.2),)
    return canvas.png(panels, PRINT, png_title(summary), across=2)


def png_title(summary: RunSummary) -> str:
    """Above the plot that travels without its page, and so without a caption: also what hollow marks are."""
    told = [summary.name, f"speed-up over the paired baseline{MARK if summary.simulated else ''}"]
    return "\n".join([*told, *([INVALID] if any(not cell.valid for cell in summary.cells) else [])])
