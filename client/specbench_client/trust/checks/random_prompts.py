"""Random words are no traffic: neither those that were asked for, nor those that came in a file."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.coverage import Coverage, WordOrder
from specbench_api.outcome.finding import Severity
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.workload import Workload
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

MOVED_MIN = 0.008


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    found = [_of_workload(workload, evidence.coverage.get(workload.name)) for workload in evidence.plan.workloads]
    return [seen for seen in found if seen is not None]


def _of_workload(workload: Workload, coverage: Coverage | None) -> Seen | None:
    if share := _declared(workload.dataset):
        message = (
            f"{share:.0%} of the prompts of workload {workload.name!r} are random words: its figures are of no traffic"
        )
        return Seen(Severity.DOUBT, message, value=share, threshold=0.0, workload=workload.name)
    return _read(workload.name, coverage) if coverage is not None else None


def _declared(dataset: Dataset) -> float:
    """Of the prompts, how many are random because that was asked for."""
    if dataset.members is None:
        return float(dataset.source is Source.RANDOM)
    whole = sum(member.weight for member in dataset.members)
    return sum(member.weight for member in dataset.members if member.source is Source.RANDOM) / whole


def _read(workload: str, coverage: Coverage) -> Seen | None:
    """What the prompts' own words tell: all of them together, or those of single categories."""
    if _is_random(coverage.order):
        return _seen(workload, "its prompts", coverage.order)
    spoilt = [one for one in coverage.by_category if _is_random(one.order)]
    if not spoilt:
        return None
    names = ", ".join(one.category or "no category" for one in spoilt)
    return _seen(workload, f"the prompts of {names}", spoilt[0].order)


def _is_random(order: WordOrder | None) -> bool:
    return order is not None and order.moved < MOVED_MIN


def _seen(workload: str, whose: str, order: WordOrder | None) -> Seen:
    assert order is not None
    message = (
        f"workload {workload!r}: the words of {whose} stand in random order: {order.repeated:.1%} of the pairs of"
        f" neighbouring words come back, and {order.shuffled:.1%} when they are shuffled: its figures are of no traffic"
    )
    return Seen(Severity.DOUBT, message, value=order.moved, threshold=MOVED_MIN, workload=workload)


CHECK: Check[RunEvidence] = Check(
    name="RandomPrompts",
    severities=(Severity.DOUBT,),
    says="The prompts of a workload are random words or tokens.",
    threshold=(
        "any workload or member of a mix with source random; of a file, a workload or a category of which shuffling the"
        f" words moves less than {MOVED_MIN:.1%} of the different pairs of neighbouring words in or out of those that"
        " come back. Needs 4,000 pairs beside what prompts share word by word (of words, token ids, or Chinese letters)"
    ),
    argument=(
        "A model answers random text with something trivial, or fixes on one of its words: SPEED-Bench's authors saw"
        " throughput with a drafter overstated by 23 % on average, and rankings of drafters reversed. In every language"
        " some words follow one another again and again, and shuffling parts them. It moves 9 % to 12 % of the pairs of"
        " Spec-Bench, GSM8K and HumanEval, 5 % and more of handbooks in Chinese, Japanese, Korean, Turkish, Finnish and"
        " Russian, and 1.4 % of what had least of 131 sets in more than 20 languages; of random words, token ids and"
        " letters at most 0.4 % (docs/trust.md)."
    ),
    remedy="Measure prompts of your own traffic, or a published set; for given lengths prepare those.",
    look=_look,
)
