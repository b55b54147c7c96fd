"""The axes of curves: name, unit, scale, and where a cell or a request is on the axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.metrics.tidy_frame import Values


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


CellPlace = Callable[[Arm, Workload, Level], float | None]
"""Returns the place of a cell on the axis; None if it has none."""


@dataclass(frozen=True)
class AxisKind:
    """One kind of curve: its axis, and what may differ between its cells.

    `free`: names of `grouping.identity` that may differ along a curve; the selection of prompts may where the prompts'
    fingerprint identifies them. `place`: the place of a cell on a declared axis. `column`: for a measured axis, the
    column of the baseline by which requests are sorted into classes.
    """

    axis: CurveAxis
    free: tuple[str, ...]
    limit: str
    """Limit that is printed with every such curve."""
    place: CellPlace | None = None
    column: str = ""


def _temperature(_arm: Arm, workload: Workload, _level: Level) -> float | None:
    return workload.sampling.temperature


def _draft_tokens(arm: Arm, _workload: Workload, _level: Level) -> float | None:
    return float(arm.drafter.num_speculative_tokens) if arm.drafter else None


def _concurrency(_arm: Arm, _workload: Workload, level: Level) -> float | None:
    return None if level.concurrency is None else float(level.concurrency)


AXIS_KINDS = {
    "temperature": AxisKind(
        CurveAxis("temperature", "", logarithmic=False),
        ("temperature", "selection of prompts"),
        "At a temperature above 0 the answers of both arms differ by design: pairs share a prompt, not an answer.",
        place=_temperature,
    ),
    "draft-tokens": AxisKind(
        CurveAxis("draft-tokens", "tokens", logarithmic=True),
        ("draft tokens", "selection of prompts"),
        "A speed-up rises with the draft length before it falls: it may pass through 1 twice.",
        place=_draft_tokens,
    ),
    "input-tokens": AxisKind(
        CurveAxis("input-tokens", "tokens", logarithmic=True),
        ("dataset",),
        "Prompts of different lengths differ in more than their length (source, task), unless they were brought to"
        " each length from the same texts (specbench dataset prepare --isl).",
        column="input_tokens",
    ),
    "output-tokens": AxisKind(
        CurveAxis("output-tokens", "tokens", logarithmic=True),
        ("limits of the answers", "selection of prompts"),
        "Requests are sorted by the length of the baseline's answer, which depends on their content: this is not an"
        " experiment in which only the length was changed.",
        column="tokens",
    ),
    "concurrency": AxisKind(
        CONCURRENCY,
        ("load", "slots", "max_running_requests", "selection of prompts"),
        "The speed-up is assumed to fall with the load wherever the intervals allow it.",
        place=_concurrency,
    ),
}
"""Kinds of curves by the name that the user gives with --by."""
