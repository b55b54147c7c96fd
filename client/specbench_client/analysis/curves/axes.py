"""The axes of curves: name, unit, scale, and where a cell or a request is on the axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydantic.main import IncEx

from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.stepcost.model import drafter_family
from specbench_client.numpy_columns import Values


@dataclass(frozen=True)
class CurveAxis:
    """One axis. Between measured places the log of the speed-up is a straight line over the axis's scale."""

    name: str
    unit: str
    """Unit of its numbers; empty for none."""
    logarithmic: bool
    """Whether its scale is logarithmic, as of loads and lengths."""
    falling: bool = False
    """Whether a speed-up is assumed to fall along it, where the intervals allow that."""

    def scaled(self, places: Values) -> Values:
        """Convert numbers of the axis to its scale; the shape stays the same."""
        return np.log(places) if self.logarithmic else places

    def unscaled(self, place: float) -> float:
        """Convert a place on the scale back to a number of the axis."""
        return float(np.exp(place)) if self.logarithmic else place

    def words(self, place: float | None = None) -> str:
        """Return text for sentences: `concurrency 40`, `2.5/s`, `temperature 0.7`; without a place, the axis's name."""
        name = self.name.replace("-", " ")
        if place is None:
            return name
        return self.number(place) if self.name == RATE_NAME else f"{name} {self.number(place)}"

    def number(self, place: float) -> str:
        """Return the number for text that already names the axis: `40`, `2.5/s`, `1,024`."""
        text = f"{place:.3g}" if abs(place) < 1000 else f"{place:,.0f}"
        return f"{text}/s" if self.name == RATE_NAME else text


RATE_NAME = "rate"
CONCURRENCY = CurveAxis("concurrency", "streams", logarithmic=True, falling=True)
RATE = CurveAxis(RATE_NAME, "conversations/s", logarithmic=True, falling=True)


@dataclass(frozen=True)
class CurveCell:
    """One arm × workload × load of a run."""

    arm: Arm
    workload: Workload
    level: Level

    @property
    def words(self) -> str:
        """Name for messages: `ngram on chat at concurrency 8`."""
        return f"{self.arm.name} on {self.workload.name} at {self.level.words}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the cell in the result: arm, workload, load."""
        return self.arm.name, self.workload.name, self.level.label


@dataclass(frozen=True)
class AxisKind:
    """One kind of curve: its axis, and which cells are on one curve.

    `alike`: what the cells of one curve have in common. `place`: the place of a cell on a declared axis, None if it has
    none. `column`: for a measured axis, the column of the baseline by which requests are sorted into classes.
    """

    axis: CurveAxis
    alike: Callable[[CurveCell], tuple[object, ...]]
    limit: str
    """Limit that is printed with every such curve."""
    place: Callable[[CurveCell], float | None] | None = None
    column: str = ""


def _workload_but(cell: CurveCell, varied: IncEx) -> tuple[object, ...]:
    """Return what identifies a cell, without the fields of its workload that vary along the axis."""
    return cell.arm.name, cell.workload.model_dump_json(exclude=varied), cell.level.label


AXIS_KINDS = {
    "temperature": AxisKind(
        CurveAxis("temperature", "", logarithmic=False),
        lambda cell: _workload_but(cell, {"name": True, "sampling": {"temperature"}}),
        "At a temperature above 0 the answers of both arms differ by design: pairs share a prompt, not an answer.",
        place=lambda cell: cell.workload.sampling.temperature,
    ),
    "draft-tokens": AxisKind(
        CurveAxis("draft-tokens", "tokens", logarithmic=True),
        lambda cell: (drafter_family(cell.arm), cell.workload.name, cell.level.label),
        "A speed-up rises with the draft length before it falls: it may pass through 1 twice.",
        place=lambda cell: float(cell.arm.most_drafts) if drafter_family(cell.arm) else None,
    ),
    "input-tokens": AxisKind(
        CurveAxis("input-tokens", "tokens", logarithmic=True),
        lambda cell: _workload_but(cell, {"name": True, "dataset": True}),
        "Prompts of different lengths differ in more than their length (source, task), unless they were brought to"
        " each length from the same texts (specbench dataset prepare --isl).",
        column="input_tokens",
    ),
    "output-tokens": AxisKind(
        CurveAxis("output-tokens", "tokens", logarithmic=True),
        lambda cell: _workload_but(cell, {"name": True, "output": True}),
        "Requests are sorted by the length of the baseline's answer, which depends on their content: this is not an"
        " experiment in which only the length was changed.",
        column="tokens",
    ),
    "concurrency": AxisKind(
        CONCURRENCY,
        lambda cell: (cell.arm.name, cell.workload.name),
        "The speed-up is assumed to fall with the load wherever the intervals allow it.",
        place=lambda cell: cell.level.concurrency,
    ),
}
"""Kinds of curves by the name that the user gives with --by."""
