"""Checks whether the prompts are enough, varied and real, and not answered from a cache."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from specbench_api.spec.dataset import Source
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.workload import Workload
from specbench_client.documents.finding import Severity
from specbench_client.documents.minimum_samples import MIN_PROMPTS, few_prompts
from specbench_client.documents.prompt_coverage import PromptCoverage, RequestLogStats, WordOrderTest
from specbench_client.metrics.rows import Table, repeated_rows
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Mask, Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check, name_some
from specbench_client.trust.evidence import CellEvidence, PointEvidence, RunEvidence

DUPLICATE_SHARE = 0.2
TOKENS_MIN = 16


@check(
    name="DuplicatePrompts",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {DUPLICATE_SHARE:.0%} of the prompts with an answer of at least {TOKENS_MIN} tokens repeat another"
        " one"
    ),
    rationale=(
        "Two different questions hardly get the same sixteen tokens. Intervals treat each prompt as an independent"
        " sample: if a fifth of them repeat others, intervals are a tenth too narrow, and a drafter with a memory,"
        " or a prompt cache, has seen them before. `specbench dataset inspect` shows how similar different prompts"
        " are."
    ),
    remedy=(
        "If prompts repeat, remove duplicates (`specbench dataset select` picks the most diverse prompts), or sample"
        " more of your traffic. If they do not, find out why the model gives different ones the same answer."
    ),
)
def duplicate_prompts(evidence: PointEvidence) -> CheckResults:
    """At temperature 0, prompts of the same length got the same long answer.

    Records do not contain prompts, but their lengths and answers: at temperature 0, two prompts of the same length with
    the same long answer have the same, or practically the same, text.
    """
    if not evidence.workload.greedy:
        return []
    rows = evidence.steady
    long = rows.among((numbers(rows, "turn") == 0) & (numbers(rows, "tokens") >= TOKENS_MIN))
    answered = long.among(long.known("output_sha256"))
    known = answered.among(~repeated_rows(answered.column("prompt_id")))
    if not len(known):
        return []
    share = float(repeated_rows(known.column("input_tokens"), known.column("output_sha256")).mean())
    if share <= DUPLICATE_SHARE:
        return []
    message = (
        f"{share:.0%} of {len(known)} prompts have the same length and the same answer as another prompt, as repeated"
        " prompts do: the figures may rest on fewer prompts than they seem to"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=DUPLICATE_SHARE)]


INFO_BELOW = 20
INTERVAL_FROM = MIN_PROMPTS
"""Minimum number of prompts of a category for its figures to have intervals."""
NAMED = 8
"""Maximum number of categories listed in one finding."""


@check(
    name="TooFewPrompts",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"Info below {INFO_BELOW} different prompts of a workload, Warning below {MIN_PROMPTS}; Info below"
        f" {INTERVAL_FROM} of a category, whose figures then have no intervals"
    ),
    rationale=(
        "At 20 prompts the 95 % interval of an acceptance length is about ± 0.1 on homogeneous data and much wider on"
        " heterogeneous data; below 5, resampling has at most 35 different samples, and no interval is valid. A small"
        " category affects only its own row: figures of the workload use all prompts."
    ),
    remedy=(
        "Send more prompts from your own traffic; 80 per category is a good number. Raise the setting that the message"
        " names, if it names one; else add prompts to the dataset."
    ),
)
def too_few_prompts(evidence: RunEvidence) -> CheckResults:
    """The steady state of a cell has few different prompts of a workload, or of one of its categories."""
    return [*_of_workloads(evidence), *_of_categories(evidence)]


def _of_workloads(evidence: RunEvidence) -> Iterator[CheckResult]:
    for workload, prompts in evidence.prompts.items():
        if prompts >= INFO_BELOW:
            continue
        severity, threshold = (Severity.WARNING, MIN_PROMPTS) if prompts < MIN_PROMPTS else (Severity.INFO, INFO_BELOW)
        yield CheckResult(
            severity,
            few_prompts(workload, prompts) + _what_limits(evidence, workload, threshold),
            value=prompts,
            threshold=threshold,
            workload=workload,
        )


def _of_categories(evidence: RunEvidence) -> Iterator[CheckResult]:
    """Yield one Info finding per workload that has enough prompts itself, but too few in some categories."""
    for workload, counts in evidence.category_prompts.items():
        few = {name: count for name, count in counts.items() if count < INTERVAL_FROM}
        if not few or evidence.prompts[workload] < MIN_PROMPTS:
            continue
        named = name_some([f"{name} ({count})" for name, count in few.items()], NAMED)
        message = (
            f"categories of workload {workload!r} have fewer than {INTERVAL_FROM} different prompts: {named}."
            " Their figures are valid only for those prompts and have no interval"
        )
        yield CheckResult(
            Severity.INFO,
            message + _what_limits(evidence, workload, INTERVAL_FROM, few),
            value=min(few.values()),
            threshold=INTERVAL_FROM,
            workload=workload,
        )


def _what_limits(evidence: RunEvidence, workload: str, enough: int, categories: Collection[str] = ()) -> str:
    """Return which setting sends fewer prompts than the dataset has, and how many requests failed.

    Empty if the dataset does not have `enough` prompts: in total, or in any of the categories if some are given.
    """
    coverage, load = evidence.coverage.get(workload), evidence.plan.load.to_dict()
    available = [one for one in coverage.by_category if one.category in categories] if coverage else []
    if coverage is None or all(one.used < enough for one in (available if categories else [coverage])):
        return ""
    counts = [each.counts for each in evidence.summaries if each.workload == workload]
    failed = sum(each.failed_requests for each in counts)
    limits = [
        f"; the dataset has {coverage.used}, but load.{name} sends fewer"
        for name in ("requests", "requestsPerStream", "durationSeconds")
        if name in load and min(each.prompts for each in counts) < coverage.used
    ]
    return "".join(limits) + (f"; {failed} requests failed" if failed else "")


MOVED_MIN = 0.008


@check(
    name="RandomPrompts",
    severities=(Severity.WARNING,),
    threshold=(
        "any workload or member of a mix with source mooncake or sessions. Also a file, or one of its"
        " categories: of the distinct pairs of neighbouring words, a share occurs more than once, and shuffling the"
        f" words changes this share by less than {100 * MOVED_MIN:.1f} percentage points. Needs 4,000 pairs (of words,"
        " token ids or Chinese characters), without text that prompts share word by word"
    ),
    rationale=(
        "A model answers random text with something trivial, or repeats one of its words: SPEED-Bench's authors"
        " found throughput with a drafter overstated by 23 % on average, and rankings of drafters reversed. In every"
        " language some pairs of words recur, and shuffling separates them. It changes the share by 9 to 12 points in"
        " Spec-Bench, GSM8K and HumanEval, by 5 points and more in handbooks in Chinese, Japanese, Korean, Turkish,"
        " Finnish and Russian, and by at least 1.4 in each of 131 datasets in more than 20 languages; in random words,"
        " token ids and letters by at most 0.4."
    ),
    remedy=(
        "Measure prompts from your own traffic or a published dataset; if you need given lengths, prepare those"
        " prompts to length."
    ),
)
def random_prompts(evidence: RunEvidence) -> CheckResults:
    """The prompts of a workload are random words or tokens."""
    found = [_of_workload(workload, evidence.coverage.get(workload.name)) for workload in evidence.plan.workloads]
    return [result for result in found if result is not None]


def _of_workload(workload: Workload, coverage: PromptCoverage | None) -> CheckResult | None:
    if share := workload.dataset.share_of(Source.MOONCAKE, Source.SESSIONS):
        message = (
            f"{share:.0%} of the prompts of workload {workload.name!r} are random words: its figures represent no"
            " real traffic"
        )
        return CheckResult(Severity.WARNING, message, value=share, threshold=0.0, workload=workload.name)
    return _from_word_order(workload.name, coverage) if coverage is not None else None


def _from_word_order(workload: str, coverage: PromptCoverage) -> CheckResult | None:
    """Check the words of the prompts themselves: of all prompts together, else of single categories."""
    if _is_random(coverage.order):
        return _random_prompts_result(workload, "its prompts", coverage.order)
    spoilt = [one for one in coverage.by_category if _is_random(one.order)]
    if not spoilt:
        return None
    names = ", ".join(one.category or "no category" for one in spoilt)
    return _random_prompts_result(workload, f"the prompts of {names}", spoilt[0].order)


def _is_random(order: WordOrderTest | None) -> bool:
    return order is not None and order.moved < MOVED_MIN


def _random_prompts_result(workload: str, whose: str, order: WordOrderTest | None) -> CheckResult:
    assert order is not None
    message = (
        f"the words of {whose} are in random order: {order.repeated:.1%} of the pairs of"
        f" neighbouring words occur again, and {order.shuffled:.1%} after shuffling, so the figures represent no real"
        " traffic"
    )
    return CheckResult(Severity.WARNING, message, value=order.moved, threshold=MOVED_MIN, workload=workload)


WARNING_FROM = 0.05
_SHOWN = 5


@check(
    name="DatasetRowsMissing",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"Info if any row is missing, Warning from {WARNING_FROM:.0%} of the rows, or if a category has none left"
    ),
    rationale=(
        "The missing rows are not a random sample: licenses and tools remove whole categories, between which"
        " drafters differ by a factor of two. Published figures are those of the whole dataset."
    ),
    remedy="Fetch the missing texts (`specbench dataset prepare`), or select only the categories that are complete.",
)
def dataset_rows_missing(evidence: RunEvidence) -> CheckResults:
    """Rows that a workload requests were left out because their text is missing."""
    return [
        _dataset_rows_missing_result(workload, coverage)
        for workload, coverage in evidence.coverage.items()
        if coverage.missing and coverage.requested
    ]


def _dataset_rows_missing_result(workload: str, coverage: PromptCoverage) -> CheckResult:
    share = coverage.missing / coverage.requested
    missing_categories = [
        one.category for one in coverage.by_category if one.unusable and sum(one.unusable.values()) == one.requested
    ]
    reasons = "; ".join(f"{count} x {reason}" for reason, count in coverage.unusable.items())
    named = name_some([str(name) for name in missing_categories], _SHOWN)
    nothing_left = f"; no rows are left of {named}" if missing_categories else ""
    message = (
        f"{coverage.missing} of {coverage.requested} rows ({share:.0%}) requested by workload {workload!r} were left"
        f" out (allowMissing): {reasons}{nothing_left}"
    )
    severity = Severity.WARNING if share >= WARNING_FROM or missing_categories else Severity.INFO
    return CheckResult(severity, message, value=share, threshold=WARNING_FROM, workload=workload)


CACHED_SHARE = 0.01
WHOLE_SHARE = 0.9
WHOLE_REST = 16
"""A prompt was sent before if so much of it is in the cache: all but the tokens of a block of vLLM's cache."""


@check(
    name="PromptCacheHit",
    severities=(Severity.INVALID,),
    threshold=f"more than {CACHED_SHARE:.0%} of the prompt tokens of first turns; not with promptCache: AsServed",
    rationale=(
        "The launch disables the cache, so any hit means that the setting had no effect; 1 % allows for a start"
        " token that some engines cache. Later turns of a conversation share their own history and are not checked."
    ),
    remedy=("Disable prefix caching on every arm, or set promptCache: AsServed to measure what users get with it."),
)
def prompt_cache_hit(evidence: PointEvidence) -> CheckResults:
    """Prompt tokens of first turns came from a prompt cache."""
    if evidence.plan.prompt_cache is PromptCache.AS_SERVED:
        return []
    share = _share(evidence)
    if share is None or share <= CACHED_SHARE:
        return []
    message = (
        f"{share:.1%} of the prompt tokens of first turns came from the engine's prompt cache: TTFT and E2E latency"
        " are too short"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=CACHED_SHARE)]


def _share(evidence: PointEvidence) -> float | None:
    """The share according to the records of first turns, else to the counters if there are only first turns."""
    rows = evidence.answered
    first = rows.among(numbers(rows, "turn") == 0)
    cached, prompt = numbers(first, "cached_tokens"), numbers(first, "input_tokens")
    known = ~np.isnan(cached) & ~np.isnan(prompt)
    if known.any():
        return float(cached[known].sum() / max(prompt[known].sum(), 1.0))
    counters = evidence.counters
    if len(first) < len(rows) or counters is None or counters.cached_tokens is None or not counters.prompt_tokens:
        return None
    return counters.cached_tokens / counters.prompt_tokens


@check(
    name="PromptsSentAgain",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {CACHED_SHARE:.0%} of the prompt tokens of first turns, in prompts that the cell repeats, or of"
        f" which at least {WHOLE_SHARE:.0%} after the system prompt and all but {WHOLE_REST} tokens are in the cache;"
        " after an interruption, the latter suffices"
    ),
    rationale=(
        "Users seldom send the same whole prompt twice. A prompt that is sent again skips its whole prefill, so TTFT is"
        " shorter than in production, on every arm. Beginnings that users share are not counted: the system prompt, and"
        f" any other that leaves more than {WHOLE_REST} tokens to compute. Of prompts that differ only in fewer tokens,"
        " hits look the same: if your traffic is like that, TTFT is right."
    ),
    remedy=(
        "Give more prompts, so that none is sent twice; give the beginning that they share as systemPrompt; restart"
        " running servers, or empty their caches, before you send the same prompts again; or set promptCache:"
        " Disabled, and switch off the caches of servers that a request cannot switch off (vLLM, SGLang). After an"
        " interruption, if prompts are left, repeat the command with `--retry-invalid` (on a cluster, create the"
        " SpecBenchRun again with results.adopt and retries)."
    ),
)
def prompts_sent_again(evidence: CellEvidence | PointEvidence) -> CheckResults:
    """With promptCache: AsServed, whole prompts, or all but a few tokens of each, were in the cache.

    The cell's rows show which ones it repeats. Of another load, an earlier or interrupted run, or a cache that was not
    emptied, only the hits show it: what follows the system prompt is in the cache too. A prompt that shares a long
    beginning with another one looks the same. A point that was interrupted and measured
    again is checked by itself, and left out of its comparison if it is one of few (`RoundsLeftOut`); so is each point
    of a run with a stop rule, which ends with it.
    """
    plan, rows = evidence.plan, evidence.rows
    cached, prompt = numbers(rows, "cached_tokens"), numbers(rows, "input_tokens")
    # A filler's text is another one in each repeat, under the same id.
    known = (numbers(rows, "turn") == 0) & ~rows.array("filler") & ~np.isnan(cached) & ~np.isnan(prompt)
    if plan.prompt_cache is PromptCache.DISABLED or not known.any():
        return []
    interrupted = isinstance(evidence, PointEvidence) and evidence.health.interrupted_before is True
    if isinstance(evidence, PointEvidence) and not interrupted and plan.stop is None:
        return []
    since_emptied = numbers(rows, "repeat") if plan.empties_cache or plan.launches_repeats else np.zeros(len(rows))
    repeated = known & _seen_before(since_emptied, numbers(rows, "repeat"), numbers(rows, "intended_ns"), rows)
    shared = _shared_tokens(evidence, cached[known])
    whole = known & (cached > shared) & (prompt - cached <= WHOLE_REST)
    whole &= interrupted | (cached - shared >= WHOLE_SHARE * (prompt - shared))
    share = float(cached[repeated | whole].sum() / max(prompt[known].sum(), 1.0))
    if share <= CACHED_SHARE:
        return []
    reasons = (
        ("are repeats", repeated),
        (
            "were sent before the point was interrupted"
            if interrupted
            else "begin like an earlier prompt up to their last tokens, or are the same",
            whole & ~repeated,
        ),
    )
    why = ", ".join(f"{rows.sum()} of {known.sum()} prompts {words}" for words, rows in reasons if rows.any())
    message = (
        f"{share:.0%} of the prompt tokens of first turns were read from the prompt cache by such prompts: {why}. TTFT"
        " is too short"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=CACHED_SHARE)]


def _shared_tokens(evidence: CellEvidence | PointEvidence, cached: Values) -> float:
    """Return the length of the workload's system prompt: of a given text, the tokens that most prompts share."""
    system = evidence.workload.system_prompt
    if system is None:
        return 0.0
    return float(np.median(cached)) if system.tokens is None else float(system.tokens)


def _seen_before(period: Values, repeat: Values, sent_ns: Values, rows: Table) -> Mask:
    """Return whether each row's prompt has an earlier first turn in the same period, shape (rows,)."""
    order = np.lexsort((sent_ns, repeat))
    first = numbers(rows, "turn")[order] == 0
    seen, at = np.zeros(len(rows), dtype=bool), order[first]
    seen[at] = repeated_rows(period[at], rows.column("prompt_id")[at])
    return seen


MORE_COMPUTED = 1.05
KEPT_MIN = 0.95


@check(
    name="ReuseLost",
    severities=(Severity.FAULT,),
    threshold=(
        f"more than {MORE_COMPUTED:g} times the baseline's computed prompt tokens, and the interval of this ratio lies"
        f" above it, or that of cached tokens, arm over baseline, below {KEPT_MIN:g}"
    ),
    rationale=(
        "Engines have lost the last block of each hit, or all hits, once a drafter was on. Both sides get the same"
        " requests in the same order, so honest arms differ only where answers end in another order."
    ),
    remedy=(
        "Look for a known issue of the engine's prefix cache with this drafter, and compare the KV cache that is left"
        " beside it. report.html shows the loss by turn and by depth."
    ),
)
def reuse_lost(evidence: CellEvidence) -> CheckResults:
    """With promptCache: AsServed, the arm reuses fewer prompt tokens than the paired baseline.

    The ratio of computed tokens shows the loss of a block. It is too noisy for a large loss, because the few tokens
    that the baseline computes differ between repeats; the share of the baseline's hits that the arm has is not.
    """
    reuse = evidence.reuse
    computed = reuse.computed_ratio if reuse else None
    if reuse is None or computed is None or computed.value is None or computed.value <= MORE_COMPUTED:
        return []
    kept = reuse.kept_share.interval if reuse.kept_share else None
    if not (computed.interval and computed.interval.low > MORE_COMPUTED) and not (kept and kept.high < KEPT_MIN):
        return []
    hits, theirs = reuse.hit_share.value or 0.0, reuse.baseline_hit_share.value or 0.0
    message = (
        f"{hits:.0%} of the prompt tokens came from the prompt cache, but {theirs:.0%} of the same requests' on the"
        f" baseline: the arm computed {computed.value:.2f} times as many"
    )
    return [CheckResult(Severity.FAULT, message, value=computed.value, threshold=MORE_COMPUTED)]


SAMPLING_SHARE = 0.5


@check(
    name="SamplingDiffersFromLog",
    severities=(Severity.INFO,),
    threshold=(
        f"more than {SAMPLING_SHARE:.0%} of the logged temperatures differ, or the median logged answer is longer than"
        " output.maxTokens"
    ),
    rationale=(
        "Acceptance falls with temperature, and differs between the beginning and the end of an answer: requests"
        " that are sampled or cut differently are different traffic."
    ),
    remedy="Set sampling.temperature and output.maxTokens as in the log, or split the log by temperature.",
)
def sampling_differs_from_log(evidence: RunEvidence) -> CheckResults:
    """Logged requests are sent at a different temperature than in the log, or cut before their answers' usual end."""
    return [
        CheckResult(
            Severity.INFO,
            difference,
            value=value,
            threshold=SAMPLING_SHARE,
            workload=name,
        )
        for name, coverage in evidence.coverage.items()
        if coverage.recorded is not None
        for difference, value in _differences(evidence.plan.workload(name), coverage.recorded)
    ]


def _differences(workload: Workload, recorded: RequestLogStats) -> Iterator[tuple[str, float]]:
    """Yield each difference from the log, with the share of requests that it affects or its factor."""
    requests = sum(recorded.temperatures.values())
    ours = f"{workload.sampling.temperature:g}"
    others = requests - recorded.temperatures.get(ours, 0) - recorded.temperatures.get("default", 0)
    if requests and others / requests > SAMPLING_SHARE:
        usual = max(recorded.temperatures, key=lambda value: recorded.temperatures[value])
        yield (
            f"{others} of {requests} logged requests have a temperature other than {ours}, most often {usual}",
            others / requests,
        )
    length, most = recorded.output_tokens_median, workload.output.max_tokens
    if length is not None and length > most:
        yield f"the log's median answer has {length:.0f} tokens, but output.maxTokens is {most}", length / most
