"""How many drafts steps accept: the share of the draft steps that accepted exactly 0, 1, … of them.

Two drafters of one acceptance length differ here: one accepts two drafts at every step, the other four at every second.
Over draft steps, as engines count them (vLLM's `acceptance_histogram`): a step without drafts had none to accept.
"""

from __future__ import annotations

from specbench_client.metrics.frame import Values, any_told, tally
from specbench_client.metrics.metric import Origin, Ratio
from specbench_client.metrics.rows import Columns


def exactly(count: int) -> Ratio:
    """Return the share of the draft steps that accepted exactly so many drafts."""

    def parts(rows: Columns) -> tuple[Values, Values]:
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


def histogram(rows: Columns, drafts: int) -> tuple[Ratio, ...]:
    """Return the shares for 0 to `drafts` accepted, or none where no request tells its steps."""
    if not any_told(rows, "accepted_of_steps"):
        return ()
    return tuple(exactly(count) for count in range(drafts + 1))
