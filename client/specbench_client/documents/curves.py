"""The report of `specbench analyze curve`: speed-up and acceptance length along one axis of a stored run."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.api_model import ApiModel
from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import SpeedupConclusion


class CurvePoint(ApiModel):
    """The measurement at one place of a curve."""

    place: float
    """The place in the axis's unit; for measured lengths, the geometric mean over the paired requests."""
    label: str
    """The place as text: `0.7`, `8`, `about 1,024`."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    pairs: int
    """Number of paired requests."""
    speedup: Figure
    """Output tokens per second of stream time over the paired baseline's."""
    conclusion: SpeedupConclusion
    """Conclusion from the speed-up, after Holm's correction over every place of every curve."""
    acceptance_length: Figure
    """Acceptance length, emitted and pooled, over the same pairs, tokens/step."""


class CurveAnswerBasis(StrEnum):
    """The basis of a prediction at a requested place."""

    MEASURED = "measured"
    """The place was measured."""
    INTERPOLATED = "interpolated"
    """The place is between two measured places."""
    REFUSED = "refused"
    """The place is outside the measured range, so there is no prediction."""


class CurvePrediction(ApiModel):
    """A curve's prediction at one requested place."""

    place: float
    """The place in the axis's unit."""
    basis: CurveAnswerBasis
    """Whether it was measured, interpolated, or refused."""
    between: list[float] = []
    """The measured places it was computed from: one, or the two neighbours."""
    speedup: Figure | None = None
    """The speed-up there; None if refused."""
    acceptance_length: Figure | None = None
    """The acceptance length there; None if refused or not measured."""
    message: str
    """The prediction, or why there is none, in one sentence."""


class SpeedupCurve(ApiModel):
    """Measurements that are alike in everything but the axis."""

    title: str
    """Short title."""
    points: list[CurvePoint]
    """Points, the smallest place first."""
    crossover: Crossover
    """Where the speed-up is 1."""
    predictions: list[CurvePrediction] = []
    """Predictions at the requested places."""


class Curves(ApiModel):
    """All curves over one axis."""

    schema_version: Literal["specbench.io/curves/v1"] = "specbench.io/curves/v1"
    """Version of this document."""
    axis: str
    """The axis: concurrency, temperature, draft-tokens, input-tokens or output-tokens."""
    unit: str
    """Unit of the places; empty for none."""
    simulated: bool
    """Whether the engine was simulated, so that it is not a measurement."""
    curves: list[SpeedupCurve] = []
    """Curves, the one with the most points first."""
    comparisons: int = 0
    """Number of speed-ups over all curves that Holm's correction covers."""
    left_out: list[str] = []
    """Cells that are in no curve, each with the reason."""
    limits: list[str] = []
    """Limits of these curves."""
