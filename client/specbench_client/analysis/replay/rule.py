"""The rule "where BLEU-4 of prompt and output is above 0.6, n-gram beats EAGLE", judged by a run's own speed-ups.

Only here: a run's summary holds no texts, and so no overlap. In each range of BLEU-4 from 0.6 on the measured speed-up
of every n-gram arm is divided by that of every EAGLE arm, over the prompts whose answers are in it. Both share one
baseline, so that the quotient's interval is too wide rather than too narrow (`decision.evidence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import RuleCase, RuleReading, RuleVerdict
from specbench_api.outcome.replay import OverlapBin
from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.rules.rule import LARGER, over
from specbench_client.analysis.decision.rules.unmeasured import HIGH_OVERLAP
from specbench_client.analysis.estimates.evidence import quotient

ABOVE = 0.6
NOTHING_HIGH = f"no answer of this run has a BLEU-4 of {ABOVE} or more"
NOT_BOTH = "the run has no n-gram arm beside an EAGLE arm, both compared with its baseline"
_EAGLE = (Method.EAGLE, Method.EAGLE3)


@dataclass(frozen=True)
class Where:
    """Of which cell the speed-ups are."""

    workload: str
    load: str


def overlap_rule(bins: Sequence[OverlapBin], methods: Mapping[str, Method], where: Where) -> RuleReading:
    """Judge the rule. `methods`: of the run's drafting arms, by name."""
    high = [each for each in bins if each.by == "bleu4" and each.low >= ABOVE]
    cases = [case for each in high for case in _cases(each, methods, where)]
    reason = "" if cases else NOT_BOTH if high else NOTHING_HIGH
    verdict = over(cases)
    return RuleReading(
        rule=HIGH_OVERLAP.name,
        says=HIGH_OVERLAP.says,
        source=HIGH_OVERLAP.source,
        verdict=verdict,
        reason=reason,
        cases=cases,
    )


def _cases(each: OverlapBin, methods: Mapping[str, Method], where: Where) -> Iterator[RuleCase]:
    for first, ngram in each.speedups.items():
        for second, eagle in each.speedups.items():
            if methods.get(first) is Method.NGRAM and methods.get(second) in _EAGLE:
                ratio = quotient(ngram, eagle, "")
                if ratio is not None:
                    yield _case(f"{first} over {second}", each, ratio, where)


def _case(arms: str, each: OverlapBin, ratio: Figure, where: Where) -> RuleCase:
    bounds = ratio.interval
    told = f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else " (no interval)"
    return RuleCase(
        arm=arms,
        workload=where.workload,
        load=where.load,
        because=f"BLEU-4 of {each.low:.1f} to {each.high:.1f}, {each.answers:,} answers",
        says=LARGER.words,
        measured=f"{ratio.value:.2f}x{told}",
        verdict=LARGER.verdict(bounds.low, bounds.high) if bounds else RuleVerdict.UNCLEAR,
    )
