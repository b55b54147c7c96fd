"""Numbers with their resamples, so that their differences have intervals too. The prompt is the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.statistics.bootstrap import LEVEL, Layout, describe, expanded, resampled_sums
from specbench_client.metrics.frame import Values

SEED = 0
"""Of the resamples: the same answers give the same intervals."""


@dataclass(frozen=True)
class Ratio:
    """Σ over / Σ under, one value an answer."""

    over: Values
    under: Values


@dataclass(frozen=True)
class Sampled:
    """A number and what it was in each resample. None where there was nothing to divide by."""

    value: float | None
    samples: Values


@dataclass(frozen=True)
class Words:
    """What a figure says of itself."""

    unit: str
    definition: str
    source: str


def sampled(ratios: Sequence[Ratio], layout: Layout) -> list[Sampled]:
    """All ratios over one draw of resamples: those of one answer move together."""
    if not ratios:
        return []
    sums = resampled_sums([layout.matrix(part) for each in ratios for part in (each.over, each.under)], layout, SEED)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = sums[:, 0::2] / sums[:, 1::2]
    totals = [(float(each.over.sum()), float(each.under.sum())) for each in ratios]
    values = [over / under if under else None for over, under in totals]
    return [Sampled(value, drawn[:, index]) for index, value in enumerate(values)]


def minus(left: Sampled, right: Sampled) -> Sampled:
    """The difference of two numbers of the same draws."""
    value = None if left.value is None or right.value is None else left.value - right.value
    return Sampled(value, left.samples - right.samples)


def best(of: Sequence[Sampled]) -> tuple[int, Sampled]:
    """The largest and its place; in each resample the largest there, so that the choice itself is uncertain."""
    values = [-np.inf if each.value is None else each.value for each in of]
    place = int(np.argmax(values))
    return place, Sampled(of[place].value, np.max([each.samples for each in of], axis=0))


def figure(number: Sampled, layout: Layout, words: Words) -> Figure:
    """The number with its interval, where the prompts suffice for one."""
    bounds = None if number.value is None else expanded(number.value, number.samples, layout)
    how = describe(layout)
    interval = FigureInterval(low=bounds.low, high=bounds.high, level=LEVEL, method=how) if bounds else None
    return Figure(
        value=number.value,
        unit=words.unit,
        definition=words.definition,
        n=layout.prompts,
        interval=interval,
        source=words.source,
    )
