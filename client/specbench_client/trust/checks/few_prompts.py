"""A handful of prompts cannot carry a claim about traffic, nor one about a category of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

DOUBT_BELOW = 5
NOTE_BELOW = 20
INTERVAL_FROM = DOUBT_BELOW
"""Prompts of a category from which on its figures have an interval."""
NAMED = 8
"""Categories that one finding names."""


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [*_of_workloads(evidence.prompts), *_of_categories(evidence)]


def _of_workloads(counts: Mapping[str, int]) -> Iterator[Seen]:
    for workload, prompts in counts.items():
        if prompts >= NOTE_BELOW:
            continue
        severity = Severity.DOUBT if prompts < DOUBT_BELOW else Severity.NOTE
        message = f"the figures of workload {workload!r} rest on {prompts} different prompts: they speak of those alone"
        threshold = DOUBT_BELOW if severity is Severity.DOUBT else NOTE_BELOW
        yield Seen(severity, message, value=prompts, threshold=threshold, workload=workload)


def _of_categories(evidence: RunEvidence) -> Iterator[Seen]:
    """One note a workload that has enough prompts itself, and categories that do not."""
    for workload, counts in evidence.category_prompts.items():
        few = {name: count for name, count in counts.items() if count < INTERVAL_FROM}
        if not few or evidence.prompts[workload] < DOUBT_BELOW:
            continue
        named = ", ".join(f"{name} ({count})" for name, count in list(few.items())[:NAMED])
        more = f" and {len(few) - NAMED} more" if len(few) > NAMED else ""
        message = (
            f"categories of workload {workload!r} rest on fewer than {INTERVAL_FROM} different prompts: {named}{more}."
            " Their figures are those prompts' alone, and have no interval"
        )
        fewest = min(few.values())
        yield Seen(Severity.NOTE, message, value=fewest, threshold=INTERVAL_FROM, workload=workload)


CHECK: Check[RunEvidence] = Check(
    name="FewPrompts",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="The steady state of some cell holds few different prompts of a workload, or of one of its categories.",
    threshold=(
        f"a Note below {NOTE_BELOW} different prompts of a workload, a Doubt below {DOUBT_BELOW}; a Note below"
        f" {INTERVAL_FROM} of a category, whose figures are then told without intervals"
    ),
    argument=(
        "At 20 prompts the 95 % interval of an acceptance length is about ± 0.1 wide on even data and much wider"
        " on uneven; fewer than 5 give resampling at most 35 different samples, and no interval is sound. A category"
        " with fewer spoils its own line and not the run: what is said of the workload rests on all prompts."
    ),
    remedy="Use more prompts of your own traffic; 80 a category is a good number.",
    look=_look,
)
