"""Too few prompts to support a claim about a workload, or about a category of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults, name_some
from specbench_client.trust.evidence import RunEvidence

WARNING_BELOW = 5
INFO_BELOW = 20
INTERVAL_FROM = WARNING_BELOW
"""Minimum number of prompts of a category for its figures to have intervals."""
NAMED = 8
"""Maximum number of categories listed in one finding."""


def _evaluate(evidence: RunEvidence) -> CheckResults:
    return [*_of_workloads(evidence.prompts), *_of_categories(evidence)]


def _of_workloads(counts: Mapping[str, int]) -> Iterator[CheckResult]:
    for workload, prompts in counts.items():
        if prompts >= INFO_BELOW:
            continue
        severity = Severity.WARNING if prompts < WARNING_BELOW else Severity.INFO
        message = (
            f"the figures of workload {workload!r} rest on {prompts} different prompts and are valid only for those"
        )
        threshold = WARNING_BELOW if severity is Severity.WARNING else INFO_BELOW
        yield CheckResult(severity, message, value=prompts, threshold=threshold, workload=workload)


def _of_categories(evidence: RunEvidence) -> Iterator[CheckResult]:
    """Yield one Info finding per workload that has enough prompts itself, but too few in some categories."""
    for workload, counts in evidence.category_prompts.items():
        few = {name: count for name, count in counts.items() if count < INTERVAL_FROM}
        if not few or evidence.prompts[workload] < WARNING_BELOW:
            continue
        named = name_some([f"{name} ({count})" for name, count in few.items()], NAMED)
        message = (
            f"categories of workload {workload!r} have fewer than {INTERVAL_FROM} different prompts: {named}."
            " Their figures are valid only for those prompts and have no interval"
        )
        fewest = min(few.values())
        yield CheckResult(Severity.INFO, message, value=fewest, threshold=INTERVAL_FROM, workload=workload)


CHECK: Check[RunEvidence] = Check(
    name="TooFewPrompts",
    severities=(Severity.WARNING, Severity.INFO),
    description="The steady state of a cell has few different prompts of a workload, or of one of its categories.",
    threshold=(
        f"Info below {INFO_BELOW} different prompts of a workload, Warning below {WARNING_BELOW}; Info below"
        f" {INTERVAL_FROM} of a category, whose figures then have no intervals"
    ),
    rationale=(
        "At 20 prompts the 95 % interval of an acceptance length is about ± 0.1 on homogeneous data and much wider on"
        " heterogeneous data; below 5, resampling has at most 35 different samples, and no interval is valid. A small"
        " category affects only its own row: figures of the workload use all prompts."
    ),
    remedy="Use more prompts from your own traffic; 80 per category is a good number.",
    evaluate=_evaluate,
)
