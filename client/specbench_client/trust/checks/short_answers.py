"""Answers of a few tokens: TTFT dominates their time, and they have too few steps to gain from drafting."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import PointSummary
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

TOKENS = 50
_LENGTH, _FIRST, _WHOLE = "output_tokens_mean", "ttft_ms_mean", "e2e_ms_mean"


def _evaluate(evidence: RunEvidence) -> CheckResults:
    names = [workload.name for workload in evidence.plan.workloads]
    found = [_of_workload(name, [each for each in evidence.summaries if each.workload == name]) for name in names]
    return [result for result in found if result is not None]


def _of_workload(workload: str, points: Sequence[PointSummary]) -> CheckResult | None:
    tokens = _mean(points, _LENGTH)
    if tokens is None or tokens >= TOKENS:
        return None
    first, whole = _mean(points, _FIRST), _mean(points, _WHOLE)
    share = f", and {first / whole:.0%} of their time is TTFT" if first and whole else ""
    message = (
        f"the answers of workload {workload!r} have {tokens:.0f} tokens on average{share}: its figures are valid"
        " only for such short answers"
    )
    return CheckResult(Severity.INFO, message, value=tokens, threshold=TOKENS, workload=workload)


def _mean(points: Sequence[PointSummary], name: str) -> float | None:
    """The mean over the requests of all points; None if no point has the figure."""
    figures = [figure for each in points if (figure := each.figures.get(name)) is not None]
    known = [(figure.value, figure.n) for figure in figures if figure.value is not None and figure.n]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


CHECK: Check[RunEvidence] = Check(
    name="ShortAnswers",
    severities=(Severity.INFO,),
    description="A workload's answers are so short that their first token and their last step dominate its figures.",
    threshold=f"fewer than {TOKENS} output tokens on average in a workload's steady requests",
    rationale=(
        "Drafting does not shorten TTFT: if prefill takes as long as ten steps, it is a sixth of the time of an answer"
        " of 50 tokens, and half of one of 10. Also, an answer ends within a step, so about half a step of drafts is"
        " lost: at 2.5 tokens per step, a fortieth of an answer of 50 tokens, and an eighth of one of 10. Labels and"
        " short extractions are real traffic, and their figures are right, so the severity is Info."
    ),
    remedy=(
        "If your service's answers are longer, raise output.maxTokens or use your users' prompts; also read"
        " tpot_speedup."
    ),
    evaluate=_evaluate,
)
