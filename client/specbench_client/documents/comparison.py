"""The comparison of two stored results, and gate.json: whether a run passed its gate, with the evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate
from specbench_api.spec.status import GateStatus
from specbench_client.documents.figure import CellReference, Figure, Verdict
from specbench_client.documents.summary import RunConclusion


class ComparedResult(RunConclusion):
    """One of the two results."""

    uri: str
    """Root folder of the run's results."""


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


class ComparedFigure(CellReference):
    """One figure of one cell in both results."""

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


class ComparisonGap(CellReference):
    """A cell, or one of its figures, that could not be compared."""

    metric: str = ""
    """Label of the metric; empty for the whole cell."""
    reason: ComparisonGapReason
    """The reason, as one word."""
    message: str
    """The reason, in a sentence."""

    @property
    def place(self) -> str:
        """Description for messages: `eagle3 on chat at 8: ttft p95`."""
        return super().place + (f": {self.metric}" if self.metric else "")


class ComparedPair(ApiModel):
    """Two results, and what is known about their comparison besides the figures."""

    created: str
    """When this document was written, RFC 3339."""
    before: ComparedResult
    """The earlier result."""
    after: ComparedResult
    """The later result; of a gate, the run to which the gate belongs."""
    differences: list[Difference] = []
    """Conditions in which the two results differ."""
    refused: list[str] = []
    """Reasons why the two cannot be compared at all; there are then no figures."""
    uncompared: list[ComparisonGap] = []
    """The cells and figures that could not be compared."""
    limits: list[str] = []
    """Caveats that apply to every such comparison."""


class Comparison(ComparedPair):
    """Comparison of two results."""

    schema_version: Literal["specbench.io/comparison/v2"] = "specbench.io/comparison/v2"
    """Version of this document."""
    cells: list[ComparedFigure] = []
    """The figures that were compared."""


class GateTestOutcome(StrEnum):
    """Outcome of one test."""

    PASSED = "Passed"
    """Within the tolerance: the one-sided bound on the worse side is inside it."""
    FAILED = "Failed"
    """Beyond the tolerance: the one-sided bound on the better side is outside it, also after Holm's correction."""
    INCONCLUSIVE = "Inconclusive"
    """Neither was shown."""


class GateTest(ApiModel):
    """Test of one figure of one cell against its tolerance."""

    compared: ComparedFigure
    """The figure in both results."""
    max_regression_percent: float
    """The tolerance, in percent."""
    limit: float
    """The tolerance as a ratio: the limit of after / before."""
    low: float | None = None
    """One-sided lower bound of the ratio, at the gate's confidence; None if it cannot be computed."""
    high: float | None = None
    """One-sided upper bound of the ratio; None if it cannot be computed."""
    outcome: GateTestOutcome
    """Outcome of the test."""
    why: str = ""
    """For an inconclusive test: the reason, and what would decide it."""
    repeats_to_decide: int | None = None
    """For an inconclusive test: estimated repeats per result that would decide it; None if none would, or unknown."""


class GateReport(ComparedPair, GateStatus):
    """Whether a run passed its gate: what its status shows of it, and the evidence."""

    schema_version: Literal["specbench.io/gate/v3"] = "specbench.io/gate/v3"
    """Version of this document."""
    reason: GateReason
    """Why, as one word."""
    gate: Gate
    """The evaluated gate."""
    tests: list[GateTest] = []
    """All tests, the worst first."""
