"""Checks whether the answers are those that were asked for, and the same for both arms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.documents.finding import ANSWERS_WORSE_CHECK, Severity
from specbench_client.documents.record import AnswerFlaw
from specbench_client.metrics.pairing import iter_by_prompt, pass_numbers
from specbench_client.metrics.rows import (
    Table,
    distinct_texts,
    group_numbers,
    has_text,
    join_rows,
    text_counts,
)
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.numpy_columns import Mask, Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check, counted_rows
from specbench_client.trust.evidence import AnswersEvidence, CellEvidence, PointEvidence

PROMPTS = 10
SHARE = 0.5
LABEL_TOKENS = 8
NO_CONTROL = "none, because no request was answered in two repeats"


@check(
    name="IdenticalAnswers",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"more than {SHARE:.0%} of the steady answers, to more than {PROMPTS} prompts; Info if the text has at most"
        f" {LABEL_TOKENS} tokens"
    ),
    rationale=(
        "Different open questions hardly ever have the same answer. A label of a few words may be the right answer to"
        " most prompts."
    ),
    remedy="Read an answer (--keep-text), and look for a wrong endpoint, a broken chat template or an empty prompt.",
    imported_remedy=(
        "Read an answer in the benchmark's file, and look for a wrong endpoint, a broken chat template or an "
        "empty prompt."
    ),
)
def identical_answers(evidence: PointEvidence) -> CheckResults:
    """Most answers to different prompts are the same text.

    The cause may be a mock behind the wrong endpoint, a broken chat template or a model that was not loaded: such an
    endpoint is fast and its text is easy to draft. Labels are the legitimate exception: a classifier gives the same
    label to many prompts.
    """
    rows = evidence.steady
    known = rows.among(rows.known("output_sha256"))
    if not len(known):
        return []
    texts = group_numbers(known.column("output_sha256"))
    same = known.among(texts == np.bincount(texts).argmax())
    prompts, share = len(distinct_texts(same, "prompt_id")), len(same) / len(known)
    if prompts <= PROMPTS or share <= SHARE:
        return []
    tokens = float(np.nanmax(np.append(numbers(same, "tokens"), 0.0)))
    message = f"{share:.0%} of the answers, to {prompts} different prompts, are the same text of {tokens:.0f} tokens"
    return [
        CheckResult(Severity.WARNING if tokens > LABEL_TOKENS else Severity.INFO, message, value=share, threshold=SHARE)
    ]


WHOLE_TOKENS, MANY_CHUNKS = 16, 8
REPLAYED_SHARE = 0.01


@check(
    name="AnswersReplayed",
    severities=(Severity.INVALID,),
    threshold=(
        f"more than {REPLAYED_SHARE:.0%} of the answers have at least {WHOLE_TOKENS} tokens in a single chunk, and took"
        f" less than half as long as the same answer to the same prompt in at least {MANY_CHUNKS} chunks"
    ),
    rationale="An engine sends an answer again as it sent it before; a cache of answers has the whole text at once.",
    remedy="Switch the cache of answers off at the gateway, or measure the engine behind it.",
)
def answers_replayed(evidence: CellEvidence) -> CheckResults:
    """Answers came from a cache of whole answers instead of the engine."""
    rows = evidence.rows.among(evidence.rows.known("output_sha256"))
    answers = group_numbers(rows.column("prompt_id"), rows.column("output_sha256"))
    chunks, time_ns = numbers(rows, "chunks"), numbers(rows, "last_token_ns") - numbers(rows, "sent_ns")
    streamed_ns = np.zeros(len(rows))
    np.fmax.at(streamed_ns, answers, np.where(chunks >= MANY_CHUNKS, time_ns, 0.0))
    is_faster = time_ns < streamed_ns[answers] / 2
    replayed = int(((chunks == 1) & (numbers(rows, "tokens") >= WHOLE_TOKENS) & is_faster).sum())
    if replayed <= REPLAYED_SHARE * len(rows):
        return []
    message = f"{replayed} of {counted_rows(rows, 'answers')} came at once that were streamed before: a cache sent them"
    return [CheckResult(Severity.INVALID, message, value=replayed / len(rows), threshold=REPLAYED_SHARE)]


INFO_EXCESS = 0.02
WARNING_EXCESS = 0.2


@check(
    name="GreedyDivergence",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"Info if {INFO_EXCESS:.0%} more of the answers differ than in the control (the baseline against its other"
        f" repeats), Warning from {WARNING_EXCESS:.0%}. Not evaluated at other temperatures, where texts differ by"
        " design"
    ),
    rationale=(
        "About once in a thousand tokens, two tokens are so nearly tied that rounding decides. That changes a few"
        " percent of the answers, and up to a fifth of long ones. A larger excess over the control is not rounding."
    ),
    remedy="Check the task's accuracy with and without the drafter before using it, and report the engine's version.",
)
def greedy_divergence(evidence: CellEvidence) -> CheckResults:
    """At temperature 0, answers differ from the paired baseline's more often than the baseline differs from itself.

    Some of the differences are rounding: verifying k + 1 tokens at once adds numbers in a different order than one
    token at a time, and a near tie may then be resolved differently. The control is how often the baseline differs from
    itself across its own repeats.
    """
    found = evidence.divergence
    if found is None or not evidence.greedy:
        return []
    rate, control = found.rate, found.control
    if rate is None:
        return []
    excess = rate - (control or 0.0)
    if excess <= INFO_EXCESS:
        return []
    control_words = NO_CONTROL if control is None else f"{control:.0%}"
    message = (
        f"{rate:.0%} of the greedy answers differ from the baseline's; control (the baseline compared with itself"
        f" across repeats): {control_words}"
    )
    severity = Severity.WARNING if excess > WARNING_EXCESS else Severity.INFO
    return [CheckResult(severity, message, value=rate, threshold=(control or 0.0) + WARNING_EXCESS)]


REASONING_SHARE = 0.01


@check(
    name="ReasoningNotAsRequested",
    severities=(Severity.WARNING,),
    threshold=(
        f"switched off, and more than {REASONING_SHARE:.0%} of the answers have reasoning; or switched on, and no"
        " answer has any. Evaluated where chunks have token counts, and the switch is `enable_thinking` or `thinking`"
        " in `chat_template_kwargs`, or `reasoning_effort`"
    ),
    rationale=(
        "An engine ignores a variable that the model's chat template does not have, without an error. Reasoning is"
        " longer than the answer and is drafted with another acceptance, so the run would describe other traffic."
    ),
    remedy=(
        "Use the variable of the model's chat template, and start the engine with the model's reasoning parser: without"
        " it, reasoning is part of the text, and unmarked."
    ),
)
def reasoning_not_as_requested(evidence: PointEvidence) -> CheckResults:
    """Answers have reasoning although `extraBody` switches it off, or none although it is switched on.

    The engine applies the switch in its chat template, and ignores a variable that the template does not have. Only
    reasoning that the engine separates from the answer is seen.
    """
    requested = evidence.workload.requests_reasoning
    tokens = numbers(evidence.answered, "reasoning_tokens")
    known = tokens[np.isfinite(tokens)]
    if requested is None or not known.size:
        return []
    share = float((known > 0).mean())
    if share if requested else share <= REASONING_SHARE:
        return []
    message = (
        "extraBody requests reasoning, but the engine marks none in any answer"
        if requested
        else f"extraBody switches reasoning off, but {share:.0%} of the answers begin with it"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=0.0 if requested else REASONING_SHARE)]


SHORTEST = 32
LONGEST = 128
PROMPTS_MIN = 8
GREEDY_OTHERS = 0.5
SAMPLED_SAME = 0.8
CLEARLY_SAMPLED = 0.5
_READ = ["repeat", "prompt_id", "turn", "point", "conversation_id", "intended_ns", "tokens", "output_sha256", "steady"]


@check(
    name="TemperatureNotApplied",
    severities=(Severity.WARNING,),
    threshold=(
        f"at temperature 0, more than {GREEDY_OTHERS:.0%} of the answers of {SHORTEST} to {LONGEST} tokens differ"
        f" from the first repeat's; from temperature {CLEARLY_SAMPLED:g} on, more than {SAMPLED_SAME:.0%} of those of"
        f" {SHORTEST} tokens or more are the same. First turns of at least {PROMPTS_MIN} prompts"
    ),
    rationale=(
        "Rounding resolves a near tie differently about once in a thousand tokens: that changes one in ten greedy"
        " answers of up to 128 tokens, not one in two. A sampled answer of 32 tokens is repeated only if each token"
        " is almost certain, as in copied text; four in five are not. Between 0 and 0.5 too many are repeated to"
        " decide."
    ),
    remedy=(
        "Check how the engine interprets temperature and seed (its generation config, a proxy that drops fields);"
        " compare one answer by hand at temperature 0."
    ),
)
def temperature_not_applied(evidence: CellEvidence) -> CheckResults:
    """Greedy answers are not repeated in the next repeat, or sampled ones are.

    No field of an answer states its temperature, but its repeats show it: a greedy answer is repeated, a sampled one is
    not, because each repeat has its own seed. Answers of one arm to the same prompt are compared, each repeat with the
    first one.
    """
    temperature = evidence.workload.sampling.temperature
    if evidence.workload.greedy is None or 0 < temperature < CLEARLY_SAMPLED:
        return []
    compared = _compared(evidence.rows, longest=LONGEST if evidence.greedy else np.inf)
    if len(compared) < PROMPTS_MIN:
        return []
    same = float(compared.mean())
    wrong, least = (1 - same, GREEDY_OTHERS) if evidence.greedy else (same, SAMPLED_SAME)
    if wrong <= least:
        return []
    message = (
        f"{wrong:.0%} of the answers differ between repeats although temperature 0 was requested: they were sampled"
        if evidence.greedy
        else f"{wrong:.0%} of the answers are the same in another repeat although they were requested at temperature"
        f" {temperature:g} with another seed: the engine did not apply the temperature or the seed"
    )
    return [CheckResult(Severity.WARNING, message, value=wrong, threshold=least)]


def _compared(rows: Table, longest: float) -> Values:
    """Of each prompt, the share of its first turns of a suitable length that are the same as in the first repeat."""
    inside = steady_rows(rows)
    repeats = [numbers(piece, "repeat")[_fit(piece, longest)] for piece in inside.pieces()]
    earliest = min((float(each.min()) for each in repeats if each.size), default=0.0)
    each = [_same(inside.at(places), longest, earliest) for (places,) in iter_by_prompt((inside,))]
    return np.concatenate(each)


def _same(rows: Table, longest: float, earliest: float) -> Values:
    """Like `_compared`, for some prompts, given all of their steady rows; `earliest` is the first repeat."""
    read = rows.table(_READ)
    known = read.assign(**{"pass": pass_numbers(read)}).among(_fit(read, longest))
    is_first = numbers(known, "repeat") == earliest
    first, others = known.among(is_first), known.among(~is_first)
    at, partner = join_rows(others, first, ["prompt_id", "pass"])
    same = numbers(others, "output_sha256")[at] == numbers(first, "output_sha256")[partner]
    prompts = group_numbers(others.column("prompt_id")[at])
    return np.bincount(prompts, same) / np.bincount(prompts)


def _fit(rows: Table, longest: float) -> Mask:
    """Mask, shape (rows,), of first turns with a known answer of a suitable length."""
    tokens, answers = numbers(rows, "tokens"), numbers(rows, "output_sha256")
    fit: Mask = (numbers(rows, "turn") == 0) & (tokens >= SHORTEST) & (tokens <= longest) & ~np.isnan(answers)
    return fit


SIGNIFICANCE = 0.01


@check(
    name=ANSWERS_WORSE_CHECK,
    severities=(Severity.FAULT,),
    threshold=(
        "prompts with more flawed answers than the baseline's outnumber those with fewer, and an exact two-sided sign"
        " test over prompts (McNemar's test, where each prompt was answered once) rejects chance at"
        f" {SIGNIFICANCE:g} after Holm's correction over all arms, workloads and loads"
    ),
    rationale=(
        "Without damage, a flawed answer is as likely on either side, however many there are and however they vary"
        " between repeats: then the test rejects in less than one of a hundred runs. The control shows how much they"
        " vary; it does not decide, because repeats differ in their seeds, and paired answers do not."
    ),
    remedy=(
        "Do not use this drafter on this version of the engine. Read its answers (--keep-text), try fewer draft tokens"
        " and lower loads, and report it to the engine."
    ),
)
def answers_worse(evidence: AnswersEvidence) -> CheckResults:
    """Answers have [flaws](records.md#flaws) more often than the paired baseline's: the speed-up does not count.

    The prompt is the unit, as in OutputLengthsDiffer: a greedy answer is repeated with its flaw in every repeat.
    """
    found = evidence.judged
    if not (evidence.significant and found.worse_prompts > found.better_prompts):
        return []
    control = NO_CONTROL if found.control is None else f"{found.control:.1%}"
    message = (
        f"{found.flawed} of {found.pairs} answers are flawed ({_kinds(found.flaws)}), of the paired baseline's"
        f" {found.baseline_flawed}; {found.worse_prompts} of {found.prompts} prompts have more flawed answers than the"
        f" baseline's, and {found.better_prompts} fewer (p = {found.p_value:.2g}); control (the baseline's answers that"
        f" are flawed in only one of two repeats): {control}"
    )
    return [CheckResult(Severity.FAULT, message, value=found.p_value, threshold=SIGNIFICANCE)]


def _kinds(flaws: Mapping[str, int]) -> str:
    """Return numbers of flaws in words, the most frequent first."""
    return ", ".join(f"{count} {flaw}" for flaw, count in sorted(flaws.items(), key=lambda each: -each[1]))


NOT_JUDGED_SHARE = 0.05


@check(
    name="AnswersNotJudged",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"more than {NOT_JUDGED_SHARE:.0%} of the steady answers that were examined for flaws or NotJudged; Info if any"
    ),
    rationale=(
        "Pairs with such an answer are not compared by AnswersWorse. After ten answers that take too long, all others"
        " of the load are NotJudged, so an arm with long or broken answers could escape it."
    ),
    remedy=(
        "Simplify the schema: patterns with nested quantifiers, as (a+)*, and nested anyOf or oneOf take exponential"
        " time. Or request shorter answers."
    ),
)
def answers_not_judged(evidence: CellEvidence) -> CheckResults:
    """Answers, an arm's or the baseline's, are [NotJudged](records.md#flaws): validation took too long."""
    rows = steady_rows(evidence.rows)
    not_judged = int(has_text(rows, "flaw", AnswerFlaw.NOT_JUDGED).sum())
    if not not_judged:
        return []
    demanded = not_judged + _judged(rows)
    share = not_judged / demanded
    message = f"{not_judged:,} of {demanded:,} answers ({share:.1%}) were not judged against the schema"
    many = share > NOT_JUDGED_SHARE
    if many:
        message += ": AnswersWorse cannot see whether they are damaged"
    severity = Severity.WARNING if many else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=NOT_JUDGED_SHARE if many else 0.0)]


def _judged(rows: Table) -> int:
    return int((~np.isnan(numbers(rows, "flawed"))).sum())


FLAWED_SHARE = 0.1
MOSTLY_FLAWED_SHARE = 0.5


@check(
    name="AnswersFlawed",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"more than {FLAWED_SHARE:.0%} of the steady answers, without wrong ones, of the baseline, or of an arm without"
        f" one; Warning above {MOSTLY_FLAWED_SHARE:.0%}, or if more than {FLAWED_SHARE:.0%} are empty"
    ),
    rationale=(
        "What a drafter does to answers that are flawed anyway cannot be seen, and AnswersWorse finds less. Empty"
        " answers take hardly any time, so no figure is that of the others."
    ),
    remedy=(
        "Empty: send such a prompt by hand, and look for errors in the server's log. Unfinished: raise"
        " output.maxTokens. NoToolCall: start the engine with its tool parser. InvalidJson or SchemaMismatch: check"
        " the schema, and that the engine supports structured output. Loop: leave ignoreEos off, and use the model's"
        " chat template."
    ),
)
def answers_flawed(evidence: CellEvidence) -> CheckResults:
    """Many answers of the baseline, or of an arm without one, have [flaws](records.md#flaws)."""
    if evidence.baseline is not None:
        return []
    rows = steady_rows(evidence.rows)
    judged = _judged(rows)
    found = text_counts(rows, "flaw")
    left_out = (AnswerFlaw.WRONG_ANSWER, AnswerFlaw.NOT_JUDGED)
    flaws = {flaw: count for flaw, count in found.items() if flaw not in left_out}
    share, empty = sum(flaws.values()) / max(judged, 1), flaws.get(AnswerFlaw.EMPTY, 0) / max(judged, 1)
    if share <= FLAWED_SHARE:
        return []
    most = share > MOSTLY_FLAWED_SHARE
    message = f"{share:.0%} of {judged} answers are flawed ({_kinds(flaws)})"
    if most and evidence.arm.name == BASELINE_NAME:
        message += ": AnswersWorse cannot see whether a drafter damages answers"
    severity = Severity.WARNING if most or empty > FLAWED_SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=MOSTLY_FLAWED_SHARE if most else FLAWED_SHARE)]
