"""One section of the plots: its title, and what it draws of a run, if anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots.canvas import Panel


@dataclass(frozen=True)
class Drawn:
    """The panels of one plot, and the words beside them."""

    panels: tuple[Panel, ...]
    caption: str
    """Definition, n and interval."""


@dataclass(frozen=True)
class Section:
    """A plot of the page."""

    title: str
    draw: Callable[[RunSummary], Drawn | None]
    """None where the run has nothing of it."""
