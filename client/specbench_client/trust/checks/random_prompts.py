"""Prompts of random words, whether configured or found in a file, are not representative of any traffic."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.prompt_coverage import PromptCoverage, WordOrderTest
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.workload import Workload
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

MOVED_MIN = 0.008


def _evaluate(evidence: RunEvidence) -> CheckResults:
    found = [_of_workload(workload, evidence.coverage.get(workload.name)) for workload in evidence.plan.workloads]
    return [result for result in found if result is not None]


def _of_workload(workload: Workload, coverage: PromptCoverage | None) -> CheckResult | None:
    if share := _declared(workload.dataset):
        message = (
            f"{share:.0%} of the prompts of workload {workload.name!r} are random words: its figures represent no"
            " real traffic"
        )
        return CheckResult(Severity.WARNING, message, value=share, threshold=0.0, workload=workload.name)
    return _from_word_order(workload.name, coverage) if coverage is not None else None


def _declared(dataset: Dataset) -> float:
    """Share of the prompts that are random because the dataset's source is random."""
    if dataset.members is None:
        return float(dataset.source is Source.RANDOM)
    whole = sum(member.weight for member in dataset.members)
    return sum(member.weight for member in dataset.members if member.source is Source.RANDOM) / whole


def _from_word_order(workload: str, coverage: PromptCoverage) -> CheckResult | None:
    """Check the words of the prompts themselves: of all prompts together, else of single categories."""
    if _is_random(coverage.order):
        return _result(workload, "its prompts", coverage.order)
    spoilt = [one for one in coverage.by_category if _is_random(one.order)]
    if not spoilt:
        return None
    names = ", ".join(one.category or "no category" for one in spoilt)
    return _result(workload, f"the prompts of {names}", spoilt[0].order)


def _is_random(order: WordOrderTest | None) -> bool:
    return order is not None and order.moved < MOVED_MIN


def _result(workload: str, whose: str, order: WordOrderTest | None) -> CheckResult:
    assert order is not None
    message = (
        f"workload {workload!r}: the words of {whose} are in random order: {order.repeated:.1%} of the pairs of"
        f" neighbouring words occur again, and {order.shuffled:.1%} after shuffling: its figures represent no real"
        " traffic"
    )
    return CheckResult(Severity.WARNING, message, value=order.moved, threshold=MOVED_MIN, workload=workload)


CHECK: Check[RunEvidence] = Check(
    name="RandomPrompts",
    severities=(Severity.WARNING,),
    description="The prompts of a workload are random words or tokens.",
    threshold=(
        "any workload or member of a mix with source random. Also a file, or one of its categories: of the distinct"
        " pairs of neighbouring words, a share occurs more than once, and shuffling the words changes this share by"
        f" less than {100 * MOVED_MIN:.1f} percentage points. Needs 4,000 pairs (of words, token ids or Chinese"
        " characters), without text that prompts share word by word"
    ),
    rationale=(
        "A model answers random text with something trivial, or repeats one of its words: SPEED-Bench's authors"
        " found throughput with a drafter overstated by 23 % on average, and rankings of drafters reversed. In every"
        " language some pairs of words recur, and shuffling separates them. It changes the share by 9 to 12 points in"
        " Spec-Bench, GSM8K and HumanEval, by 5 points and more in handbooks in Chinese, Japanese, Korean, Turkish,"
        " Finnish and Russian, and by at least 1.4 in each of 131 datasets in more than 20 languages; in random words,"
        " token ids and letters by at most 0.4 (benchmarks/trust.md)."
    ),
    remedy=(
        "Measure prompts from your own traffic or a published dataset; if you need given lengths, prepare those"
        " prompts to length."
    ),
    evaluate=_evaluate,
)
