"""gate.json: whether a run passed its gate, and the evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate
from specbench_api.spec.status import GateStatus
from specbench_client.documents.comparison import ComparedFigure, ComparedResult, ComparisonGap, Difference


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


class GateReport(GateStatus):
    """Whether a run passed its gate: what its status shows of it, and the evidence."""

    schema_version: Literal["specbench.io/gate/v1"] = "specbench.io/gate/v1"
    """Version of this document."""
    reason: GateReason
    """Why, as one word."""
    created: str
    """When this document was written, RFC 3339."""
    gate: Gate
    """The evaluated gate."""
    before: ComparedResult
    """The earlier result."""
    after: ComparedResult
    """The run to which the gate belongs."""
    differences: list[Difference] = []
    """Conditions in which the two results differ."""
    refused: list[str] = []
    """Reasons why the two cannot be compared at all."""
    tests: list[GateTest] = []
    """All tests, the worst first."""
    uncompared: list[ComparisonGap] = []
    """Cells and figures that could not be tested."""
    limits: list[str] = []
    """Caveats that apply to the report."""
