"""The reports of `specbench analyze curve` and `draft-lengths`: a stored run along one axis, and its best lengths."""

from __future__ import annotations

from typing import Any, Literal

from specbench_api.api_model import ApiModel
from specbench_client.documents.crossover import Crossover
from specbench_client.documents.figure import Figure, Verdict


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
    conclusion: Verdict
    """Conclusion from the speed-up, after Holm's correction over every place of every curve."""
    acceptance_length: Figure
    """Acceptance length, emitted and pooled, over the same pairs, tokens/step."""


class SpeedupCurve(ApiModel):
    """Measurements that are alike in everything but the axis."""

    title: str
    """Short title."""
    points: list[CurvePoint]
    """Points, the smallest place first."""
    crossover: Crossover
    """Where the speed-up is 1."""


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
    limit: str
    """Limit of curves over this axis."""


# The report of `specbench analyze draft-lengths`: the best measured draft length at each load.


class BestDraftLength(ApiModel):
    """The best draft length at one load."""

    load: str
    """Label of the load."""
    measured: list[int]
    """The draft lengths that were compared; 0 is the baseline."""
    draft_tokens: int
    """The best of them."""
    speedup: Figure | None
    """Its speed-up over the baseline; None for the baseline."""
    next_draft_tokens: int
    """The next best."""
    ratio: Figure
    """Output tokens per second of stream time of the best over the next best, over pairs of the same requests."""
    conclusion: Verdict
    """Conclusion from that ratio, after Holm's correction over every load of every table."""


class DraftSchedule(ApiModel):
    """The best lengths as configuration of the run's engine."""

    engine: str
    """Kind of the engine."""
    config: Any
    """The configuration: a value of the engine's speculative configuration, or the content of its file."""
    arguments: list[str]
    """The command-line arguments that pass it to the engine."""
    problems: list[str] = []
    """Why this engine would reject or not follow the schedule; empty for none."""
    drafter: dict[str, Any]
    """The schedule as an arm: an entry of `spec.drafters`."""
    run_as: str | None = None
    """Name of the arm that ran this schedule; None: not run as a schedule."""


class DraftLengthTable(ApiModel):
    """The best draft lengths of one drafter on one workload."""

    arms: list[str]
    """The compared arms."""
    workload: str
    """Name of the workload."""
    loads: list[BestDraftLength]
    """By load, the smallest first."""
    schedule: DraftSchedule | None
    """The schedule; None if there is none."""
    why_no_schedule: str = ""
    """Why there is none."""


class DraftLengths(ApiModel):
    """All tables of a run."""

    schema_version: Literal["specbench.io/draft-lengths/v1"] = "specbench.io/draft-lengths/v1"
    """Version of this document."""
    simulated: bool
    """Whether the engine was simulated, so that it is not a measurement."""
    tables: list[DraftLengthTable]
    """By drafter and workload."""
    left_out: list[str] = []
    """Cells that were not compared, each with the reason."""
