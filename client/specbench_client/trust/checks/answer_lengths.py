"""Checks whether answers are as long as those of real traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specbench_api.spec.dataset import Source
from specbench_api.spec.workload import Workload
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import PointSummary
from specbench_client.metrics.rows import has_text
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.trust.check_type import CheckResult, CheckResults, check
from specbench_client.trust.evidence import CellEvidence, RunEvidence

ANSWERS_MIN = 5


@check(
    name="UnexpectedOutputLengths",
    severities=(Severity.INFO,),
    threshold=f"the median of at least {ANSWERS_MIN} steady answers is outside the range",
    rationale="A mix weights kinds of request; answers of other lengths change their weight in every throughput.",
    remedy="Raise output.maxTokens if answers are cut, else correct the range or the weights.",
)
def unexpected_output_lengths(evidence: CellEvidence) -> CheckResults:
    """The median answer of a member of a mix is shorter or longer than its outputTokens."""
    return list(_outside(evidence)) if evidence.workload.dataset.members else []


def _outside(evidence: CellEvidence) -> Iterator[CheckResult]:
    rows = steady_rows(evidence.rows)
    for member in evidence.workload.dataset.members or []:
        if member.output_tokens is None:
            continue
        tokens = numbers(rows.among(has_text(rows, "category", member.name)), "tokens")
        known = tokens[~np.isnan(tokens)]
        if known.size < ANSWERS_MIN:
            continue
        middle = float(np.median(known))
        if not member.output_tokens.holds(middle):
            low, high = member.output_tokens.min or 1, member.output_tokens.max or "any number"
            message = f"the median answer of {member.name} has {middle:.0f} tokens, but outputTokens is {low} to {high}"
            yield CheckResult(Severity.INFO, message, value=middle)


TOKENS = 50
_LENGTH, _FIRST, _PER_TOKEN, _WHOLE = "output_tokens_mean", "ttft_ms_mean", "tpot_ms_mean", "e2e_ms_mean"


@check(
    name="ShortAnswers",
    severities=(Severity.INFO,),
    threshold=f"fewer than {TOKENS} output tokens on average in a workload's steady requests",
    rationale=(
        "Drafting does not shorten TTFT: if prefill takes as long as ten steps, it is a sixth of the time of an answer"
        " of 50 tokens, and half of one of 10. Also, an answer ends within a step, so about half a step of drafts is"
        " lost: at 2.5 tokens per step, a fortieth of an answer of 50 tokens, and an eighth of one of 10. Labels and"
        " short extractions are real traffic, and their figures are right, so the severity is Info."
    ),
    remedy=(
        "If your service's answers are longer, use your users' prompts, and raise output.maxTokens if it cuts answers"
        " (finish_reason length in the records)."
    ),
    imported_remedy=(
        "If your service's answers are longer, let the benchmark request longer ones or give it your users' prompts."
    ),
)
def short_answers(evidence: RunEvidence) -> CheckResults:
    """A workload's answers are so short that their first token and their last step dominate its figures."""
    found = [
        _of_workload(workload, [each for each in evidence.summaries if each.workload == workload.name])
        for workload in evidence.plan.workloads
    ]
    return [result for result in found if result is not None]


def _of_workload(workload: Workload, points: Sequence[PointSummary]) -> CheckResult | None:
    tokens = _mean(points, _LENGTH)
    if tokens is None or tokens >= TOKENS:
        return None
    first, whole = _mean(points, _FIRST), _mean(points, _WHOLE)
    share = f", and {first / whole:.0%} of their time is TTFT" if first and whole else ""
    share += " (TPOT contains none of it)" if share and _mean(points, _PER_TOKEN) else ""
    message = (
        f"the text of the answers has {tokens:.0f} tokens on average, of at most {workload.output.max_tokens}"
        f" (output.maxTokens){share}: the figures are valid only for such short answers"
    )
    return CheckResult(Severity.INFO, message, value=tokens, threshold=TOKENS, workload=workload.name)


def _mean(points: Sequence[PointSummary], name: str) -> float | None:
    """The mean over the requests of all points; None if no point has the figure."""
    figures = [figure for each in points if (figure := each.figures.get(name)) is not None]
    known = [(figure.value, figure.n) for figure in figures if figure.value is not None and figure.n]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


@check(
    name="IgnoreEos",
    severities=(Severity.INFO,),
    threshold="ignoreEos: true, or source mooncake or sessions",
    rationale="Past its end a model repeats itself, so acceptance there is not the acceptance on your traffic.",
    remedy="Use it only to measure the maximum throughput, never to choose a drafter.",
)
def ignore_eos(evidence: RunEvidence) -> CheckResults:
    """A workload requests text past the natural end of the answer."""
    return [
        CheckResult(
            Severity.INFO,
            f"workload {workload.name!r} generates past the natural end of its answers (ignoreEos): that text repeats"
            " itself and makes every drafter look better",
            workload=workload.name,
        )
        for workload in evidence.plan.workloads
        if workload.output.ignore_eos or workload.dataset.share_of(Source.MOONCAKE, Source.SESSIONS)
    ]
