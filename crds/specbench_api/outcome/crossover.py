"""Where a speed-up falls to 1: over the load, and over the acceptance length."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class CrossoverKind(StrEnum):
    """What can be said of the place at which a speed-up is 1."""

    REACHED = "Reached"
    """It lies between two measured places."""
    NOT_REACHED = "NotReached"
    """The speed-up is above 1 at every measured place; along another axis than the load, on one side of it."""
    BELOW_SMALLEST = "BelowSmallest"
    """The speed-up is at 1 or below from the smallest measured place on."""
    INDISTINGUISHABLE = "Indistinguishable"
    """It may lie anywhere from the smallest measured place to the largest, and beyond: noise hides it."""
    NOT_MONOTONE = "NotMonotone"
    """The curve crosses 1 several times, or upwards, by more than noise explains: there is no one place."""
    NOT_TOLD = "NotTold"
    """Fewer than two places have a speed-up that can be used."""


class Crossing(ApiModel):
    """One place at which the measured values, joined by straight lines, pass through 1."""

    at: float
    """The place, in the axis's unit."""
    falls: bool
    """Whether the speed-up falls through 1 there; else it rises."""


class PlaceInterval(ApiModel):
    """Where the place lies, with ends that may lie outside of what was measured."""

    low: float | None = None
    """Lower end, in the axis's unit; None: below the smallest measured place. Where all of it lies beyond the largest
    measured place, that place."""
    high: float | None = None
    """Upper end, in the axis's unit; None: beyond the largest measured place. Where all of it lies below the smallest
    measured place, that place."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How it was made."""


class Crossover(ApiModel):
    """Where a speed-up over the paired baseline is 1, along one axis."""

    axis: str
    """What varies: concurrency, rate, temperature, draft-tokens, input-tokens, output-tokens."""
    kind: CrossoverKind
    """What can be said."""
    at: Figure
    """The place, in the axis's unit; missing unless it was reached. Its interval stands here only where both its ends
    lie within what was measured; see `interval`."""
    interval: PlaceInterval | None = None
    """Where the place lies; None where nothing can be said."""
    places: list[float] = []
    """The measured places that it rests on, in the axis's unit, the smallest first."""
    crossings: list[Crossing] = []
    """Every place at which the measured values pass through 1, whatever was assumed."""
    left_out: list[str] = []
    """Places that could not be used, each with the reason."""
    lost: Figure | None = None
    """Share of the speed-up that is lost from the smallest measured place to the largest: 1 - the last / the first;
    below 0 where it grows. None where fewer than two places can be used, and in older results."""
    message: str
    """The answer in one sentence."""


class ArmCrossover(ApiModel):
    """Up to which load an arm pays on a workload."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    crossover: Crossover
    """Over concurrency or rate."""


class BreakEven(ApiModel):
    """The acceptance length that a drafter needs at one load, beside the one that it has. Decoding alone."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    needed: Figure
    """Acceptance length at which decoding is as fast as the baseline's: t_sd / t_ar, tokens/step."""
    measured: Figure
    """Acceptance length, emitted and pooled, over the same requests, tokens/step."""
    margin: Figure
    """measured / needed: above 1 the drafter pays in decoding."""
    valid: bool = True
    """False when a check broke the comparison."""


class Crossovers(ApiModel):
    """Where speculation stops to pay in this run."""

    by_load: list[ArmCrossover] = []
    """One an arm and workload."""
    break_even: list[BreakEven] = []
    """One an arm, workload and load."""
