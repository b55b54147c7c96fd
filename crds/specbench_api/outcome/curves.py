"""A speed-up and an acceptance length against one axis, over several stored runs: what `specbench curve` says."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.claims import Standing
from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.figure import Figure


class CurvePoint(ApiModel):
    """What was measured at one place of a curve."""

    place: float
    """Where, in the axis's unit; of measured lengths, the geometric mean over the paired requests."""
    label: str
    """The same for people: `0.7`, `8`, `about 1,024`."""
    arm: str
    """Name of the arm."""
    runs: list[str]
    """Roots of the runs that it comes from."""
    pairs: int
    """Paired requests that it rests on."""
    speedup: Figure
    """Output tokens a second of stream time over the paired baseline's."""
    standing: Standing
    """What the speed-up allows to be said, after Holm's correction over every place of every curve."""
    acceptance_length: Figure
    """Acceptance length, emitted and pooled, over the same pairs, tokens/step."""


class Basis(StrEnum):
    """What an answer at an asked place stands on."""

    MEASURED = "measured"
    """It is one of the measured places."""
    INTERPOLATED = "interpolated"
    """It lies between two of them; nothing was measured there."""
    REFUSED = "refused"
    """It lies outside of them, or there is nothing there: no answer."""


class Prediction(ApiModel):
    """What a curve says of one asked place."""

    place: float
    """Where, in the axis's unit."""
    basis: Basis
    """What the answer stands on."""
    between: list[float] = []
    """The measured places on which it stands: one, or its two neighbours."""
    speedup: Figure | None = None
    """The speed-up there; None where it is refused."""
    acceptance_length: Figure | None = None
    """The acceptance length there; None where it is refused, or was not measured."""
    message: str
    """The answer, or why there is none, in one sentence."""


class Curve(ApiModel):
    """Measurements that are alike in everything but the axis."""

    title: str
    """What is drawn, in a few words."""
    same: dict[str, str]
    """What is alike in all its points, by name."""
    differs: list[str] = []
    """In what it differs from the first curve; that is why its points do not join that one."""
    points: list[CurvePoint]
    """The smallest place first."""
    crossover: Crossover
    """Where the speed-up is 1."""
    predictions: list[Prediction] = []
    """At the places that were asked for."""


class LeftOut(ApiModel):
    """A run, or a cell of it, that is in no curve."""

    what: str
    """The run's root, and the cell where it is not the whole run."""
    reason: str
    """Why."""


class Curves(ApiModel):
    """All curves over one axis."""

    schema_version: Literal["specbench.io/curves/v1"] = "specbench.io/curves/v1"
    """Version of this document."""
    created: str
    """When this was written, RFC 3339."""
    axis: str
    """What they are drawn against: concurrency, temperature, draft-tokens, input-tokens, output-tokens."""
    unit: str
    """Of the places; empty where they have none."""
    simulated: bool
    """Whether any point was simulated: never a measurement."""
    curves: list[Curve] = []
    """The one with the most points first."""
    comparisons: int = 0
    """Places of all curves among which the words were corrected."""
    left_out: list[LeftOut] = []
    """What is in no curve."""
    limits: list[str] = []
    """What a reader of any such curve must know."""
