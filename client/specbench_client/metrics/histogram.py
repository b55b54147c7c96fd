"""How many drafts steps accept: the share of the draft steps that accepted exactly 0, 1, … of them.

Two drafters of one acceptance length differ here: one accepts two drafts at every step, the other four at every second.
Over draft steps, as engines count them (vLLM's `acceptance_histogram`): a step without drafts had none to accept.
"""

from __future__ import annotations

import pandas as pd

from specbench_client.metrics.frame import Values, tally
from specbench_client.metrics.metric import Origin, Ratio


def exactly(count: int) -> Ratio:
    """Return the share of the draft steps that accepted exactly so many drafts."""

    def parts(rows: pd.DataFrame) -> tuple[Values, Values]:
        steps = tally(rows, "accepted_of_steps")
        accepted, often = steps.fields
        return steps.sums(often * (accepted == count)), steps.sums(often)

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
    if not rows["accepted_of_steps"].notna().any():
        return ()
    return tuple(exactly(count) for count in range(drafts + 1))
