"""Where a speed-up falls to 1 along one axis, such as the load."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure


class CrossoverKind(StrEnum):
    """What is known about the position at which a speed-up is 1."""

    REACHED = "Reached"
    """It is between two measured positions."""
    NOT_REACHED = "NotReached"
    """The speed-up is above 1 at every measured position (for an axis other than the load: on one side)."""
    BELOW_SMALLEST = "BelowSmallest"
    """The speed-up is at most 1 from the smallest measured position on."""
    INDISTINGUISHABLE = "Indistinguishable"
    """It may be anywhere between the smallest and the largest measured position, or beyond: the noise is too large."""
    NOT_MONOTONE = "NotMonotone"
    """The curve crosses 1 several times, or upwards, by more than noise explains: there is no single position."""
    INSUFFICIENT_DATA = "InsufficientData"
    """Fewer than two positions have a usable speed-up."""


class Crossing(ApiModel):
    """One position at which the linearly interpolated measurements cross 1."""

    at: float
    """The position, in the axis's unit."""
    falls: bool
    """Whether the speed-up falls through 1 there; otherwise it rises."""


class CrossoverInterval(ApiModel):
    """Confidence interval of the position; its ends may be outside the measured range."""

    low: float | None = None
    """Lower end, in the axis's unit; None: below the smallest measured position. If the whole interval is beyond the
    largest measured position, that position."""
    high: float | None = None
    """Upper end, in the axis's unit; None: beyond the largest measured position. If the whole interval is below the
    smallest measured position, that position."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How the interval was computed."""


class Crossover(ApiModel):
    """The position along one axis at which the speed-up over the paired baseline is 1."""

    axis: str
    """The axis: concurrency, rate, temperature, draft-tokens, input-tokens or output-tokens."""
    kind: CrossoverKind
    """What is known about the position."""
    at: Figure
    """The position, in the axis's unit; missing unless it was reached. It has an interval only if both ends are in the
    measured range; see `interval`."""
    interval: CrossoverInterval | None = None
    """Confidence interval of the position; None if nothing is known."""
    places: list[float] = []
    """The measured positions that were used, in the axis's unit, ascending."""
    crossings: list[Crossing] = []
    """Every position at which the measurements cross 1, without any assumption of monotonicity."""
    left_out: list[str] = []
    """Positions that were not used, each with the reason."""
    lost: Figure | None = None
    """Fraction of the speed-up lost from the smallest to the largest measured position: 1 - last / first; negative if
    it grows. None if fewer than two positions are usable."""
    message: str
    """The result in one sentence."""


class ArmCrossover(ApiModel):
    """Up to which load an arm is faster than the baseline, for one workload."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    crossover: Crossover
    """The crossover over concurrency or rate."""
