"""Two stored results beside each other, cell by cell: what `specbench compare` says and a gate stands on."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class Side(ApiModel):
    """One of the two results."""

    uri: str
    """Root of the run's results."""
    namespace: str
    """Namespace of the run."""
    name: str
    """Name of the run."""
    uid: str
    """UID of the run."""
    created: str
    """When its answer was written, RFC 3339."""
    simulated: bool
    """Whether any point was simulated."""
    trustworthy: bool
    """Whether no check found a reason to doubt it."""
    verdict: str
    """Its verdict in one sentence."""


class Difference(ApiModel):
    """Something beside the figures in which the two results differ: GPU, engine version, an argument."""

    what: str
    """What differs."""
    before: str
    """In the earlier result."""
    after: str
    """In the later one."""

    def __str__(self) -> str:
        """For a line: `GPU H100 → H200`."""
        return f"{self.what} {self.before} → {self.after}"


class Standing(StrEnum):
    """What can be said of a figure of the later result against the earlier one's."""

    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "unclear"
    """Its interval holds no 1, which among so many comparisons happens by chance."""
    INDISTINGUISHABLE = "indistinguishable"
    """Its interval holds 1."""
    TOO_FEW_REPEATS = "too few repeats"
    NO_INTERVAL = "no interval"


class Compared(ApiModel):
    """One figure of one cell on both sides."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label: `8`, `2.5/s`, `trace`."""
    metric: str
    """Its label: `speedup`, `ttft p95`."""
    unit: str
    """Unit of before and after."""
    before: float
    """In the earlier result, over what both sides share."""
    after: float
    """In the later result, over the same."""
    ratio: Figure
    """after / before, with its two-sided interval."""
    more_is_better: bool
    """Whether a ratio above 1 is an improvement."""
    standing: Standing
    """What can be said of it."""
    repeats: tuple[int, int]
    """Repeats before and after that it rests on."""


class LackReason(StrEnum):
    """Why a cell, or a figure of it, could not be compared."""

    MISSING_AFTER = "MissingAfter"
    """The later result does not have it."""
    MISSING_BEFORE = "MissingBefore"
    """The earlier result does not have it."""
    INVALID = "Invalid"
    """A check broke it on one side."""
    OTHER_WORK = "OtherWork"
    """Its prompts, its sampling or its limits are others."""
    NOTHING_SHARED = "NothingShared"
    """No request of the one side has a partner on the other, or the figure was not to be had."""


class Uncompared(ApiModel):
    """A cell, or a figure of it, that could not be compared."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    metric: str = ""
    """The figure; empty for the whole cell."""
    reason: LackReason
    """Why not, in one word."""
    message: str
    """Why not, for a person."""

    @property
    def place(self) -> str:
        """For a line."""
        metric = f": {self.metric}" if self.metric else ""
        return f"{self.arm} on {self.workload} at {self.load}{metric}"


class Comparison(ApiModel):
    """Two results beside each other."""

    schema_version: Literal["specbench.io/comparison/v1"] = "specbench.io/comparison/v1"
    """Version of this document."""
    created: str
    """When this was written, RFC 3339."""
    before: Side
    """The earlier result."""
    after: Side
    """The later result."""
    differences: list[Difference] = []
    """What else differs."""
    refused: list[str] = []
    """Why the two cannot be compared at all; then there are no cells."""
    cells: list[Compared] = []
    """What could be compared."""
    uncompared: list[Uncompared] = []
    """What could not."""
    limits: list[str] = []
    """What a reader of any such comparison must know."""
