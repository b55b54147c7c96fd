"""Answers of a few tokens: their time is the first token's, and their steps are too few to draft in."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import PointSummary
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

TOKENS = 50
_LENGTH, _FIRST, _WHOLE = "output_tokens_mean", "ttft_ms_mean", "e2e_ms_mean"


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    names = [workload.name for workload in evidence.plan.workloads]
    found = [_of(name, [each for each in evidence.summaries if each.workload == name]) for name in names]
    return [seen for seen in found if seen is not None]


def _of(workload: str, points: Sequence[PointSummary]) -> Seen | None:
    tokens = _mean(points, _LENGTH)
    if tokens is None or tokens >= TOKENS:
        return None
    first, whole = _mean(points, _FIRST), _mean(points, _WHOLE)
    share = f", and {first / whole:.0%} of their time is the first one's" if first and whole else ""
    message = (
        f"the answers of workload {workload!r} have {tokens:.0f} tokens in the mean{share}: its figures speak of"
        " answers as short as these"
    )
    return Seen(Severity.NOTE, message, value=tokens, threshold=TOKENS, workload=workload)


def _mean(points: Sequence[PointSummary], name: str) -> float | None:
    """Over the requests of all points."""
    figures = [figure for each in points if (figure := each.figures.get(name)) is not None]
    known = [(figure.value, figure.n) for figure in figures if figure.value is not None and figure.n]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


CHECK: Check[RunEvidence] = Check(
    name="ShortAnswers",
    severities=(Severity.NOTE,),
    says="The answers of a workload are so short that their first token and their last step weigh on every figure.",
    threshold=f"fewer than {TOKENS} output tokens in the mean of a workload's steady requests",
    argument=(
        "Drafting makes no first token earlier: with a prefill of ten steps, 50 tokens spend a sixth of their time"
        " where nothing can be gained, 10 tokens half. And an answer ends within a step: about half a step of drafts is"
        " lost, a fortieth of the 20 steps of 50 tokens at 2.5 tokens a step, an eighth of four. Labels and short"
        " extractions are traffic too, and their figures are right for them: so it is a note."
    ),
    remedy="If your answers are longer, raise output.maxTokens or ask what your users ask; read tpot_speedup beside.",
    look=_look,
)
