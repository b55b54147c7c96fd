"""The plots of a run's report, its speed-up plot as PNG, and plots that commands write to files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots import canvas
from specbench_client.report.plots.canvas import PanelGroup, PlotSection
from specbench_client.report.plots.sections import acceptance, breakdown, times
from specbench_client.report.plots.sections.acceptance_maps import by_difference
from specbench_client.report.plots.sections.cells import INVALID
from specbench_client.report.plots.sections.speedup import speedup, speedup_by_category
from specbench_client.report.plots.sections.throughput import pareto, throughput
from specbench_client.report.plots.styles import PRINT

_PLACE = "position in the output, tokens"


SECTIONS = (  # in the order of the page; each draws a PanelGroup, or None where it has no data
    PlotSection(
        "Speed-up over the paired baseline, by load", lambda summary: speedup(summary, summary.crossover.by_load)
    ),
    PlotSection("What one user gets, and what the engine gives", pareto),
    PlotSection("Output tokens a second, with the gap over the baseline", throughput),
    PlotSection("Acceptance length (emitted) by category, at the lightest load", acceptance.by_category),
    PlotSection("Acceptance by position of the draft, at the lightest load", acceptance.by_position),
    PlotSection(
        "Acceptance length from request to request, at the lightest load",
        partial(breakdown.by_request, of=lambda cell: cell.breakdown.acceptance_by_request),
    ),
    PlotSection(
        "Acceptance length by position in the output, at the lightest load",
        partial(breakdown.by_place, of=lambda cell: cell.breakdown.by_position, x_label=_PLACE),
    ),
    PlotSection(
        "Acceptance length by position, answers of one class of length a line, at the lightest load",
        partial(breakdown.by_length, of=lambda cell: cell.breakdown.by_length, x_label=_PLACE),
    ),
    PlotSection("Which drafter accepts more, by length of the answer and position in it", by_difference),
    PlotSection(
        "Acceptance length by context, at the lightest load",
        partial(
            breakdown.by_place, of=lambda cell: cell.breakdown.by_context, x_label="prompt and output so far, tokens"
        ),
    ),
    PlotSection("Time of a decode step", times.step_time),
    PlotSection("Time of a decode step, split by the fitted step costs", times.step_split),
    PlotSection("Time of a request", times.request_time),
    PlotSection("Speed-up by category and load", speedup_by_category),
)


MARK = " (simulated, not a measurement)"
"""Appended to the title of every plot of simulated results."""
NOTHING = "nothing was compared with a baseline"


@dataclass(frozen=True)
class Plot:
    """One plot of the page. Title and caption are text of the page, where they wrap."""

    title: str
    caption: str
    """Definition of what is drawn, number of sampling units and method of the intervals."""
    panels: tuple[str, ...]
    """SVGs, one for each panel; several of them take the whole width of the page."""


def svgs(summary: RunSummary) -> list[Plot]:
    """Return the plots of the page that have data."""
    found = []
    for section in SECTIONS:
        drawn = section.draw(summary)
        if drawn is not None:
            found.append(plot_of(section.title, drawn, simulated=summary.simulated))
    return found


def plot_of(name: str, drawn: PanelGroup, *, simulated: bool) -> Plot:
    """Return one plot of the page. `name`: its title, which is unique on the page."""
    title = name + (MARK if simulated else "")
    return Plot(title, drawn.caption, tuple(_panels(name, title, drawn)))


def _panels(name: str, title: str, drawn: PanelGroup) -> Iterator[str]:
    for index, panel in enumerate(drawn.panels):
        words = ": ".join(part for part in (title, panel.title, panel.words) if part)
        yield canvas.svg(panel, f"{name}/{index}", words)


def png(summary: RunSummary) -> bytes:
    """Return the plot of speed-up by load as PNG; a sentence as a picture if nothing was compared."""
    drawn = speedup(summary)
    panels = drawn.panels if drawn else (canvas.Panel(canvas.text_only(NOTHING), height=1.2),)
    return canvas.png(panels, PRINT, png_title(summary), across=2)


def png_title(summary: RunSummary) -> str:
    """Return the title of the PNG, which has no caption: it explains hollow marks as well."""
    lines = [summary.name, f"speed-up over the paired baseline{MARK if summary.simulated else ''}"]
    return "\n".join([*lines, *([INVALID] if any(not cell.valid for cell in summary.cells) else [])])


KINDS = ("html", "svg", "png")
LETTERS = 82
"""Characters in a line of the caption for each panel in a row."""


@dataclass(frozen=True)
class PlotDocument:
    """Plots with their titles under a common title, as a command writes them to a file."""

    title: str
    drawn: Sequence[tuple[str, PanelGroup]]
    simulated: bool = False

    @property
    def plots(self) -> list[Plot]:
        """The plots for an HTML page."""
        return [plot_of(title, drawn, simulated=self.simulated) for title, drawn in self.drawn]


def render_paper(picture: PlotDocument, kind: str) -> bytes:
    """Return the plots as `svg` or `png` on white: every panel, and the captions below them."""
    panels = [panel for _, drawn in picture.drawn for panel in drawn.panels]
    across = min(2, len(panels))
    title = picture.title + (MARK if picture.simulated else "")
    captions = [f"{name}. {drawn.caption}" for name, drawn in picture.drawn]
    below = "\n".join(textwrap.fill(each.replace("$", r"\$"), LETTERS * across) for each in captions)
    draw = canvas.png if kind == "png" else canvas.paper_svg
    return draw(panels, PRINT, title.replace("$", r"\$"), across, below)
