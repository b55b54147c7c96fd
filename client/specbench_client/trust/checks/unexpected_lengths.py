"""Answers of another length than a mix was made for are those of another mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

ANSWERS_MIN = 5


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    return list(_outside(evidence)) if evidence.workload.dataset.members else []


def _outside(evidence: CellEvidence) -> Iterator[Seen]:
    rows = steady(evidence.rows)
    for member in evidence.workload.dataset.members or []:
        if member.output_tokens is None:
            continue
        tokens = numbers(rows.among((rows["category"] == member.name).to_numpy(np.bool_)), "tokens")
        known = tokens[~np.isnan(tokens)]
        if known.size < ANSWERS_MIN:
            continue
        middle = float(np.median(known))
        if not member.output_tokens.holds(middle):
            low, high = member.output_tokens.min or 1, member.output_tokens.max or "any number"
            message = f"the median answer of {member.name} has {middle:.0f} tokens, and {low} to {high} were expected"
            yield Seen(Severity.NOTE, message, value=middle)


CHECK: Check[CellEvidence] = Check(
    name="UnexpectedLengths",
    severities=(Severity.NOTE,),
    says="The median answer of a member of a mix is shorter or longer than its outputTokens say.",
    threshold=f"the median of at least {ANSWERS_MIN} steady answers is outside the range",
    argument="A mix weighs kinds of request; answers of other lengths weigh them otherwise in every throughput.",
    remedy="Raise output.maxTokens where answers are cut; else correct the range, or the weights.",
    look=_look,
)
