"""What the answers tell of their drafting against the engine's own counters, and which of the two is believed.

Both count the same point: counters are read before its first request and after its last, with the warm-up outside. An
answer's accepted drafts are those that were delivered; engines count before they cut an answer at its stop, so the
counter may hold up to k accepted tokens more for each answer, and never fewer. Requests that failed were drafted for
too, and left no count: for each the counter may hold as much as the longest answer. What neither explains is a
contradiction, and one of the two sides is wrong.

An engine's own word of a request is printed even then, beside the finding. What was only inferred is not: that a chunk
is a step (it is not where the engine streams at an interval, or a proxy merges), or that an arm without a drafter makes
one token a step (it does not where it drafts behind our back). Counters know better, and the inference goes. An engine
that counts its tokens and has no counter of drafts has no drafter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.outcome.summary import Counters
from specbench_client.metrics.frame import Mask, Values, flags, numbers
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01
PER_ANSWER = 1
ACCEPTED = "accepted_tokens"
DRAFTING = ["steps", "draft_steps", "drafted_tokens", ACCEPTED, "tokens", "acceptance_source", "ok", "error_class"]
"""Columns that are asked what they tell of drafting: `believed` needs no others."""
_NAMES = {"draft_steps": "draft steps", "drafted_tokens": "drafted tokens", ACCEPTED: "accepted tokens"}


@dataclass(frozen=True)
class Contradiction:
    """One count that answers and counters cannot both be right about. `beyond`: by how much more than is explained."""

    column: str
    told: float
    counted: float
    beyond: float

    @property
    def name(self) -> str:
        return _NAMES[self.column]


def contradictions(evidence: PointEvidence) -> list[Contradiction]:
    """Return every count in which they contradict each other; none where one side does not tell."""
    if evidence.counters is None or evidence.counters.restarted:
        return []
    found = [_compare(evidence, column, _counted(evidence, evidence.counters, column)) for column in _NAMES]
    return [each for each in found if each is not None]


def inferred(rows: pd.DataFrame) -> Mask:
    """Return of which rows the engine itself said nothing of its drafting."""
    sources = rows["acceptance_source"]
    unsaid: Mask = ((sources == AcceptanceSource.CHUNKS.value) | sources.isna()).to_numpy(np.bool_)
    return unsaid


def believed(evidence: PointEvidence) -> pd.DataFrame:
    """Return the point's rows, without the steps and acceptances that were inferred and that the counters refute."""
    rows = evidence.rows
    if not any(each.column == ACCEPTED for each in contradictions(evidence)):
        return rows
    unsaid = inferred(rows)
    kept = {name: np.where(unsaid, np.nan, numbers(rows, name)) for name in ("steps", ACCEPTED)}
    return rows.assign(**kept, acceptance_source=rows["acceptance_source"].where(~unsaid, None))


def _counted(evidence: PointEvidence, counters: Counters, column: str) -> int | None:
    told: int | None = getattr(counters, column)
    has_none = counters.output_tokens is not None and counters.draft_steps is None and inferred(evidence.answered).all()
    return 0 if told is None and column == ACCEPTED and has_none else told


def _compare(evidence: PointEvidence, column: str, counted: int | None) -> Contradiction | None:
    rows = evidence.answered
    mine = _accepted(rows) if column == ACCEPTED else numbers(rows, column)
    known = ~np.isnan(mine)
    if counted is None or not known.any():
        return None
    told, answers = float(mine[known].sum()), int(known.sum())
    slack = SHARE * max(told, counted) + answers * _per_answer(evidence, column)[0]
    lacking = told - counted - slack
    slack = SHARE * max(told, counted) + answers * _per_answer(evidence, column)[1] + _untold(evidence, column, ~known)
    excess = counted - told - slack
    beyond = max(lacking, excess)
    return Contradiction(column, told, counted, beyond) if beyond > 0 else None


def _accepted(rows: pd.DataFrame) -> Values:
    """Accepted drafts of each answer; 0 by arithmetic where it made one token a step."""
    accepted = numbers(rows, ACCEPTED)
    one_each = np.isnan(accepted) & (numbers(rows, "steps") == numbers(rows, "tokens") - 1)
    return np.where(one_each, 0.0, accepted)


def _per_answer(evidence: PointEvidence, column: str) -> tuple[float, float]:
    """What an answer may tell more than the counter, and the counter more than the answer."""
    drafts = math.inf if evidence.drafts is None else float(max(evidence.drafts, PER_ANSWER))
    if column == ACCEPTED:
        return PER_ANSWER, drafts
    return (drafts, drafts) if column == "drafted_tokens" else (PER_ANSWER, PER_ANSWER)


def _untold(evidence: PointEvidence, column: str, unknown: Mask) -> float:
    """The most that the engine may have counted for answers that do not tell, and for requests that failed."""
    longest = evidence.plan.workload(evidence.point.workload).output.max_tokens
    tokens = np.nan_to_num(numbers(evidence.answered, "tokens"), nan=longest)
    most = float(tokens[unknown].sum()) + longest * int((~flags(evidence.tried, "ok")).sum())
    if column != "drafted_tokens" or not most:
        return most
    return math.inf if evidence.drafts is None else most * evidence.drafts
