"""Local-swap refinement: members are exchanged for outsiders as long as any single exchange makes the set less alike.

With s the sum of the members' vectors and load[i] = v_i · s, exchanging member a for outsider b changes the sum over
pairs by load[b] - load[a] + |v_a|² - v_a · v_b. As no cosine exceeds 1, only outsiders with load[b] < load[a] can help,
so products with v_a are needed for those alone: usually a few per cent of the candidates.

What is proposed from float32 is decided in float64 from the sums themselves, so an exchange never makes the set more
alike, and the refinement ends: the sum falls each time, and there are finitely many sets. The result is optimal under
single exchanges. For unit vectors its sum over pairs is then at most min(k, n - k) above the optimum's: the inequality
of every pair (a, b) of the symmetric difference, summed, gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity.greedy import first_least, products
from specbench_client.dataset.diversity.similarity import vector_sum
from specbench_client.dataset.diversity.vectors import Vectors

MOST_SWEEPS = 50
LEAST_GAIN = 1e-9
"""An exchange that gains less of the sum over pairs is none: float64 sums are exact to about 1e-12."""
_GATHER_BELOW = 0.2
"""Share of rows up to which copying them together is cheaper than multiplying all."""


@dataclass(frozen=True, slots=True)
class Refined:
    """The members, how many exchanges led to them, and whether no single exchange would help any more."""

    members: tuple[int, ...]
    swaps: int
    settled: bool


class _Set:
    """The members, their sum in float64, and every row's load."""

    def __init__(self, vectors: Vectors, members: Sequence[int]) -> None:
        self.vectors = vectors
        self.members = sorted(members)
        self.inside = np.zeros(len(vectors), dtype=bool)
        self.inside[self.members] = True
        self.total = vector_sum(vectors[self.members])
        self.load = products(vectors, self.total)

    def gain(self, leaving: int, coming: int) -> float:
        """By how much the sum over pairs falls, in float64."""
        out, into = self.vectors[leaving].astype(np.float64), self.vectors[coming].astype(np.float64)
        without = self.total - out
        return float(without @ out - without @ into)

    def exchange(self, leaving: int, coming: int) -> None:
        difference = self.vectors[coming].astype(np.float64) - self.vectors[leaving]
        self.total += difference
        self.load += products(self.vectors, difference)
        self.inside[[leaving, coming]] = False, True
        self.members.remove(leaving)
        self.members.append(coming)

    def best_for(self, leaving: int) -> int | None:
        """The outsider whose coming lowers the sum most; None where none can."""
        able = np.flatnonzero(~self.inside & (self.load < self.load[leaving]))
        if not able.size:
            return None
        return int(able[first_least(self.load[able] - self._products(able, leaving))])

    def _products(self, rows: npt.NDArray[np.intp], leaving: int) -> npt.NDArray[np.float64]:
        if rows.size < _GATHER_BELOW * len(self.vectors):
            return products(self.vectors[rows], self.vectors[leaving])
        return products(self.vectors, self.vectors[leaving])[rows]


def refine(
    vectors: Vectors, chosen: Sequence[int], told: Callable[[int, int], None] | None = None, sweeps: int = MOST_SWEEPS
) -> Refined:
    """Exchange until no single exchange helps, or so many sweeps over the members are done.

    `told` is called after each sweep with its number and the exchanges so far. Deterministic: members are tried in the
    order of their rows, and of equally good outsiders the lower row comes.
    """
    state, swaps = _Set(vectors, chosen), 0
    for sweep in range(1, sweeps + 1):
        done = _sweep(state)
        swaps += done
        if told:
            told(sweep, swaps)
        if not done:
            return Refined(tuple(sorted(state.members)), swaps, settled=True)
    return Refined(tuple(sorted(state.members)), swaps, settled=False)


def _sweep(state: _Set) -> int:
    """Try every member once; the number of exchanges."""
    state.load = products(state.vectors, state.total)  # what exchanges rounded away
    done = 0
    for leaving in sorted(state.members):
        coming = state.best_for(leaving)
        if coming is not None and state.gain(leaving, coming) > LEAST_GAIN:
            state.exchange(leaving, coming)
            done += 1
    return done
