"""How much of the drafted text is used: acceptance lengths, rates and passes, and acceptance by draft position.

There are two definitions and two weightings of the acceptance length.
Emitted and verified acceptance length differ only in the last step, which the end of the answer may cut, provided that
steps without drafts are counted. Pooled figures determine throughput; means over requests are what a user experiences.
Requests whose steps are not known are left out; a baseline has acceptance length 1 only if its engine reports steps.

An engine may omit its draft counts for a request in which nothing was drafted. If such a request has as many steps as
tokens after the first, each step emitted one token, so nothing was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specbench_client.documents.record import AcceptanceSource
from specbench_client.metrics.metric_types import FigureOrigin, RatioMetric
from specbench_client.metrics.rows import Table, has_text
from specbench_client.metrics.tidy_frame import any_known, numbers
from specbench_client.numpy_columns import Mask, Values

ACCEPTANCE_SOURCE = "acceptance_source"
_NO_STEPS = "the engine does not report the steps of a request"


def is_inferred(rows: Table) -> Mask:
    """Return a mask, shape (rows,), of the rows whose drafting was not reported by the engine itself."""
    return is_by_chunks(rows) | ~rows.known(ACCEPTANCE_SOURCE)


def is_by_chunks(rows: Table) -> Mask:
    """Return a mask, shape (rows,), of the rows whose chunks were counted as steps."""
    return has_text(rows, ACCEPTANCE_SOURCE, AcceptanceSource.CHUNKS.value)


def _steps(rows: Table) -> Values:
    """Steps of each answer, shape (rows,); NaN for answers of one token, which have none."""
    steps = numbers(rows, "steps")
    return np.where(steps >= 1, steps, np.nan)


def _emitted(rows: Table) -> tuple[Values, Values]:
    return numbers(rows, "tokens") - 1, _steps(rows)


def _verified(rows: Table) -> tuple[Values, Values]:
    steps, accepted = _steps(rows), numbers(rows, "accepted_tokens")
    one_each = np.isnan(accepted) & (steps == numbers(rows, "tokens") - 1)
    return steps + np.where(one_each, 0.0, accepted), steps


def _emitted_each(rows: Table) -> tuple[Values, Values]:
    over, under = _emitted(rows)
    return over / under, np.ones_like(under)


def _verified_each(rows: Table) -> tuple[Values, Values]:
    over, under = _verified(rows)
    return over / under, np.ones_like(under)


def _accepted_per_step(rows: Table) -> tuple[Values, Values]:
    emitted, steps = _verified(rows)
    return emitted - steps, steps


def _passes_saved(rows: Table) -> tuple[Values, Values]:
    later, steps = _emitted(rows)
    return later - steps, np.where(np.isnan(steps), np.nan, later)


def _passes(rows: Table) -> tuple[Values, Values]:
    later, steps = _emitted(rows)
    return steps, later


def _wasted(rows: Table) -> tuple[Values, Values]:
    drafted = numbers(rows, "drafted_tokens")
    return drafted - numbers(rows, "accepted_tokens"), drafted + _steps(rows)


def _rate(rows: Table) -> tuple[Values, Values]:
    return numbers(rows, "accepted_tokens"), numbers(rows, "drafted_tokens")


def _length(name: str, definition: str, missing: str, parts: Callable[[Table], tuple[Values, Values]]) -> RatioMetric:
    return RatioMetric(
        f"acceptance_length_{name}",
        "tokens/step",
        f"Acceptance length, {definition}",
        missing,
        FigureOrigin.ACCEPTANCE,
        parts,
        lowest=1.0,
    )


EMITTED_POOLED = _length("emitted_pooled", "emitted, pooled over steps: Σ(tokens − 1) / Σ steps", _NO_STEPS, _emitted)
EMITTED_MEAN = _length("emitted_mean", "emitted, mean over requests of (tokens − 1) / steps", _NO_STEPS, _emitted_each)
VERIFIED_POOLED = _length(
    "verified_pooled",
    "verified, pooled over steps: 1 + Σ accepted / Σ steps",
    f"{_NO_STEPS} or the accepted tokens",
    _verified,
)
VERIFIED_MEAN = _length(
    "verified_mean",
    "verified, mean over requests of 1 + accepted / steps",
    f"{_NO_STEPS} or the accepted tokens",
    _verified_each,
)
ACCEPTANCE_RATE = RatioMetric(
    "acceptance_rate",
    "ratio",
    "Acceptance rate: Σ accepted / Σ drafted tokens",
    "nothing was drafted, or the engine does not count the verified drafts (with adaptive verification, and on SGLang"
    " with adaptive draft lengths)",
    FigureOrigin.ACCEPTANCE,
    _rate,
    highest=1.0,
)
ACCEPTED_PER_STEP = RatioMetric(
    "accepted_per_step",
    "tokens/step",
    "Accepted tokens per step, pooled, without the bonus token: Σ accepted / Σ steps; one less than the verified"
    " acceptance length; some papers call it the mean accepted length",
    f"{_NO_STEPS} or the accepted tokens",
    FigureOrigin.ACCEPTANCE,
    _accepted_per_step,
)
PASSES_SAVED = RatioMetric(
    "target_passes_saved",
    "ratio",
    "Share of the target's decode passes saved: 1 − Σ steps / Σ(tokens − 1), which is 1 − 1 / AL; excludes the pass"
    " that reads the prompt",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _passes_saved,
    highest=1.0,
)
PASSES_PER_TOKEN = RatioMetric(
    "target_passes_per_token",
    "passes/token",
    "Decode passes of the target per token: Σ steps / Σ(tokens − 1), which is 1 / AL",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _passes,
    highest=1.0,
)
WASTED_VERIFICATION = RatioMetric(
    "wasted_verification",
    "ratio",
    "Share of the verified positions that were discarded: Σ(drafted − accepted) / Σ(drafted + steps); includes drafts"
    " that were accepted and then cut off at the end of the answer",
    f"{_NO_STEPS} or the draft tokens",
    FigureOrigin.ACCEPTANCE,
    _wasted,
    highest=1.0,
)

LENGTHS = (EMITTED_POOLED, EMITTED_MEAN, VERIFIED_POOLED, VERIFIED_MEAN)
RATIOS = (*LENGTHS, ACCEPTANCE_RATE, ACCEPTED_PER_STEP, PASSES_SAVED, PASSES_PER_TOKEN, WASTED_VERIFICATION)


def drafts_per_step(rows: Table) -> int | None:
    """Return the maximum number of draft tokens per step (k) by the answers; None if none of them reports it."""
    drafted, steps = numbers(rows, "drafted_tokens"), numbers(rows, "draft_steps")
    a_step = drafted[steps > 0] / steps[steps > 0]
    known = a_step[np.isfinite(a_step)]
    return math.ceil(float(known.max())) if known.size else None


def most_drafts_reported(rows: Table) -> int:
    """Return the limit of draft tokens per step by the answers, some of which report each step; 0 if it is not known.

    Where draft lengths vary, a step may have more than an answer has on average.
    """
    known = drafts_per_step(rows)
    return max(known, deepest_position(rows)) if known else 0


def limit_to_drafts(ratios: Sequence[RatioMetric], drafts: int) -> list[RatioMetric]:
    """Return the ratios with upper bounds that follow from the maximum number of drafts per step.

    An acceptance length is at most one more than the drafts, and the accepted tokens per step are at most the
    drafts; `drafts` is 0 if it is unknown, or if there are none, and then nothing is bounded.
    """
    if not drafts:
        return list(ratios)
    highest = dict.fromkeys(LENGTHS, drafts + 1.0) | {ACCEPTED_PER_STEP: float(drafts)}
    return [replace(ratio, highest=highest[ratio]) if ratio in highest else ratio for ratio in ratios]


# Acceptance by draft position: joint (accepted up to here), conditional (accepted given the one before), and exact.
#
# Available only from engines that report every step. In the joint rates, a step that drafted fewer than k tokens counts
# as not accepted beyond its end. The conditional rates leave it out there, if the engine reports the drafts of each
# step, and are missing if it does not count drafts, because their length may vary. Accepted drafts that were cut off at
# the end of the answer count only in the conditional rates, where they would otherwise count as rejected.


def _share_of_steps(name: str, definition: str, parts: Callable[[Table], tuple[Values, Values]]) -> RatioMetric:
    missing = "the engine does not report the accepted drafts of each step"
    return RatioMetric(name, "ratio", definition, missing, FigureOrigin.ACCEPTANCE, parts, highest=1.0)


def _steps_reaching(rows: Table, position: int, column: str = "accepted_of_steps") -> Values:
    """Draft steps per request, shape (rows,), that accepted at least `position` drafts; all of them for 0."""
    steps = rows.lists(column)
    drafts, counts = steps.entries.T
    return steps.sums(counts * (drafts >= position))


def position_acceptance(position: int) -> RatioMetric:
    """Return P(at least `position` drafts accepted) over draft steps; positions start at 1."""
    return _share_of_steps(
        f"position_acceptance_rate_{position}",
        f"Share of draft steps that accepted {position} or more drafts",
        lambda rows: (_steps_reaching(rows, position), _steps_reaching(rows, 0)),
    )


def conditional_acceptance(position: int) -> RatioMetric:
    """Return P(draft `position` accepted | it was drafted, and all before it were accepted) over draft steps."""
    return _share_of_steps(
        f"conditional_position_acceptance_rate_{position}",
        f"Share of draft steps that accepted draft {position}, of those that drafted it and accepted all before it",
        lambda rows: (
            _steps_reaching(rows, position, "verified_of_steps"),
            _steps_reaching(rows, position, "decided_of_steps"),
        ),
    )


def deepest_position(rows: Table) -> int:
    """Return the most drafts that any step accepted; 0 if no request reports its steps."""
    return max(int(piece.lists("accepted_of_steps").entries[:, 0].max(initial=0)) for piece in rows.pieces())


def acceptance_by_position(rows: Table, drafts: int) -> tuple[RatioMetric, ...]:
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

    def parts(rows: Table) -> tuple[Values, Values]:
        steps = rows.lists("accepted_of_steps")
        accepted, counts = steps.entries.T
        return steps.sums(counts * (accepted == count)), steps.sums(counts)

    return _share_of_steps(
        f"accepted_exactly_{count}",
        f"Share of draft steps that accepted exactly {count} draft{'' if count == 1 else 's'}",
        parts,
    )


def acceptance_histogram(rows: Table, drafts: int) -> tuple[RatioMetric, ...]:
    """Return the shares for 0 to `drafts` accepted, or none if no request reports its steps."""
    if not any_known(rows, "accepted_of_steps"):
        return ()
    return tuple(accepted_exactly(count) for count in range(drafts + 1))
