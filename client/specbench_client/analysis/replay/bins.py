"""Answers by how much of them stands in their prompts: what n-gram, and each arm of a run, is worth in each fifth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.replay import OverlapBin
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.estimates.speedup import SPEEDUP, speedup
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.pairing import Pairs

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""As "Performance or Illusion?" bins BLEU-4; an overlap of 1 belongs to the last bin."""
SEED = 0
"""Of the intervals."""
By = Literal["copied_share", "bleu4"]
PREDICTORS: tuple[By, ...] = ("copied_share", "bleu4")


@dataclass(frozen=True)
class Overlaps:
    """Of each answer, by predictor; NaN for an answer of fewer than four tokens. `prompts`: whose answer each is."""

    prompts: Sequence[str]
    values: Mapping[By, Values]

    def of_prompts(self, by: By) -> dict[str, float]:
        """Mean over each prompt's answers, where it is known of one."""
        found: dict[str, list[float]] = {}
        for name, value in zip(self.prompts, self.values[by], strict=True):
            if not np.isnan(value):
                found.setdefault(name, []).append(float(value))
        return {name: float(np.mean(values)) for name, values in found.items()}


@dataclass(frozen=True)
class Bin:
    """One range of one predictor, and which answers are in it."""

    by: By
    low: float
    high: float
    answers: Mask


def bins_of(overlaps: Overlaps) -> list[Bin]:
    """The bins that hold an answer, predictor by predictor, the least overlap first."""
    found = []
    for by in PREDICTORS:
        places = places_of(overlaps.values[by])
        found += [
            Bin(by, EDGES[each], EDGES[each + 1], np.asarray(places == each, dtype=np.bool_))
            for each in range(len(EDGES) - 1)
        ]
    return [each for each in found if each.answers.any()]


def places_of(values: Values) -> np.ndarray:
    """Which bin each value is of; −1 for what is not known."""
    inside = np.clip(np.searchsorted(EDGES, values, side="right") - 1, 0, len(EDGES) - 2)
    return np.where(np.isnan(values), -1, inside)


def with_arms(bins: Sequence[OverlapBin], pairs: Mapping[str, Pairs], overlaps: Overlaps) -> list[OverlapBin]:
    """The bins with each arm's measured speed-up over the pairs of their prompts. `pairs`: by arm."""
    by_prompt = {by: overlaps.of_prompts(by) for by in PREDICTORS}
    return [
        each.model_copy(update={"speedups": {arm: _speedup(found, each, by_prompt) for arm, found in pairs.items()}})
        for each in bins
    ]


def _speedup(pairs: Pairs, each: OverlapBin, by_prompt: Mapping[By, Mapping[str, float]]) -> Figure:
    """From too few repeats without an interval, as everywhere."""
    values = np.array([by_prompt[each.by].get(str(name), np.nan) for name in pairs.rows["prompt_id"]], dtype=np.float64)
    mine = places_of(values) == EDGES.index(each.low)
    found = speedup(SPEEDUP, pairs.among(np.asarray(mine, dtype=np.bool_)), SEED)
    return found.figure if found.repeats >= REPEATS_TO_TELL else found.figure.model_copy(update={"interval": None})
