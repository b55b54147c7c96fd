"""Answers, and what a drafter has accepted at each of their positions: both as flat arrays, answers end to end.

Position p of an answer is where p of its tokens are out and token p is next. Token 0 comes from the prefill, so that no
step begins at position 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.analysis.statistics.bootstrap import Layout, layout_of

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """Answers with their lengths. `ids`: their prompts'; answers of one prompt are drawn together in intervals."""

    ids: tuple[str, ...]
    categories: tuple[str | None, ...]
    prompt_tokens: Tokens
    output_tokens: Tokens
    repeats: Tokens | None = None
    """Which repeat each is of; without it all are of one."""

    @property
    def count(self) -> int:
        return len(self.ids)

    @cached_property
    def starts(self) -> Tokens:
        """Where each answer's position 0 is in flat arrays."""
        return np.concatenate([[0], np.cumsum(self.output_tokens)[:-1]]).astype(np.int64)

    @property
    def positions(self) -> int:
        """Length of flat arrays."""
        return int(self.output_tokens.sum())

    @cached_property
    def layout(self) -> Layout:
        """What an interval's resamples are drawn from."""
        repeats = np.zeros(self.count, dtype=np.int64) if self.repeats is None else self.repeats
        rows = {"repeat": repeats, "prompt_id": list(self.ids), "category": pd.Series(self.categories, dtype=object)}
        return layout_of(pd.DataFrame(rows))

    def of(self, chosen: NDArray[np.bool_]) -> tuple[Answers, Tokens]:
        """Some of the answers, and where their positions are in the flat arrays of all."""
        keep = np.flatnonzero(chosen)
        some = Answers(
            tuple(self.ids[each] for each in keep),
            tuple(self.categories[each] for each in keep),
            self.prompt_tokens[keep],
            self.output_tokens[keep],
            None if self.repeats is None else self.repeats[keep],
        )
        return some, np.flatnonzero(np.repeat(chosen, self.output_tokens))


@dataclass(frozen=True)
class Reach:
    """Of one drafter, at each position: how many of its drafts a step there has accepted, had it drafted enough."""

    accepted: Tokens
    proposed: Tokens | None = None
    """Draft tokens that it has at all; without it, always as many as it is asked for."""

    def at(self, places: Tokens) -> Reach:
        """The same at some of the positions."""
        return Reach(self.accepted[places], None if self.proposed is None else self.proposed[places])

    def drafts(self, most: int) -> Tokens:
        """Draft tokens of a step that asks for `most`."""
        return np.full_like(self.accepted, most) if self.proposed is None else np.minimum(self.proposed, most)
