"""Checks whether answers are as long as those of real traffic, and as the baseline's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from specbench_api.spec.dataset import Source
from specbench_api.spec.workload import Workload
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import PointSummary
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import has_text, text_counts
from specbench_client.metrics.tidy_frame import numbers, steady_rows, sums_by_text
from specbench_client.numpy_columns import Values
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


LENGTH_SHARE = 0.1
NET_SHARE = 0.1
SIGNIFICANCE = 0.01
UNANIMOUS_MIN = 3


@check(
    name="OutputLengthsDiffer",
    severities=(Severity.INVALID,),
    threshold=(
        f"prompts whose answer is more than {LENGTH_SHARE:.0%} shorter outnumber those whose answer is more than"
        f" {LENGTH_SHARE:.0%} longer, or the reverse, by at least {NET_SHARE:.0%} of all prompts; and a two-sided sign"
        f" test rejects chance at {SIGNIFICANCE:g}, or at least {1 - NET_SHARE:.0%} of {UNANIMOUS_MIN} or more prompts"
        " differ in one direction and none in the other. Not evaluated at other temperatures, where lengths differ by"
        " design"
    ),
    rationale=(
        "Rounding makes greedy answers longer as often as shorter; a cut only shortens them. The sign test separates"
        " the two without knowing how much rounding there is."
    ),
    remedy=(
        "Read finish_reason, and look for a smaller context length on this arm or for tokens past the end of the"
        " answer."
    ),
)
def output_lengths_differ(evidence: CellEvidence) -> CheckResults:
    """At temperature 0, answers are systematically shorter (or longer) than the paired baseline's.

    Greedy answers that diverge from the baseline's through rounding become longer as often as shorter, but a cut only
    shortens. So the check does not count differences in length, but differences in one direction. The prompt is the
    unit: a prompt that is sent again in every repeat is one sample, not several.
    """
    if evidence.pairs is None or not evidence.greedy:
        return []
    signs = _signs(evidence.pairs)
    shorter, longer = int((signs < 0).sum()), int((signs > 0).sum())
    net = (shorter - longer) / signs.size if signs.size else 0.0
    if abs(net) < NET_SHARE or not _one_sided(shorter, longer, signs.size):
        return []
    cause = (
        "the engine cuts answers silently" if net > 0 else "the baseline's are cut, or this arm's run past their end"
    )
    message = (
        f"{shorter} of {signs.size} prompts have an answer more than {LENGTH_SHARE:.0%} shorter than the paired"
        f" baseline's, and {longer} a longer one{_finishes(evidence.pairs)}: {cause}"
    )
    return [CheckResult(Severity.INVALID, message, value=net, threshold=NET_SHARE)]


def _signs(pairs: Pairs) -> Values:
    """One sign per prompt, shape (prompts,): −1 if its answers are shorter beyond the tolerance, +1 if longer."""
    sums = sums_by_text(
        (piece.arm.codes("prompt_id"), [numbers(rows, "tokens") for rows in (piece.arm, piece.baseline)])
        for piece in pairs.pieces()
    )
    mine, theirs = np.array([*sums.values()]).reshape(-1, 2).T
    shorter = mine < theirs * (1 - LENGTH_SHARE) - 1
    longer = theirs < mine * (1 - LENGTH_SHARE) - 1
    return np.asarray(longer, dtype=np.float64) - shorter


def _one_sided(shorter: int, longer: int, prompts: int) -> bool:
    more, fewer = max(shorter, longer), min(shorter, longer)
    if more == 0:
        return False
    unanimous = prompts >= UNANIMOUS_MIN and fewer == 0 and more >= (1 - NET_SHARE) * prompts
    return unanimous or sign_test(more, fewer) < SIGNIFICANCE


def sign_test(more: int, fewer: int) -> float:
    """Return the exact two-sided p-value of these numbers of positive and negative signs."""
    return min(1.0, 2 * float(scipy.special.bdtr(min(more, fewer), more + fewer, 0.5)))


def _finishes(pairs: Pairs) -> str:
    counts = text_counts(pairs.arm, "finish_reason").most_common()
    named = ", ".join(f"{count} {name}" for name, count in counts)
    return f" (finish_reason: {named})" if named else ""
