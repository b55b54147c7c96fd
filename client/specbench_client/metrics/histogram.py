"""How many drafts steps accept: the share of the draft steps that accepted exactly 0, 1, … of them.

Two drafters of one acceptance length differ here: one accepts two drafts at every step, the other four at every second.
Over draft steps, as engines count them (vLLM's `acceptance_histogram`): a step without drafts had none to accept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values, tallies
from specbench_client.metrics.lists import Tally
from specbench_client.metrics.metric import Origin, Ratio


def exactly(count: int) -> Ratio:
    """Return the share of the draft steps that accepted exactly so many drafts."""

    def parts(rows: pd.DataFrame) -> tuple[Values, Values]:
        steps = tallies(rows, "accepted_of_steps")
        return _of(steps, lambda tally: tally[1, tally[0] == count].sum()), _of(steps, lambda tally: tally[1].sum())

    return Ratio(
        f"accepted_exactly_{count}",
        "ratio",
        f"Share of draft steps that accepted exactly {count} drafts",
        "the engine does not tell the accepted drafts of each step",
        Origin.ACCEPTANCE,
        parts,
        highest=1.0,
    )


def histogram(rows: pd.DataFrame, drafts: int) -> tuple[Ratio, ...]:
    """Return the shares for 0 to `drafts` accepted, or none where no request tells its steps."""
    if all(each is None for each in tallies(rows, "accepted_of_steps")):
        return ()
    return tuple(exactly(count) for count in range(drafts + 1))


def _of(steps: Sequence[Tally | None], count: Callable[[Tally], float]) -> Values:
    return np.array([np.nan if each is None else count(each) for each in steps], dtype=np.float64)
