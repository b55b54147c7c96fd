"""Checks whether acceptance counters fit the steps and tokens of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from specbench_api.plan.expansion import lossy_arms
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind
from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import PointSummary
from specbench_client.metrics.acceptance import EMITTED_POOLED, is_by_chunks, is_inferred
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import known_sum, numbers
from specbench_client.numpy_columns import Mask, Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check, counted_rows, report_impossible
from specbench_client.trust.checks.draft_counters import (
    TOLERATED_PER_ANSWER,
    TOLERATED_SHARE,
    Contradiction,
    confirms_chunks,
    contradictions,
)
from specbench_client.trust.evidence import PointEvidence, RunEvidence


@check(
    name="NeverDrafted",
    severities=(Severity.INVALID, Severity.WARNING, Severity.INFO),
    threshold=(
        "a point has no draft token or, if draft tokens are not reported, no step with drafts; Warning if neither is"
        " reported and no draft is known to have been accepted. Of a running endpoint, Warning if it reports none, Info"
        " without a baseline"
    ),
    rationale=(
        "One draft token proves that the drafter works; an arm whose drafter never drafts is a second baseline."
    ),
    remedy=(
        "Check the engine's log and arguments (a drafter without its model, a model without its method; llama.cpp's"
        " ngram-simple drafts only after 12 tokens that occurred before, unless --spec-ngram-simple-size-n is smaller),"
        " and enable its acceptance metrics."
    ),
)
def never_drafted(evidence: PointEvidence) -> CheckResults:
    """A drafter was configured, but records and counters report no draft token.

    A running endpoint that counts its drafts has a drafter; one that does not may have none.
    """
    rows, arm = evidence.answered, evidence.arm
    could = numbers(rows, "tokens") >= 2
    may_draft = arm.drafter is not None or (evidence.plan.engine.is_external and not arm.is_baseline)
    if not may_draft or not could.any():
        return []
    drafted = _reported_drafting(evidence)
    if not drafted:
        if arm.drafter is None:
            return []
        message = "neither answers nor counters report whether the engine drafted"
        return [CheckResult(Severity.WARNING, message)]
    if max(drafted) > 0:
        return []
    answers, nothing = int(could.sum()), "it found nothing to draft from"
    if not evidence.plan.has_baseline and arm.drafter is None:  # it may be meant to be without one
        message = f"this server drafted no token in {answers} answers: it has no drafter, or {nothing}"
        return [CheckResult(Severity.INFO, message, value=0, threshold=1)]
    drafter, severity = (f" ({arm.drafter.method})", Severity.INVALID) if arm.drafter else ("", Severity.WARNING)
    message = (
        f"drafter {arm.name!r}{drafter} drafted no token in {answers} answers: it is off, or {nothing}, so this arm"
        " measured the baseline"
    )
    return [CheckResult(severity, message, value=0, threshold=1)]


def _reported_drafting(evidence: PointEvidence) -> list[float]:
    """Return the reported counts of draft tokens, else of draft steps, else of accepted tokens if there were any.

    No accepted token does not prove that nothing was drafted, and inferred acceptance proves nothing.
    """
    rows = evidence.answered
    for name in ("drafted_tokens", "draft_steps"):
        counted = getattr(evidence.counters, name) if evidence.counters else None
        counts = [each for each in (known_sum(numbers(rows, name)), counted) if each is not None]
        if counts:
            return counts
    accepted = known_sum(numbers(rows, "accepted_tokens")[~is_inferred(rows)])
    return [accepted] if accepted else []


@check(
    name="BaselineDrafted",
    severities=(Severity.INVALID, Severity.INFO),
    threshold=(
        "any draft token, draft step or accepted token in records or counters; Info for a running endpoint, which may"
        " be meant to draft"
    ),
    rationale="A baseline that drafts is a second drafter: a speed-up over it is not one over decoding without drafts.",
    remedy=(
        "Look for a drafter that the target's checkpoint configures (speculators format), or for an argument or"
        " variable of the engine or its image that enables one, and remove it."
    ),
)
def baseline_drafted(evidence: PointEvidence) -> CheckResults:
    """The engine of an arm without a drafter reports drafts."""
    if evidence.arm.drafter is not None or not evidence.arm.is_baseline:
        return []
    drafted = max(_reported_drafting(evidence), default=0)
    if not drafted:
        return []
    if evidence.arm.endpoint is not None:
        message = "the endpoint that others are compared with drafts too: speed-ups are relative to its drafter"
        return [CheckResult(Severity.INFO, message, value=drafted, threshold=0)]
    message = (
        f"the engine reports drafts ({drafted:.0f}) although this arm has no drafter: speed-ups over it are too small"
    )
    return [CheckResult(Severity.INVALID, message, value=drafted, threshold=0)]


UNDRAFTED_SHARE = 0.05
LAST_STEP = 1
ALWAYS = (
    Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.MEDUSA, Method.PARD, Method.DFLASH,
    Method.DSPARK,
)  # fmt: skip


@check(
    name="StepsWithoutDrafts",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {UNDRAFTED_SHARE:.0%} of the steps, beyond {LAST_STEP} per answer, with {', '.join(ALWAYS)}; no"
        " drafts at all are reported by NeverDrafted"
    ),
    rationale=(
        "The last step of an answer may have no room for drafts. More such steps mean a different configuration or"
        " a wrong count, and change the acceptance length by as much."
    ),
    remedy=(
        "Look for a batch size or a confidence at which the engine stops drafting, and report it with the result;"
        " compare one answer's tokens by hand."
    ),
)
def steps_without_drafts(evidence: PointEvidence) -> CheckResults:
    """An arm whose method drafts at every step has steps without drafts.

    An n-gram or suffix lookup may find nothing, but a draft model always has a proposal. Steps without drafts then ran
    with the drafter off (above a batch size, below a confidence), or their tokens were never generated: a token count
    that is too high shows up as steps that nobody drafted for.
    """
    drafter = evidence.arm.drafter
    if drafter is None or drafter.method not in ALWAYS or drafter.draft_lengths:
        return []
    steps, drafting = numbers(evidence.answered, "steps"), numbers(evidence.answered, "draft_steps")
    known = ~np.isnan(steps) & ~np.isnan(drafting)
    beyond_the_last = np.maximum((steps - drafting)[known] - LAST_STEP, 0.0)
    made, without = float(steps[known].sum()), float(beyond_the_last.sum())
    if without <= UNDRAFTED_SHARE * made or not drafting[known].any():
        return []
    message = (
        f"{without / made:.0%} of {made:.0f} steps had no drafts, although {drafter.method} drafts at every step:"
        " the engine disabled its drafter at times, or counted tokens that no step generated"
    )
    if evidence.plan.engine.kind is EngineKind.LLAMA_CPP:
        message += (
            "; llama.cpp also verifies the accepted drafts again after a rejection if the target's memory cannot roll"
            " back (hybrid and recurrent models), a step without new drafts"
        )
    return [CheckResult(Severity.WARNING, message, value=without / made, threshold=UNDRAFTED_SHARE)]


_COUNTS = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens")


@check(
    name="ImpossibleAcceptance",
    severities=(Severity.INVALID,),
    threshold=(
        "any answer with accepted > drafted, with a count below 0, with a step that accepted more than k drafts,"
        " with tokens − 1 > (k + 1) × (steps + k), or with steps > tokens + k"
    ),
    rationale=(
        "A step emits its accepted drafts, at most k, and one more token. If an answer was cut at its end, up to k"
        " steps may be missing, and the last step may have lost its tokens; both limits allow for that. One answer is"
        " enough: the same code counts all of them."
    ),
    remedy="Compare one answer by hand with the engine's log, report the engine's bug, and do not use the acceptance.",
)
def impossible_acceptance(evidence: PointEvidence) -> CheckResults:
    """An answer reports more accepted than draft tokens, or more tokens per step than its drafter can give.

    The reported steps may be slightly too few where an answer was cut at its stop and the engine does not report in
    which step: at most as many steps as tokens were cut, which are at most k.
    """
    consequence = "the engine counts its drafts wrongly, so the acceptance of this point is not usable"
    return report_impossible(_kinds(evidence), counted_rows(evidence.answered, "answers"), consequence)


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield each impossible condition, in words, with a mask, shape (answers,), of the answers that meet it."""
    rows, drafts = evidence.answered, evidence.drafts
    yield "have more tokens accepted than drafted", numbers(rows, "accepted_tokens") > numbers(rows, "drafted_tokens")
    steps = rows.lists("accepted_of_steps")
    listed = steps.sums(steps.entries[:, 0] < 0) > 0
    yield "have a count below 0", np.any([listed, *(numbers(rows, name) < 0 for name in _COUNTS)], axis=0)
    if drafts is None:
        return
    yield f"have a step with more than {drafts} drafts accepted", steps.sums(steps.entries[:, 0] > drafts) > 0
    # Chunks are no count of the engine: one may have several steps.
    counted = np.where(is_by_chunks(rows), np.nan, numbers(rows, "steps"))
    later = numbers(rows, "tokens") - 1
    yield f"have more than {drafts + 1} tokens per step", later > (drafts + 1) * (counted + drafts)
    yield "have more steps than tokens", counted > later + drafts + 1


@check(
    name="AcceptanceCounterMismatch",
    severities=(Severity.INVALID, Severity.INFO),
    threshold=(
        f"a difference of more than {TOLERATED_SHARE:.0%} plus {TOLERATED_PER_ANSWER} step or accepted token per"
        " answer (k per answer for draft tokens). The counters may exceed the answers by up to k accepted tokens"
        " per answer, and by the longest answer for each failed request. Info if the contradicted number is only"
        " inferred from the chunks of an external endpoint: it is dropped"
    ),
    rationale=(
        "Engines count accepted tokens before they cut an answer at its stop, so up to k tokens per answer are"
        " never delivered. A larger difference means that one side counts wrongly, and acceptance length and"
        " acceptance rate with it."
    ),
    remedy=(
        "Enable per-request acceptance reporting in the engine, set its stream interval to 1, and let no proxy"
        " merge chunks. If the engine contradicts itself, report the bug and do not use the acceptance."
    ),
)
def acceptance_counter_mismatch(evidence: PointEvidence) -> CheckResults:
    """Draft steps, draft tokens or accepted tokens in the answers contradict the engine's own counters.

    Of the several ways to learn the acceptance of an answer, the weakest is to count its chunks: an engine that streams
    four tokens at a time looks like one whose drafts are accepted, while its counters show that none was. See
    `trust.checks.draft_counters` for the differences that are allowed, and for which of the two is reported.
    """
    found = contradictions(evidence)
    if not found:
        return []
    worst = max(found, key=lambda each: each.beyond / max(each.reported, each.counted))
    value = abs(worst.reported - worst.counted) / max(worst.reported, worst.counted)
    message = (
        f"the answers contain {_counts(found, 'reported')}, but the engine's own counters {_counts(found, 'counted')}"
    )
    if is_by_chunks(evidence.answered).any():
        message += "; acceptance inferred from chunks alone is dropped, because a chunk is not one step here"
    only_our_inference = evidence.plan.engine.is_external and bool(is_inferred(evidence.answered).all())
    return [
        CheckResult(
            Severity.INFO if only_our_inference else Severity.INVALID, message, value=value, threshold=TOLERATED_SHARE
        )
    ]


@check(
    name="AcceptanceUnconfirmed",
    severities=(Severity.INFO,),
    threshold="any answer without counts of its own, if the engine's counters of drafts are not known",
    rationale=(
        "A chunk of four tokens is a step with three accepted drafts, or four steps that the engine sent together"
        " (vLLM: --stream-interval 4). Only counts of drafts distinguish them."
    ),
    remedy=(
        "Let the engine report acceptance with each answer (vLLM: --per-request-spec-decode-metrics detailed), or make"
        " its metrics page readable, with the names that the engine itself uses."
    ),
)
def acceptance_unconfirmed(evidence: PointEvidence) -> CheckResults:
    """Nothing but the sizes of the chunks shows that a drafter works, so acceptance is left out."""
    if not is_by_chunks(evidence.rows).any() or confirms_chunks(evidence):
        return []
    unread = evidence.counters.unread if evidence.counters else None
    message = (
        "acceptance and steps are unknown: the answers do not report drafts, and neither do the engine's counters"
        f" ({unread or 'there are none, or they decreased'})"
    )
    return [CheckResult(Severity.INFO, message)]


def _counts(found: Sequence[Contradiction], side: str) -> str:
    return ", ".join(f"{getattr(each, side):.0f} {each.name}" for each in found)


MISMATCH_SHARE = 0.01
PER_ANSWER = 1


@check(
    name="StepTokenMismatch",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {MISMATCH_SHARE:.0%} of the tokens after the first, beyond {PER_ANSWER} per answer; only for"
        " answers whose engine lists their steps"
    ),
    rationale=(
        "Each step emits its accepted drafts and one more token, so AL = 1 + Σ of the joint acceptance rates."
        " The identity also holds if steps draft different numbers of tokens or none: only a wrong count breaks it. The"
        " allowance of one token covers an end-of-sequence token that one side counts and the other does not. Above"
        " 1 %, acceptance by position and acceptance length disagree by more than the intervals of a usual run."
    ),
    remedy=(
        "Compare one answer's list of steps with its usage by hand. Do not use acceptance by position, nor the"
        " oracle and the what-if analyses based on it. Speed-ups are still valid: they use only tokens and time."
    ),
)
def step_token_mismatch(evidence: PointEvidence) -> CheckResults:
    """The accepted drafts of an answer's steps do not add up to its tokens.

    Over draft steps, the sum of the joint rates of all positions is the mean number of accepted tokens of a step; a
    step without drafts emits one token. So for each answer: tokens − 1 = steps without drafts + Σ (accepted + 1) over
    draft steps. This holds whatever the number of drafts per step, because a position that was not drafted was not
    accepted. The totals of an answer (tokens, steps) are compared with the list of its steps.
    """
    rows = evidence.answered
    listed = rows.lists("accepted_of_steps")
    drafts, steps = listed.entries.T
    drafting, accepted = listed.sums(steps), listed.sums(drafts * steps)
    later, emitted = _delivered(rows) - 1, drafting + accepted
    beyond = np.maximum(_gaps(later, emitted, numbers(rows, "steps") - drafting) - PER_ANSWER, 0.0)
    known = ~np.isnan(beyond) & (later >= 1)
    made, unexplained = float(later[known].sum()), float(beyond[known].sum())
    if unexplained <= MISMATCH_SHARE * made:
        return []
    steps_made, given = drafting[known].sum(), emitted[known].sum()
    length = f"{given / steps_made:.2f}" if steps_made else "not known"
    message = (
        f"{unexplained / made:.1%} of {made:.0f} tokens after the first contradict the accepted drafts of their steps:"
        f" 1 + Σ of the joint acceptance rates is {length} tokens per draft step, but"
        f" {int(np.sum(beyond[known] > 0))} of {int(known.sum())} answers contain a different number"
    )
    return [CheckResult(Severity.WARNING, message, value=unexplained / made, threshold=MISMATCH_SHARE)]


def _delivered(rows: Table) -> Values:
    """Tokens of each answer according to its chunks, else to its usage, shape (answers,).

    A usage that differs from the chunks is reported by TokenCountMismatch.
    """
    from_chunks = numbers(rows, "output_tokens_client")
    return np.where(np.isnan(from_chunks), numbers(rows, "tokens"), from_chunks)


def _gaps(later: Values, emitted: Values, undrafted: Values) -> Values:
    """Tokens by which the two sides of the identity differ, shape (answers,).

    If the steps of an answer are not known, those without drafts are not known either, and only a list that emits
    more tokens than the answer has contradicts it.
    """
    return np.where(np.isnan(undrafted), np.maximum(emitted - later, 0.0), np.abs(emitted + undrafted - later))


NOTHING_ACCEPTED = 1.0
_LENGTH = "acceptance_length_emitted_pooled"


@check(
    name="AcceptanceWithoutBaseline",
    severities=(Severity.INFO,),
    threshold="any acceptance length above 1 in a run without a baseline (an external endpoint, or `baseline: Skip`)",
    rationale=(
        "The speed-up of decoding is the acceptance length divided by t_sd / t_ar, the ratio of the step times."
        " Published results for trees of 21 drafts have 2.92 tokens per step against a chain's 2.25, but 0.58 times"
        " the baseline's throughput at 64 streams against the chain's 1.31. A 4-bit copy of SmolLM2-135M that drafts"
        " for the model has 96 % of its drafts accepted, and is half as fast. The acceptance itself is correct, so the"
        " severity is Info."
    ),
    remedy=(
        "Start a second server that differs in the drafter alone and measure both: `specbench measure --endpoint URL`"
        " with drafting, `--baseline URL` without. Or let specbench launch both arms (`specbench run FILE`)."
    ),
    imported_remedy="Run the same benchmark with drafting off, and import its file with --baseline.",
)
def acceptance_without_baseline(evidence: RunEvidence) -> CheckResults:
    """Drafts were accepted, but nothing was measured without drafting."""
    if evidence.plan.has_baseline:
        return []
    figures = [each.figures.get(_LENGTH) for each in evidence.summaries]
    lengths = [figure.value for figure in figures if figure is not None and figure.value is not None]
    longest = max(lengths, default=NOTHING_ACCEPTED)
    if longest <= NOTHING_ACCEPTED:
        return []
    message = (
        f"up to {longest:.2f} tokens per step were measured, but no baseline: this is not a speed-up, because the"
        " run does not show how much longer a step with drafts takes than one without"
    )
    return [CheckResult(Severity.INFO, message, value=longest, threshold=NOTHING_ACCEPTED)]


GAIN = 0.15


@check(
    name="DrafterCarryover",
    severities=(Severity.WARNING,),
    threshold=f"more than {GAIN:.0%} above the first point of the same launch and workload",
    rationale=(
        "The same greedy answers have the same accepted drafts, whatever the load: two points of one launch differ"
        " only by rounding and by which requests are steady, a few hundredths. A memory multiplies the acceptance"
        " of a prompt that it has seen. Sampled answers differ and are not compared."
    ),
    remedy=(
        "Measure one load per run with `order: Interleaved`, so that each launch receives each prompt once. Or"
        " disable the memory (vLLM: suffix_decoding_max_cached_requests 0) if your traffic does not repeat itself."
    ),
)
def drafter_carryover(evidence: RunEvidence) -> CheckResults:
    """At temperature 0, a later point of a launch has a far higher acceptance length on the same prompts.

    Drafters with a memory of past text (suffix trees, n-gram pools) improve on text that they have seen. One launch
    serves several loads, and several repeats if they are not interleaved, and all of them send the same prompts. A
    greedy answer is the same each time, and so are its accepted drafts, unless the drafter learned something in
    between.
    """
    if evidence.plan.soaks:
        return []  # Its windows continue in the dataset, so their prompts differ.
    found = [result for workload in evidence.plan.workloads if workload.greedy
             for result in _of_workload(evidence, workload.name)]  # fmt: skip
    return [result for _, (result, *_) in groupby(found, key=lambda result: (result.arm, result.workload))]


def _of_workload(evidence: RunEvidence, workload: str) -> Iterator[CheckResult]:
    """Yield the first later point of each launch with a far higher acceptance length than the launch's first point."""
    measured = {summary.hash: summary for summary in evidence.summaries}
    groups = sorted(evidence.plan.groups, key=lambda group: group.arm)
    for group in groups:
        points = [
            measured[point.hash] for point in group.points if point.hash in measured and point.workload == workload
        ]
        lengths = [(point, length) for point in points if (length := _length(point)) is not None]
        for point, length in lengths[1:]:
            gain = length / lengths[0][1] - 1
            if gain > GAIN:
                message = (
                    f"the acceptance length of workload {workload!r} rose by {gain:.0%} from the first point of a"
                    f" launch ({lengths[0][1]:.2f}) to a later one ({length:.2f} at {point.level.label}, repeat"
                    f" {point.repeat + 1}) with the same prompts: the drafter remembers their answers"
                )
                yield CheckResult(
                    Severity.WARNING, message, value=gain, threshold=GAIN, arm=group.arm, workload=workload
                )
                break


def _length(point: PointSummary) -> float | None:
    """Tokens per step of a point whose drafter drafted; None for the baseline, or if it is not reported."""
    figure = point.figures.get(EMITTED_POOLED.name)
    return None if figure is None or figure.value is None or figure.value <= 1 else figure.value


@check(
    name="LossyVerification",
    severities=(Severity.INFO,),
    threshold="1 option of FLy (vLLM), acceptance thresholds (SGLang), relaxed or typical acceptance (TensorRT-LLM)",
    rationale=(
        "Part of such an arm's gain comes from other text, as with a smaller model. Its figures are correct, so the"
        " severity is Info, but headline and recommendation do not advise its use."
    ),
    remedy="Evaluate the quality of its answers on your task before you use it, or remove the option.",
)
def lossy_verification(evidence: RunEvidence) -> CheckResults:
    """An arm's options make the engine accept draft tokens that the target would not have generated."""
    return [
        CheckResult(
            Severity.INFO,
            f"the verification of arm {arm!r} is lossy ({'; '.join(options)}): its answers do not have the target's"
            " distribution, so it is not recommended",
            value=len(options),
            threshold=1,
            arm=arm,
        )
        for arm, options in lossy_arms(evidence.plan).items()
    ]
