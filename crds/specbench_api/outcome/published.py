"""A run beside published tables: the nearest published figure, and in what the two differ. Never a pass or a fail."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.comparison import Difference
from specbench_api.outcome.figure import Figure


class PublishedTable(ApiModel):
    """One table that is shipped as data."""

    name: str
    """What it is asked for by."""
    title: str
    """What it shows."""
    source: str
    """Who published it, and where."""
    read: str
    """How its numbers came here, and how exact that is."""
    caution: str = ""
    """What is known to be wrong with it."""
    rows: int
    """Figures in it."""


class PublishedFigure(ApiModel):
    """One published number and the circumstances that were published with it. What was not told is None."""

    model: str
    """The target."""
    engine: str
    """What served it."""
    hardware: str
    """On what."""
    method: str
    """The drafter's method, by specbench's name of it."""
    draft_tokens: int | None = None
    """Draft tokens a step; of a tree, its nodes."""
    dataset: str
    """The prompts."""
    batch: int | None = None
    """Requests at once."""
    temperature: float | None = None
    """Sampling temperature."""
    figure: Literal["speedup", "tpot_speedup", "acceptance_length", "acceptance_rate", "tpot_ms_p50"]
    """What was published: a ratio over the baseline, tokens a step with the bonus, the accepted share of drafts, or the
    median time per output token."""
    value: float
    """The number."""
    note: str = ""
    """What must be known to read it."""


class BesidePublished(ApiModel):
    """One figure of one cell beside the nearest published one of a table."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    measured: Figure
    """What was measured."""
    table: str
    """Name of the published table."""
    published: PublishedFigure
    """The nearest row of it."""
    ratio: float
    """Measured over published."""
    differences: list[Difference]
    """Published → measured: why the two need not be alike."""


class PublishedComparison(ApiModel):
    """A run beside published tables."""

    schema_version: Literal["specbench.io/published-comparison/v1"] = "specbench.io/published-comparison/v1"
    """Version of this document."""
    run: str
    """Root of the run's results."""
    simulated: bool
    """True when any point was simulated."""
    trustworthy: bool
    """Whether no check found a reason to doubt the run."""
    tables: list[PublishedTable]
    """The tables that were asked for."""
    rows: list[BesidePublished]
    """Nearest rows, by cell, figure and table."""
    unmatched: list[str]
    """Cells beside which nothing stands, each with the reason."""
    limits: list[str]
    """What a reader of any such comparison must know."""
