"""Checks whether tokens are counted and timed right, and alike for both arms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from specbench_client.dialects.token_conflicts import END_TOKENS, MARKERS
from specbench_client.documents.finding import Severity
from specbench_client.documents.record import TokenConflict
from specbench_client.metrics.latency import stream_end_share
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table, has_text, repeated_rows, text_counts
from specbench_client.metrics.tidy_frame import known_sum, numbers, steady_rows, sums_by_text
from specbench_client.numpy_columns import Mask, TextCodes, Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check, counted_rows, report_impossible
from specbench_client.trust.evidence import CellEvidence, PointEvidence

ANSWERS_SHARE = 0.01
MISCOUNTED_SHARE = 0.01
LENGTH = "length"


@check(
    name="TokenCountMismatch",
    severities=(Severity.INVALID, Severity.WARNING, Severity.INFO),
    threshold=(
        f"Invalid if chunks and usage disagree in more than {ANSWERS_SHARE:.0%} of the answers, or if the counter has"
        f" more than {MISCOUNTED_SHARE:.0%} fewer tokens than the usage. {END_TOKENS} token per answer is allowed, the"
        " end-of-sequence token, except for answers cut at their length. Differences within this allowance are a"
        f" Warning above {MISCOUNTED_SHARE:.0%} of the point's tokens; below that, Info for chunks against usage"
    ),
    rationale=(
        "Engines differ in whether they count the end-of-sequence token, which an answer cut at its length does not"
        " have. A count that is wrong by 1 % changes every time per token and every speed-up by as much; for short"
        " answers the error is larger."
    ),
    remedy=(
        "Check that the dialect (engine.dialect) is the engine's, and that no proxy or reasoning parser"
        " changes the stream. Then compare one answer by hand with the engine's tokenizer: if the engine counts"
        " wrongly, report its bug, and do not use the numbers."
    ),
)
def token_count_mismatch(evidence: PointEvidence) -> CheckResults:
    """The output tokens according to the client, the usage and the counters differ.

    One token per answer may differ by convention, but only if the answer was not cut: the token that ends it (or the
    stop that is trimmed off) is counted by one side and not by the other. An answer that was cut at its length has no
    such token, so its counts must be equal.

    Differences that are a convention in one answer are still summed over the point, with their sign. One token in a
    hundred is within the noise; one in three changes the time per token by a third, and it is not clear which side is
    right. One token too many on every answer of every arm biases every absolute figure, and cancels in a speed-up only
    as far as the answers of both sides are equally long.
    """
    return [*_client_against_usage(evidence), *_usage_against_counters(evidence)]


def _client_against_usage(evidence: PointEvidence) -> list[CheckResult]:
    rows = evidence.answered
    difference = numbers(rows, "output_tokens") - numbers(rows, "output_tokens_client")
    both = ~np.isnan(difference)
    known, allowed = difference[both], np.where(_not_cut(rows), END_TOKENS, 0)[both]
    if not known.size:
        return []
    share = float((np.abs(known) > allowed).mean())
    if share <= ANSWERS_SHARE:
        return _added_up(known, numbers(rows, "output_tokens")[both])
    message = (
        f"in {share:.0%} of {counted_rows(rows.among(both), 'answers')} the engine's usage and the streamed chunks"
        f" differ by more than the end token (mean {known.mean():+.1f}): no time per token is reliable"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=ANSWERS_SHARE)]


def _added_up(difference: Values, usage: Values) -> list[CheckResult]:
    """Report the sum over the point of differences that the convention explains one by one."""
    if float((difference != 0).mean()) <= ANSWERS_SHARE:
        return []
    share = abs(float(difference.sum())) / max(float(usage.sum()), 1.0)
    message = (
        f"over {difference.size} answers the engine's usage counts {difference.sum():+.0f} tokens compared with the"
        f" streamed chunks ({share:.1%}): one of the two counts the token that ends an answer"
    )
    severity = Severity.WARNING if share > MISCOUNTED_SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=MISCOUNTED_SHARE)]


def _usage_against_counters(evidence: PointEvidence) -> list[CheckResult]:
    rows, counters = evidence.answered, evidence.monotonic_counters
    usage = known_sum(numbers(rows, "output_tokens"))
    if counters is None or counters.output_tokens is None or not usage:
        return []
    lacking = usage - counters.output_tokens
    if lacking <= MISCOUNTED_SHARE * usage:
        return []
    severity, why = Severity.INVALID, "one of the two misses generated tokens, or the engine restarted"
    if lacking <= MISCOUNTED_SHARE * usage + END_TOKENS * int(_not_cut(rows).sum()):
        severity, why = Severity.WARNING, "one of the two counts the token that ends an answer"
    counted = f"adds up to {usage:.0f} tokens, but the engine's own counter to {counters.output_tokens}"
    return [
        CheckResult(
            severity,
            f"the answers' usage {counted}: {why}",
            value=lacking / usage,
            threshold=MISCOUNTED_SHARE,
        )
    ]


def _not_cut(rows: Table) -> Mask:
    return ~has_text(rows, "finish_reason", LENGTH)


CONFLICT_SHARE = 0.01


@check(
    name="TokenCountConflict",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"more than {CONFLICT_SHARE:.0%} of the answers; Info below, and if only hidden reasoning was left out. Two"
        f" usages may differ by the end token, and {MARKERS} tokens more than bytes of text are allowed"
    ),
    rationale=(
        "A count that the stream contradicts is not used, so nothing per token is computed from these answers: no time"
        " per token, no throughput, no acceptance length. The figures of the others may not be typical."
    ),
    remedy=(
        "Compare the usage of one answer by hand with its chunks. A gateway may count hidden reasoning, add or repeat"
        " chunks, or not pass on the limit; measure the engine behind it, or correct the gateway."
    ),
)
def token_count_conflict(evidence: PointEvidence) -> CheckResults:
    """The streams of answers contradict the token counts of their usage."""
    rows = evidence.answered
    counts = text_counts(rows, "token_conflict")
    for conflict in (TokenConflict.UNCOUNTED_START, TokenConflict.LARGE_START):
        del counts[conflict]  # It contradicts nothing, and the figures have the reason.
    if not counts:
        return []
    share, missing = counts.total() / len(rows), int(np.isnan(numbers(rows, "output_tokens")).sum())
    kinds = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    message = f"the streams of {counts.total()} of {counted_rows(rows, 'answers')} contradict their usage ({kinds})"
    message += f": {missing} have no token count" if missing else ": their counts are those of the text that was sent"
    is_doubt = share > CONFLICT_SHARE and (missing or counts[TokenConflict.ABOVE_MAX_TOKENS])
    return [
        CheckResult(Severity.WARNING if is_doubt else Severity.INFO, message, value=share, threshold=CONFLICT_SHARE)
    ]


BACKWARDS_NS = 1e6
"""Tolerance in ns: sending is timestamped in our process and arrival in the kernel, so the two may differ slightly."""
LATEST_NS, MOST_TOKENS = 2.0**53, 2.0**24
"""Maximum time in ns (104 days) and maximum token count (16 million): beyond them, tidy rows are no longer exact."""
_IN_ORDER = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "ended_ns")
_COUNTS = ("input_tokens", "output_tokens", "output_tokens_client", "cached_tokens")


@check(
    name="ImpossibleRecords",
    severities=(Severity.INVALID,),
    threshold=(
        "any record with the same conversation and turn as another one; with another repeat than its point's; with a"
        f" time more than {BACKWARDS_NS / 1e6:g} ms before one that must precede it (intended, sent, first byte,"
        " first token, last token), before the start of its point or more than 104 days after it; answered without"
        " having been sent, or without any duration; with a token count below 0 or above 16 million; or with more"
        " cached than prompt tokens"
    ),
    rationale=(
        "Our client writes no such records: each one is a modified file, a clock that was set, or a bug. A"
        " duplicate counts twice in every sum, and times in the wrong order make an arm look faster."
    ),
    remedy=(
        "Use the records as the client wrote them (compare the SHA-256 in the manifest). If they are unmodified,"
        " report the bug and measure again."
    ),
    imported_remedy=(
        "The file contradicts itself: run the benchmark again, and report its bug if its next file does too."
    ),
)
def impossible_records(evidence: PointEvidence) -> CheckResults:
    """Records are duplicated, have times out of order or out of range, or have impossible counts.

    Our own client writes none of them. They come from files that were assembled by hand or by another program, from a
    clock that was set during the measurement, or from a bug of ours. Sums over such records look like any others.
    """
    consequence = "no request produces such records, so no figure of this point is usable"
    return report_impossible(_kinds(evidence), counted_rows(evidence.rows, "records"), consequence)


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield each impossible condition, in words, with a mask, shape (rows,). Missing values meet none of them."""
    rows = evidence.rows
    measured = ~rows.array("filler")
    yield "are duplicates", measured & repeated_rows(rows.column("conversation_id"), rows.column("turn"))
    yield f"belong to a repeat other than {evidence.point.repeat}", numbers(rows, "repeat") != evidence.point.repeat
    times = [numbers(rows, name) for name in _IN_ORDER]
    backwards = [earlier - later > BACKWARDS_NS for earlier, later in combinations(times, 2)]
    yield "have times in the wrong order", np.any(backwards, axis=0)
    yield "begin before their point", times[0] < -BACKWARDS_NS
    yield "have a time later than 104 days", np.any([each > LATEST_NS for each in times], axis=0)
    yield "have no duration", rows.array("ok") & (numbers(rows, "last_token_ns") <= times[0])
    unsent = np.isnan(numbers(rows, "sent_ns"))
    if not (evidence.plan.engine.is_imported and unsent.all()):  # some benchmarks store no send time of any request
        yield "were answered but never sent", rows.array("ok") & unsent
    counts = [numbers(rows, name) for name in _COUNTS]
    yield "have a count below 0", np.any([each < 0 for each in counts], axis=0)
    yield "have a count above 16 million", np.any([each > MOST_TOKENS for each in counts], axis=0)
    yield "have more cached than prompt tokens", numbers(rows, "cached_tokens") > numbers(rows, "input_tokens")


OFF_BY = 1
PREMATURE_SHARE = 0.01


@check(
    name="PrematureLengthStop",
    severities=(Severity.INVALID, Severity.INFO),
    threshold=(
        f"Invalid above {PREMATURE_SHARE:.0%} of the answers, Info below; {OFF_BY} token less than allowed is a"
        " convention (the end-of-sequence token)"
    ),
    rationale=(
        "Only maxTokens should end an answer for its length. Another limit on every arm compares different, shorter"
        " answers; one answer in a hundred is a long prompt that hardly changes a figure."
    ),
    remedy=(
        "Raise the engine's context length (--max-model-len, or --ctx-size, which is divided by its slots), or"
        " lower output.maxTokens."
    ),
)
def premature_length_stop(evidence: PointEvidence) -> CheckResults:
    """Answers ended with finish_reason length before they reached output.maxTokens.

    The engine reports finish_reason `length` although maxTokens was not reached: its context was full, or it was
    started with a smaller one. If both arms are cut equally, no comparison shows it, but the measured workload is a
    different one, with shorter answers.
    """
    rows, tokens = evidence.answered, numbers(evidence.answered, "tokens")
    own = numbers(rows, "max_tokens")
    allowed = np.where(np.isnan(own), evidence.workload.output.max_tokens, own)
    cut = (
        has_text(rows, "finish_reason", LENGTH)
        & ~has_text(rows, "token_conflict", TokenConflict.UNSENT_TOKENS)  # Hidden reasoning counts towards the limit.
        & (tokens < allowed - OFF_BY)
    )
    if not cut.any():
        return []
    share = float(cut.mean())
    message = (
        f"{int(cut.sum())} of {counted_rows(rows, 'answers')} ended with finish_reason {LENGTH!r} after a median of"
        f" {np.median(tokens[cut]):.0f} tokens, although {np.median(allowed[cut]):.0f} were allowed: the engine has"
        " its own limit"
    )
    return [
        CheckResult(
            Severity.INVALID if share > PREMATURE_SHARE else Severity.INFO,
            message,
            value=share,
            threshold=PREMATURE_SHARE,
        )
    ]


MULTI_STEP_SHARE = 0.01


@check(
    name="MultiStepChunks",
    severities=(Severity.WARNING,),
    threshold=f"more than {MULTI_STEP_SHARE:.0%} of the chunks",
    rationale=(
        "A step emits at most its k accepted drafts and one more token. A detokenizer that waits for the rest of a"
        " character merges chunks now and then; 1 % allows for that."
    ),
    remedy="Set the engine's stream interval to 1, and let no proxy buffer between client and engine.",
)
def multi_step_chunks(evidence: PointEvidence) -> CheckResults:
    """Streamed chunks contain more than k + 1 tokens (more than one for the baseline)."""
    if evidence.drafts is None:
        return []
    most = evidence.drafts + 1
    tokens, counts = evidence.answered.lists("tokens_of_chunks").entries.T
    chunks = float(counts.sum(dtype=np.float64))
    merged = float(counts[tokens > most].sum(dtype=np.float64))
    share = merged / chunks if chunks else _share_of_answers(evidence, most)
    if share <= MULTI_STEP_SHARE:
        return []
    what = "chunks contain" if chunks else "answers arrived in chunks that contain, on average,"
    message = (
        f"{share:.0%} of the {what} more than the {most} tokens that one step can emit: chunks are merged on the"
        " way, so gaps between chunks are meaningless and first and last token times may be late, or tokens are"
        " counted that were not sent, such as hidden reasoning"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=MULTI_STEP_SHARE)]


def _share_of_answers(evidence: PointEvidence, most: int) -> float:
    """Share of answers whose mean chunk is larger than a step; used if chunks do not report their tokens."""
    rows = evidence.answered
    chunks = numbers(rows, "chunks")
    mean = (numbers(rows, "tokens") - END_TOKENS) / np.where(chunks > 0, chunks, np.nan)
    known = mean[~np.isnan(mean)]
    return float((known > most).mean()) if known.size else 0.0


LATE_SHARE = 0.05


@check(
    name="LateStreamEnd",
    severities=(Severity.INVALID, Severity.WARNING),
    threshold=(
        f"Warning above {LATE_SHARE:.0%} of the streams' time; Invalid if the arm or the baseline is above it and the"
        f" two differ by more than {100 * LATE_SHARE:.0f} percentage points. One gap between chunks is left out, the"
        " step of an end-of-sequence token"
    ),
    rationale=(
        "Finish reason, usage and the end of the stream normally follow the last text within a step. The speed-up runs"
        " to the last text. Users who wait for the end of an answer wait longer, and so do the streams of a closed"
        " loop, which send their next request later; if the sides differ, they also have different loads."
    ),
    remedy=(
        "Compare stream_end_ms of the arms. Look for a proxy or a guardrail that delays the end of a stream, or for an"
        " engine that is busy before it ends an answer."
    ),
)
def late_stream_end(evidence: CellEvidence) -> CheckResults:
    """Streams wait for the end of their answers long after the last token.

    A speed-up divides tokens by the time to the last text. Whatever an engine or a proxy holds back afterwards (finish
    reason, usage and the end of the stream) delays the users' next request and lowers the engine's throughput, but
    changes no latency.
    """
    mine = stream_end_share(evidence.rows)
    theirs = None if evidence.baseline is None else stream_end_share(evidence.baseline)
    if mine is None:
        return []
    differs = theirs is not None and max(mine, theirs) > LATE_SHARE and abs(mine - theirs) > LATE_SHARE
    if mine <= LATE_SHARE and not differs:
        return []
    baseline_share = "" if theirs is None else f" ({theirs:.1%} on the baseline)"
    message = (
        f"{mine:.1%} of the streams' time{baseline_share} is between an answer's last token and the end of its"
        " stream: no latency and no speed-up includes it"
    )
    return [CheckResult(Severity.INVALID if differs else Severity.WARNING, message, value=mine, threshold=LATE_SHARE)]


PROMPT_SHARE = 0.01


@check(
    name="PromptTokensDiffer",
    severities=(Severity.INVALID,),
    threshold=(
        f"more than {PROMPT_SHARE:.0%} of the pairs whose prompt tokens both engines report; of later turns, only those"
        " whose earlier replies were the same"
    ),
    rationale=(
        "One model with one template turns the same text into the same tokens, so the expected share is 0. A"
        " template that prints the date may add a token at midnight, in a few requests. A different prompt is a"
        " different task, so no comparison is valid."
    ),
    remedy=(
        "Compare the arms' chat templates (`provenance.json`), start tokens and context lengths; or let the client"
        " apply the template (chatTemplate.appliedBy: Client), so that both arms read the same token ids."
    ),
    imported_remedy=(
        "Compare the arms' chat templates, start tokens and context lengths, and give the benchmark the same "
        "prompts and the same seed for both."
    ),
)
def prompt_tokens_differ(evidence: CellEvidence) -> CheckResults:
    """For the same prompts, the arm's engine read a different number of prompt tokens than the baseline's.

    Causes are a different chat template, a duplicated start token, a system prompt that a gateway adds, or a prompt
    that was cut. Each changes what the model reads, and with it the answer, its length and its acceptance.
    """
    if evidence.pairs is None:
        return []
    known, found = 0, list[Values]()
    for piece in evidence.pairs.pieces():
        more = numbers(piece.arm, "input_tokens") - numbers(piece.baseline, "input_tokens")
        known += int((~np.isnan(more)).sum())
        found.append(more[(more != 0) & ~np.isnan(more)])
    differences = np.concatenate(found)
    share = differences.size / known if known else 0.0
    if share <= PROMPT_SHARE:
        return []
    middle = float(np.median(differences))
    message = (
        f"{share:.0%} of {known} paired requests have a different number of prompt tokens than the"
        f" baseline's (median difference {middle:+.0f}): the two arms read different prompts"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=PROMPT_SHARE)]


SAME_TEXT_SHARE = 0.01


@check(
    name="SameTextDifferentTokenCount",
    severities=(Severity.INVALID,),
    threshold=f"token counts that differ by more than {SAME_TEXT_SHARE:.0%} over the pairs with the same text",
    rationale=(
        "The same text from the same model has the same tokens; any token that an arm counts beyond them increases"
        " its speed-up and its acceptance length."
    ),
    remedy=(
        "Compare one answer by hand with the engine's tokenizer, report the engine's bug, and do not use the numbers."
    ),
)
def same_text_different_token_count(evidence: CellEvidence) -> CheckResults:
    """Answers with exactly the paired baseline's text are counted with more or fewer tokens.

    A difference of one token per answer between chunks and usage may be a convention: engines differ in whether the
    end-of-sequence token counts. Between two arms of one engine it is not: the same answer has the same tokens, and
    each extra token makes the arm look faster by its share of the answer. On short answers that can be a tenth of the
    claim.
    """
    if evidence.pairs is None:
        return []
    each = [_counts(piece) for piece in evidence.pairs.pieces()]
    answers, ours, base = (float(total) for total in np.sum(each, axis=0))
    share = ours / base - 1 if base else 0.0
    if abs(share) <= SAME_TEXT_SHARE:
        return []
    message = (
        f"{answers:.0f} answers have exactly the text of the paired baseline's, but {ours:.0f} tokens instead"
        f" of {base:.0f} ({share:+.1%}): the speed-up is wrong by as much"
    )
    return [CheckResult(Severity.INVALID, message, value=abs(share), threshold=SAME_TEXT_SHARE)]


def _counts(pairs: Pairs) -> tuple[float, float, float]:
    """Number of pairs with the same text, and the tokens of both sides."""
    texts, tokens = (
        [numbers(rows, name) for rows in (pairs.arm, pairs.baseline)] for name in ("output_sha256", "tokens")
    )
    known = (texts[0] == texts[1]) & ~np.isnan(tokens).any(axis=0)  # A missing text equals no other.
    return float(known.sum()), float(tokens[0][known].sum()), float(tokens[1][known].sum())


BYTES_SHARE = 0.1
ERRORS = 3.0
PROMPTS_MIN = 5


@check(
    name="BytesPerTokenDiffer",
    severities=(Severity.WARNING,),
    threshold=(
        f"bytes per token over the same prompts that differ by more than {BYTES_SHARE:.0%} and by more than {ERRORS:g}"
        f" standard errors, over at least {PROMPTS_MIN} prompts; only where texts were stored"
    ),
    rationale=(
        "Sampled answers to the same prompts have the same language and style, so bytes per token agree within a"
        " few hundredths. A count that is a tenth too high makes the arm look a tenth faster."
    ),
    remedy=(
        "Compare one answer by hand with the engine's tokenizer, and measure at temperature 0, where texts are equal."
    ),
)
def bytes_per_token_differ(evidence: CellEvidence) -> CheckResults:
    """At temperatures above 0, the arm's tokens contain a different amount of text than the baseline's.

    At temperature 0 the token counts of equal texts are compared (SameTextDifferentTokenCount). At other temperatures
    the texts differ, but not the amount of text per token of one model over the same prompts. Needs the answers' texts
    (`--keep-text`).
    """
    if evidence.baseline is None or evidence.greedy:
        return []
    mine, theirs = _by_prompt(evidence.rows), _by_prompt(evidence.baseline)
    shared = [prompt for prompt in mine if prompt in theirs]
    if len(shared) < PROMPTS_MIN:
        return []
    sums = np.array([[side[prompt] for prompt in shared] for side in (mine, theirs)])
    ours, base = (float(total) for total in np.divide(*sums.sum(axis=1).T))
    shifts = np.subtract(*np.log(sums[:, :, 0] / sums[:, :, 1]))
    error = float(shifts.std(ddof=1) / np.sqrt(shifts.size))
    if abs(ours / base - 1) <= BYTES_SHARE or abs(float(shifts.mean())) <= ERRORS * error:
        return []
    message = (
        f"over the same prompts, a token contains {ours:.2f} bytes of text on this arm and {base:.2f} on the"
        f" baseline ({ours / base - 1:+.0%}): one of the two token counts is wrong"
    )
    return [CheckResult(Severity.WARNING, message, value=abs(ours / base - 1), threshold=BYTES_SHARE)]


def _by_prompt(rows: Table) -> dict[str, Values]:
    """Bytes of text and tokens of each prompt, shape (2,), summed over the steady answers that have both."""
    sums = sums_by_text(map(_size_and_tokens, steady_rows(rows).pieces()))
    return {prompt: each for prompt, each in sums.items() if each[0] > 0}


def _size_and_tokens(rows: Table) -> tuple[TextCodes, list[Values]]:
    tokens = numbers(rows, "tokens")
    return rows.codes("prompt_id"), [numbers(rows, "text_bytes"), np.where(tokens > 0, tokens, np.nan)]
