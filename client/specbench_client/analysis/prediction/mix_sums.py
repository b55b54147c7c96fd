"""Sums over a mix of categories: what its ratios are, and how much each prompt of each repeat moves them.

A mix's sum is Σ w · (sum over a category's requests ÷ their number), w: the category's share of the mix's requests. A
prompt counts w ÷ (its category's share of what was asked) times as much as it was asked. Where a category of few
prompts is most of the mix these decide, and the interval has hardly more degrees of freedom than they.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from specbench_client.analysis.statistics.bootstrap import Layout, layout_of
from specbench_client.analysis.statistics.levels import Levels, resampled
from specbench_client.metrics.frame import Values

PARTS = ("tokens", "time", "tokens_baseline", "time_baseline", "requests", "later", "steps", "told")
"""What is summed; the last three over the requests that tell their steps."""
_TOKENS, _TIME, BASELINE_TOKENS, BASELINE_TIME, _REQUESTS, _LATER, _STEPS, _TOLD = range(len(PARTS))
Powers = Mapping[int, int]
"""Of the mix's sums in a ratio, by the part's place."""
SPEED: Powers = {_TOKENS: 1, _TIME: -1, BASELINE_TOKENS: -1, BASELINE_TIME: 1}
ACCEPTANCE: Powers = {_LATER: 1, _STEPS: -1}


@dataclass(frozen=True)
class MixSums:
    """The sums of each category by repeat and prompt, and the category's weight."""

    layout: Layout
    matrices: Values
    """Categories × parts × repeats × prompts."""
    weights: Values

    @classmethod
    def of(cls, rows: pd.DataFrame, parts: Values, given: Mapping[str, float]) -> MixSums:
        """`rows`: repeat, prompt_id, category. `parts`: `PARTS` × rows. `given`: weights of all categories."""
        layout, category = layout_of(rows), rows["category"].to_numpy(object)
        matrices = np.array(
            [[layout.matrix(np.where(category == name, part, 0.0)) for part in parts] for name in given]
        )
        weights = np.array(list(given.values()))
        requests = matrices[:, _REQUESTS].sum(axis=1)
        counts_more = (weights / requests.sum(axis=1))[requests.argmax(axis=0)]
        return cls(replace(layout, weight_of=counts_more), matrices, weights)

    @property
    def whole(self) -> Values:
        """Categories × parts."""
        return np.asarray(self.matrices.sum(axis=(2, 3)), dtype=np.float64)

    @property
    def means(self) -> Values:
        """Of each category's request."""
        return _means(self.whole)

    def ratios(self, powers: Powers) -> Values:
        """Return a ratio within each category; not finite where it has none."""
        return np.asarray(np.exp(_log(self.means, powers)), dtype=np.float64)

    def levels(self, powers: Powers, seed: int) -> Levels | None:
        """Return a log ratio of the mix's sums; None where it has none."""
        value = float(_log(self._mixed(self.whole), powers))
        if not np.isfinite(value):
            return None
        categories, parts, _, prompts = self.matrices.shape
        drawn = resampled(list(self.matrices.reshape(categories * parts, -1, prompts)), self.layout, seed)
        by_repeat = np.moveaxis(self.matrices.sum(axis=3), 2, 0)
        samples, repeats = (
            _log(self._mixed(each), powers) for each in (drawn.reshape(-1, categories, parts), by_repeat)
        )
        return Levels(value, samples, self._influence(powers), repeats)

    def _mixed(self, sums: Values) -> Values:
        """… × categories × parts → … × parts."""
        return np.asarray((_means(sums) * self.weights[:, np.newaxis]).sum(axis=-2), dtype=np.float64)

    def _influence(self, powers: Powers) -> Values:
        """Repeats × prompts: how much each moves the log ratio.

        It moves its category's mean by (sum − mean × requests) ÷ requests of the category, the mix's sum by w times
        that, and the log by as much of the mix's sum.
        """
        mixed, means, moved = self._mixed(self.whole), self.means, np.zeros(self.matrices.shape[2:])
        for part, power in powers.items():
            counted = _counted(part)
            for mine, mean, weight in zip(self.matrices, means, self.weights, strict=True):
                apart = mine[part] - mean[part] * mine[counted]
                moved += power * weight / mixed[part] * apart / mine[counted].sum()
        return moved


def _counted(part: int) -> int:
    """The part that holds the number of requests over which a part is summed."""
    return _REQUESTS if part < _LATER else _TOLD


def _means(sums: Values) -> Values:
    """… × parts: of a request."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / sums[..., [_counted(part) for part in range(len(PARTS))]], dtype=np.float64)


def _log(sums: Values, powers: Powers) -> Values:
    """… × parts → …: Σ power × log(sum)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(sums[..., list(powers)]) * np.array(list(powers.values()))
    return np.asarray(logs.sum(axis=-1), dtype=np.float64)
