"""Acceptance by draft position: joint (accepted up to here), conditional (accepted given the one before), and exact.

Available only from engines that report every step. A step that drafted fewer than k tokens counts as not accepted
beyond its end: records do not contain the number drafted per step, so a drafter with variable k gets conditional values
that are too low.
"""

from __future__ import annotations

from specbench_client.metrics.metric import FigureOrigin, RatioMetric
from specbench_client.metrics.rows import Columns, iter_pieces
from specbench_client.metrics.tidy_frame import Values, any_known, tally

_MISSING = "the engine does not report the accepted drafts of each step"


def _steps_reaching(rows: Columns, position: int) -> Values:
    """Draft steps per request, shape (rows,), that accepted at least `position` drafts; all of them for 0."""
    steps = tally(rows, "accepted_of_steps")
    accepted, counts = steps.fields
    return steps.sums(counts * (accepted >= position))


def position_acceptance(position: int) -> RatioMetric:
    """Return P(at least `position` drafts accepted) over draft steps; positions start at 1."""
    return RatioMetric(
        f"position_acceptance_rate_{position}",
        "ratio",
        f"Share of draft steps that accepted {position} or more drafts",
        _MISSING,
        FigureOrigin.ACCEPTANCE,
        lambda rows: (_steps_reaching(rows, position), _steps_reaching(rows, 0)),
        highest=1.0,
    )


def conditional_acceptance(position: int) -> RatioMetric:
    """Return P(at least `position` accepted | at least `position − 1` accepted) over draft steps."""
    return RatioMetric(
        f"conditional_position_acceptance_rate_{position}",
        "ratio",
        f"Share of draft steps with {position - 1} or more accepted drafts that also accepted draft {position}",
        _MISSING,
        FigureOrigin.ACCEPTANCE,
        lambda rows: (_steps_reaching(rows, position), _steps_reaching(rows, position - 1)),
        highest=1.0,
    )


def deepest_position(rows: Columns) -> int:
    """Return the most drafts that any step accepted; 0 if no request reports its steps."""
    return max(int(tally(piece, "accepted_of_steps").fields[0].max(initial=0)) for piece in iter_pieces(rows))


def acceptance_by_position(rows: Columns, drafts: int) -> tuple[RatioMetric, ...]:
    """Return the ratios for positions 1 to `drafts`, or none if no request reports its steps."""
    if not any_known(rows, "accepted_of_steps"):
        return ()
    return tuple(
        make(position) for make in (position_acceptance, conditional_acceptance) for position in range(1, drafts + 1)
    )


# The histogram of accepted drafts separates drafters with equal acceptance length: one may accept two drafts at every
# step, another four at every second step. It is over draft steps, as in vLLM's `acceptance_histogram`.


def accepted_exactly(count: int) -> RatioMetric:
    """Return the share of the draft steps that accepted exactly `count` drafts."""

    def parts(rows: Columns) -> tuple[Values, Values]:
        steps = tally(rows, "accepted_of_steps")
        accepted, counts = steps.fields
        return steps.sums(counts * (accepted == count)), steps.sums(counts)

    return RatioMetric(
        f"accepted_exactly_{count}",
        "ratio",
        f"Share of draft steps that accepted exactly {count} draft{'' if count == 1 else 's'}",
        _MISSING,
        FigureOrigin.ACCEPTANCE,
        parts,
        highest=1.0,
    )


def acceptance_histogram(rows: Columns, drafts: int) -> tuple[RatioMetric, ...]:
    """Return the shares for 0 to `drafts` accepted, or none if no request reports its steps."""
    if not any_known(rows, "accepted_of_steps"):
        return ()
    return tuple(accepted_exactly(count) for count in range(drafts + 1))
