"""Comparison of two stored results, cell by cell: the output of `specbench compare` and the basis of a gate."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure, Verdict


class ComparedResult(ApiModel):
    """One of the two results."""

    uri: str
    """Root folder of the run's results."""
    namespace: str
    """Namespace of the run."""
    name: str
    """Name of the run."""
    uid: str
    """UID of the run."""
    created: str
    """When its summary was written, RFC 3339."""
    simulated: bool
    """Whether any of its points was simulated."""
    trustworthy: bool
    """Whether no check found a reason to doubt it."""
    headline: str
    """Its conclusion in one sentence."""


class Difference(ApiModel):
    """A difference in conditions between the two results: GPU, engine version, an argument."""

    name: str
    """What differs."""
    before: str
    """Value in the earlier result."""
    after: str
    """Value in the later result."""

    def __str__(self) -> str:
        """Return the difference as one line: `GPU H100 → H200`."""
        return f"{self.name} {self.before} → {self.after}"


class ComparedFigure(ApiModel):
    """One figure of one cell in both results."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level: `8`, `2.5/s`, `trace`."""
    metric: str
    """Label of the metric: `speedup`, `ttft p95`."""
    unit: str
    """Unit of before and after."""
    before: float
    """Value in the earlier result, over the requests that both have."""
    after: float
    """Value in the later result, over the same requests."""
    ratio: Figure
    """after / before, with its two-sided confidence interval."""
    more_is_better: bool
    """Whether a ratio above 1 is an improvement."""
    conclusion: Verdict
    """Conclusion about the change."""
    repeats: tuple[int, int]
    """Number of repeats (before, after) that were used."""


class ComparisonGapReason(StrEnum):
    """Why a cell, or one of its figures, could not be compared."""

    MISSING_AFTER = "MissingAfter"
    """It is not in the later result."""
    MISSING_BEFORE = "MissingBefore"
    """It is not in the earlier result."""
    INVALID = "Invalid"
    """A check invalidated it in one of the results."""
    OTHER_WORK = "OtherWork"
    """Its prompts, sampling parameters or output limits differ."""
    NOTHING_SHARED = "NothingShared"
    """No request has a counterpart in the other result, or the figure is missing."""


class ComparisonGap(ApiModel):
    """A cell, or one of its figures, that could not be compared."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level."""
    metric: str = ""
    """Label of the metric; empty for the whole cell."""
    reason: ComparisonGapReason
    """The reason, as one word."""
    message: str
    """The reason, in a sentence."""

    @property
    def place(self) -> str:
        """Description for messages: `eagle3 on chat at 8: ttft p95`."""
        metric = f": {self.metric}" if self.metric else ""
        return f"{self.arm} on {self.workload} at {self.load}{metric}"


class Comparison(ApiModel):
    """Comparison of two results."""

    schema_version: Literal["specbench.io/comparison/v1"] = "specbench.io/comparison/v1"
    """Version of this document."""
    created: str
    """When this document was written, RFC 3339."""
    before: ComparedResult
    """The earlier result."""
    after: ComparedResult
    """The later result."""
    differences: list[Difference] = []
    """Conditions in which the two results differ."""
    refused: list[str] = []
    """Reasons why the two cannot be compared at all; `cells` is then empty."""
    cells: list[ComparedFigure] = []
    """The figures that were compared."""
    uncompared: list[ComparisonGap] = []
    """The cells and figures that could not be compared."""
    limits: list[str] = []
    """Caveats that apply to every such comparison."""
