"""The comparison of a run with published tables: nearest figures and their differences. Never a pass or a fail."""

from __future__ import annotations

from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.outcome.comparison import Difference
from specbench_api.outcome.figure import Figure


class PublishedTable(ApiModel):
    """One table that is shipped as data."""

    name: str
    """Name for --published."""
    title: str
    """What it shows."""
    source: str
    """Author and place of publication."""
    read: str
    """How its numbers were obtained, and how exact they are."""
    caution: str = ""
    """Known faults of the table."""
    rows: int
    """Number of figures."""


class PublishedFigure(ApiModel):
    """One published number and its published conditions; None for unpublished ones."""

    model: str
    """The target model."""
    engine: str
    """The engine and its version."""
    hardware: str
    """GPUs or CPU."""
    method: str
    """The drafting method, by specbench's name."""
    draft_tokens: int | None = None
    """Draft tokens per step; for a tree, its nodes."""
    dataset: str
    """The prompts."""
    batch: int | None = None
    """Batch size or concurrency."""
    temperature: float | None = None
    """Sampling temperature."""
    figure: Literal["speedup", "tpot_speedup", "acceptance_length", "acceptance_rate", "tpot_ms_p50"]
    """The published quantity: a ratio over the baseline, tokens per step with the bonus token, the accepted share of
    drafts, or the median time per output token."""
    value: float
    """The number."""
    note: str = ""
    """A remark on the number."""


class PublishedMatch(ApiModel):
    """One figure of one cell and the nearest published figure of a table."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    measured: Figure
    """The measured figure."""
    table: str
    """Name of the published table."""
    published: PublishedFigure
    """The nearest row of the table."""
    ratio: float
    """Measured over published."""
    differences: list[Difference]
    """Differences of the conditions, published → measured."""


class PublishedComparison(ApiModel):
    """A comparison of a run with published tables."""

    schema_version: Literal["specbench.io/published-comparison/v1"] = "specbench.io/published-comparison/v1"
    """Version of this document."""
    run: str
    """Root of the run's results."""
    simulated: bool
    """Whether any point was simulated."""
    trustworthy: bool
    """Whether no check found a reason to distrust the run."""
    tables: list[PublishedTable]
    """The requested tables."""
    rows: list[PublishedMatch]
    """Nearest rows, by cell, figure and table."""
    unmatched: list[str]
    """Cells without a published row, each with the reason."""
    limits: list[str]
    """Limits of this comparison."""
