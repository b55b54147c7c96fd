"""Answers of a different length than expected for a mix, which changes the weights of its members."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

ANSWERS_MIN = 5


def _evaluate(evidence: CellEvidence) -> CheckResults:
    return list(_outside(evidence)) if evidence.workload.dataset.members else []


def _outside(evidence: CellEvidence) -> Iterator[CheckResult]:
    rows = steady_rows(evidence.rows)
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
            message = f"the median answer of {member.name} has {middle:.0f} tokens, but outputTokens is {low} to {high}"
            yield CheckResult(Severity.INFO, message, value=middle)


CHECK: Check[CellEvidence] = Check(
    name="UnexpectedOutputLengths",
    severities=(Severity.INFO,),
    description="The median answer of a member of a mix is shorter or longer than its outputTokens.",
    threshold=f"the median of at least {ANSWERS_MIN} steady answers is outside the range",
    rationale="A mix weights kinds of request; answers of other lengths change their weight in every throughput.",
    remedy="Raise output.maxTokens if answers are cut, else correct the range or the weights.",
    evaluate=_evaluate,
)
