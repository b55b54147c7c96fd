"""Compare the drafting reported in answers with the engine's own counters, and decide which of the two to use.

Both cover the same point: counters are read before its first request and after its last, so the warm-up is excluded.
The accepted drafts of an answer are the delivered ones; engines count before they cut an answer at its stop, so the
counter may exceed the answers by up to k accepted tokens each, and is never below them. Failed requests were drafted
for too and left no count: for each of them the counter may include as many tokens as the longest answer. Any other
difference is a contradiction, and one of the two sides is wrong.

What the engine itself reports for each request is used even then, next to the finding. What was only inferred is
dropped: that each chunk is a step (wrong where the engine streams at an interval, or a proxy merges chunks), or that an
arm without a drafter emits one token per step (wrong where the endpoint drafts without reporting it). An engine that
counts its tokens and has no counter of drafts has no drafter.

Chunks look the same whether a drafter works or the engine streams at an interval, so acceptance that was inferred from
them needs more than no contradiction: the counters must be known, or other answers of the point must report drafts. A
drafter that was only requested confirms nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specbench_client.documents.summary import TokenCounters
from specbench_client.metrics.acceptance import ACCEPTANCE_SOURCE, is_by_chunks, is_inferred
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Mask, TextCodes, Values
from specbench_client.trust.evidence import PointEvidence

TOLERATED_SHARE = 0.01
TOLERATED_PER_ANSWER = 1
ACCEPTED, STEPS = "accepted_tokens", "steps"
DRAFTING_COLUMNS = [
    STEPS,
    "draft_steps",
    "drafted_tokens",
    ACCEPTED,
    "tokens",
    ACCEPTANCE_SOURCE,
    "ok",
    "error_class",
]
"""Columns with information about drafting; `doubtful_rows` needs no others."""
_NAMES = {"draft_steps": "draft steps", "drafted_tokens": "drafted tokens", ACCEPTED: "accepted tokens", STEPS: "steps"}


@dataclass(frozen=True)
class Contradiction:
    """A count on which the answers and the counters disagree by `beyond` more than can be explained."""

    column: str
    reported: float
    counted: float
    beyond: float

    @property
    def name(self) -> str:
        return _NAMES[self.column]


def contradictions(evidence: PointEvidence) -> list[Contradiction]:
    """Return every count on which answers and counters disagree; none if one side does not report it."""
    counters = evidence.monotonic_counters
    if counters is None:
        return []
    found = [_compare(evidence, column, _counted(evidence, counters, column)) for column in _NAMES]
    return [each for each in found if each is not None]


def confirms_chunks(evidence: PointEvidence) -> bool:
    """Return whether something shows how much was drafted in this point: the counters, or other answers."""
    counters = evidence.monotonic_counters
    is_counted = counters is not None and (
        _counted(evidence, counters, ACCEPTED) is not None or counters.draft_steps is not None
    )
    reported = evidence.answered.among(~is_inferred(evidence.answered))
    return is_counted or any(
        bool((numbers(reported, name) > 0).any()) for name in ("draft_steps", "drafted_tokens", ACCEPTED)
    )


def doubtful_rows(evidence: PointEvidence) -> Mask:
    """Return a mask, shape (rows,), of the rows with inferred acceptance that is contradicted or not confirmed."""
    if any(each.column in (ACCEPTED, STEPS) for each in contradictions(evidence)):
        return is_inferred(evidence.rows)
    by_chunks = is_by_chunks(evidence.rows)
    return by_chunks & (not confirms_chunks(evidence)) if by_chunks.any() else by_chunks


def acceptance_without(rows: Table, doubtful: Mask) -> Table:
    """Return the columns of steps and acceptance, unknown for the rows selected by a mask of shape (rows,)."""
    sources = rows.codes(ACCEPTANCE_SOURCE)
    return Table(
        {
            **{name: np.where(doubtful, np.nan, numbers(rows, name)) for name in (STEPS, ACCEPTED)},
            ACCEPTANCE_SOURCE: TextCodes(np.where(doubtful, np.int32(-1), sources.codes), sources.texts),
        }
    )


def _counted(evidence: PointEvidence, counters: TokenCounters, column: str) -> int | None:
    """Return the engine's count; of all steps only those that drafted are counted."""
    reported: int | None = counters.draft_steps if column == STEPS else getattr(counters, column)
    return 0 if reported is None and column == ACCEPTED and evidence.counts_no_drafts else reported


def _compare(evidence: PointEvidence, column: str, counted: int | None) -> Contradiction | None:
    rows = evidence.answered
    per_answer = _accepted(rows) if column == ACCEPTED else numbers(rows, column)
    if column == STEPS:  # An answer that reports its drafts may be cut, which hides steps.
        per_answer = np.where(is_by_chunks(rows), per_answer, np.nan)
    known = ~np.isnan(per_answer)
    if counted is None or not known.any():
        return None
    reported, answers = float(per_answer[known].sum()), int(known.sum())
    tolerated = TOLERATED_SHARE * max(reported, counted)
    per_lacking, per_excess = _allowance_per_answer(evidence, column)
    lacking = reported - counted - (tolerated + answers * per_lacking)
    excess = counted - reported - (tolerated + answers * per_excess + _unreported(evidence, column, ~known))
    beyond = max(lacking, excess)
    return Contradiction(column, reported, counted, beyond) if beyond > 0 else None


def _accepted(rows: Table) -> Values:
    """Accepted draft tokens of each answer, shape (answers,); 0 where it has one token per step."""
    accepted = numbers(rows, ACCEPTED)
    one_each = np.isnan(accepted) & (numbers(rows, "steps") == numbers(rows, "tokens") - 1)
    return np.where(one_each, 0.0, accepted)


def _allowance_per_answer(evidence: PointEvidence, column: str) -> tuple[float, float]:
    """Return by how much one answer may exceed the counter, and by how much the counter may exceed one answer."""
    if column == STEPS:  # Engines count only those that drafted.
        return math.inf, TOLERATED_PER_ANSWER
    drafts = math.inf if evidence.drafts is None else float(max(evidence.drafts, TOLERATED_PER_ANSWER))
    if column == ACCEPTED:
        return TOLERATED_PER_ANSWER, drafts
    return (drafts, drafts) if column == "drafted_tokens" else (TOLERATED_PER_ANSWER, TOLERATED_PER_ANSWER)


def _unreported(evidence: PointEvidence, column: str, unknown: Mask) -> float:
    """The most that the engine may have counted for answers that do not report it, and for failed requests."""
    longest = evidence.workload.output.max_tokens
    tokens = np.nan_to_num(numbers(evidence.answered, "tokens"), nan=longest)
    most = float(tokens[unknown].sum()) + longest * int((~evidence.tried.array("ok")).sum())
    if column != "drafted_tokens" or not most:
        return most
    return math.inf if evidence.drafts is None else most * evidence.drafts
