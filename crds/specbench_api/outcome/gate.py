"""gate.json: whether a run passed its gate, and the evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.comparison import Compared, Difference, Side, Uncompared
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate

GATE_VARIABLE = "SPECBENCH_GATE"
"""In the environment of a gate's Job: what is asked, see AskedGate."""


class AskedGate(ApiModel):
    """A gate with its baseline found: what the operator hands to the gate's Job."""

    asked: str
    """Digest of the gate, by which its answer is known again."""
    gate: Gate
    """The gate."""
    baseline: str
    """Root of the earlier result."""

    def to_line(self) -> str:
        """As one line of JSON for the environment of a pod, where Kubernetes would expand `$(NAME)`."""
        return self.model_dump_json(by_alias=True, exclude_none=True).replace("$", "\\u0024")


class Shown(StrEnum):
    """What one test showed."""

    PASSED = "Passed"
    """Within the tolerance: the one-sided bound on the bad side lies inside it."""
    FAILED = "Failed"
    """Beyond the tolerance: the one-sided bound on the good side lies outside, also after Holm's correction."""
    INCONCLUSIVE = "Inconclusive"
    """Neither could be shown."""


class GateTest(ApiModel):
    """One figure of one cell against its tolerance."""

    compared: Compared
    """The figure on both sides."""
    max_regression_percent: float
    """What is tolerated."""
    limit: float
    """The same as a ratio: after / before may come to this."""
    low: float | None = None
    """One-sided lower bound of the ratio, at the gate's confidence. None: nothing can be told."""
    high: float | None = None
    """One-sided upper bound of the ratio."""
    verdict: Shown
    """What it showed."""
    why: str = ""
    """Where it is inconclusive: why, and what would decide."""
    repeats_to_decide: int | None = None
    """Where it is inconclusive: about so many repeats on each side would decide; None where none would, or unknown."""


class GateReport(ApiModel):
    """Whether a run passed its gate."""

    schema_version: Literal["specbench.io/gate/v1"] = "specbench.io/gate/v1"
    """Version of this document."""
    asked: str
    """Digest of the gate that was asked."""
    created: str
    """When this was written, RFC 3339."""
    gate: Gate
    """The gate."""
    passed: bool
    """Whether it passed."""
    reason: GateReason
    """Why, in one word."""
    message: str
    """Why, in one line."""
    before: Side
    """The earlier result."""
    after: Side
    """The run that was gated."""
    differences: list[Difference] = []
    """What else differs."""
    refused: list[str] = []
    """Why the two cannot be compared at all."""
    tests: list[GateTest] = []
    """The tests, the worst first."""
    uncompared: list[Uncompared] = []
    """What could not be tested."""
    limits: list[str] = []
    """What a reader must know."""
