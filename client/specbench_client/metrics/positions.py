"""Acceptance by position of the draft: joint (accepted up to here) and conditional (accepted, given the one before).

Only from engines that tell every step. A step that drafted fewer than k tokens counts as not accepted beyond its
end: the records do not hold how many each step drafted, so a drafter with a varying k gets conditional values too low.
"""

from __future__ import annotations

from specbench_client.metrics.frame import Values, any_told, tally
from specbench_client.metrics.metric import Origin, Ratio
from specbench_client.metrics.rows import Columns, pieces

_MISSING = "the engine does not tell the accepted drafts of each step"


def _reached(rows: Columns, position: int) -> Values:
    """Draft steps of each request that accepted at least so many drafts; all of them for 0."""
    steps = tally(rows, "accepted_of_steps")
    accepted, often = steps.fields
    return steps.sums(often * (accepted >= position))


def joint(position: int) -> Ratio:
    """Return P(at least `position` drafts accepted) over draft steps; positions count from 1."""
    return Ratio(
        f"accepted_joint_{position}",
        "ratio",
        f"Share of draft steps that accepted at least {position} drafts",
        _MISSING,
        Origin.ACCEPTANCE,
        lambda rows: (_reached(rows, position), _reached(rows, 0)),
        highest=1.0,
    )


def conditional(position: int) -> Ratio:
    """Return P(at least `position` accepted | at least `position − 1` accepted) over draft steps."""
    return Ratio(
        f"accepted_conditional_{position}",
        "ratio",
        f"Share of the draft steps with at least {position - 1} accepted drafts that accepted number {position} too",
        _MISSING,
        Origin.ACCEPTANCE,
        lambda rows: (_reached(rows, position), _reached(rows, position - 1)),
        highest=1.0,
    )


def deepest(rows: Columns) -> int:
    """Return the most drafts that any step accepted; 0 where no request tells its steps."""
    return max(int(tally(piece, "accepted_of_steps").fields[0].max(initial=0)) for piece in pieces(rows))


def by_position(rows: Columns, drafts: int) -> tuple[Ratio, ...]:
    """Return the ratios for positions 1 to `drafts`, or none where no request tells its steps."""
    if not any_told(rows, "accepted_of_steps"):
        return ()
    return tuple(make(position) for make in (joint, conditional) for position in range(1, drafts + 1))
