"""Where each arm's speed-up falls to 1, as marks on the plot of speed-ups. Asked for by form: any model will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.plots.ink import Style
from specbench_client.report.plots.loads import Crossing


class Bounds(Protocol):
    """Where a place lies; an end that is None lies beyond what was measured."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


class Crossover(Protocol):
    """A place at which a speed-up is 1; its figure has no value where there is none."""

    @property
    def at(self) -> Figure: ...
    @property
    def interval(self) -> Bounds | None: ...


class ArmCrossover(Protocol):
    """The crossover of an arm on a workload, over the load."""

    @property
    def arm(self) -> str: ...
    @property
    def workload(self) -> str: ...
    @property
    def crossover(self) -> Crossover: ...


CrossoversOf = Callable[[RunSummary], Sequence[ArmCrossover]]


def crossings(
    found: Sequence[ArmCrossover], workload: str, together: Sequence[str], looks: Mapping[str, Style]
) -> tuple[Crossing, ...]:
    """The marks of the arms of one panel; one without an interval has no bar, and what was not reached no mark."""
    marks = []
    for each in found:
        at, held = each.crossover.at.value, each.crossover.interval
        if each.workload == workload and each.arm in together and at is not None:
            low, high = (held.low, held.high) if held else (at, at)
            marks.append(Crossing(looks[each.arm], at, low, high))
    return tuple(marks)
