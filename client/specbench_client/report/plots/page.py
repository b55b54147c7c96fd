"""A run's plots: every section of the table that has something to draw; and the one for a README."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots import canvas
from specbench_client.report.plots.ink import PRINT
from specbench_client.report.plots.sections.section import Drawn
from specbench_client.report.plots.sections.speedup import speedup
from specbench_client.report.plots.sections.table import SECTIONS

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
            title = section.title + _mark(summary)
            found.append(Plot(title, drawn.caption, tuple(_panels(section.title, title, drawn))))
    return found


def _panels(name: str, title: str, drawn: Drawn) -> Iterator[str]:
    for index, panel in enumerate(drawn.panels):
        words = ": ".join(part for part in (title, panel.title, panel.words) if part)
        yield canvas.svg(panel, f"{name}/{index}", words)


def png(summary: RunSummary) -> bytes:
    """The plot of speed-up by load as PNG; a sentence where there is none."""
    drawn = speedup(summary)
    panels = drawn.panels if drawn else (canvas.Panel(canvas.sentence(NOTHING), height=1.2),)
    title = f"{summary.name}\nspeed-up over the paired baseline{_mark(summary)}"
    return canvas.png(panels, PRINT, title, across=2)


def _mark(summary: RunSummary) -> str:
    return " (simulated, not a measurement)" if summary.simulated else ""
