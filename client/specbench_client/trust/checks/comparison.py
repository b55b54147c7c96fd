"""Checks whether there is enough to compare, whether it is paired, and whether its figures agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import ArmOrder
from specbench_client.documents.figure import WIDE
from specbench_client.documents.finding import Severity
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.documents.summary import PointSummary
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.catalog import CACHED_SHARE
from specbench_client.metrics.concurrent_requests import InFlight
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.steady_window import window_throughput
from specbench_client.metrics.tidy_frame import known_sum, numbers, steady_rows
from specbench_client.metrics.time_per_token import STREAM_TPS, TPOT_MS_POOLED, decode_ns, timed_steps
from specbench_client.numpy_columns import Values
from specbench_client.trust.check_type import CheckResult, CheckResults, busy_machine, check, name_some
from specbench_client.trust.evidence import CellEvidence, PointEvidence, RunEvidence, Spans

NAMED = 6


@check(
    name="MissingPoints",
    severities=(Severity.WARNING,),
    threshold="1 point",
    rationale="Points are seldom lost by chance: the arm that needs the most memory fails at the highest load.",
    remedy=(
        "If an engine failed, first correct the cause that the report states. Then run again: measured points are"
        " reused, and only the missing ones are measured."
    ),
)
def missing_points(evidence: RunEvidence) -> CheckResults:
    """Points of the plan have no manifest, so they were not measured."""
    if not evidence.missing:
        return []
    lost = [point for point in evidence.plan.points if point.hash in set(evidence.missing)]
    names = [f"{point.arm}/{point.workload} at {point.level.label}, repeat {point.repeat + 1}" for point in lost]
    return [
        CheckResult(
            Severity.WARNING,
            f"{len(lost)} of {len(evidence.plan.points)} points have no result: {name_some(names, NAMED, '; ')}",
            value=len(lost),
            threshold=1,
        )
    ]


SHARE = 0.1


@check(
    name="UnpairedRequests",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=f"Info above {SHARE:.0%}; Warning if no request has a partner",
    rationale=(
        "Requests in the drain of one side and not of the other are a few per stream. More unpaired requests mean"
        " failures, a time limit in which the faster arm answers more, or conversations whose replies diverged; the"
        " speed-up then covers only the rest."
    ),
    remedy=(
        "Request more per point, by load.requests instead of load.durationSeconds, in which the faster arm answers"
        " more; for conversations, read the speed-up as one of their first turns."
    ),
    imported_remedy="Give the benchmark the same prompts and the same seed for both arms.",
    soak_remedy=(
        "Read each arm's change over time from this run, and the speed-up from a second run with load.order: "
        "Interleaved and load.requests: in a window, a faster arm answers more and other prompts."
    ),
)
def unpaired_requests(evidence: CellEvidence) -> CheckResults:
    """Steady requests of the arm have no partner in the baseline."""
    pairs = evidence.pairs
    if pairs is None or pairs.candidates == 0 or evidence.baseline is None:
        return []
    # Repeats that the baseline lacks, after an interruption, are those of MissingPoints.
    shared = np.unique(numbers(evidence.baseline, "repeat"))
    candidates = int(np.isin(numbers(steady_rows(evidence.rows), "repeat"), shared).sum()) or pairs.candidates
    share = 1 - len(pairs) / candidates
    if len(pairs) == 0:
        message = f"none of {candidates} steady requests has a partner in the baseline, so there is no comparison"
        return [CheckResult(Severity.WARNING, message, value=share, threshold=SHARE)]
    if share <= SHARE:
        return []
    message = f"{share:.0%} of {candidates} steady requests have no partner in the baseline"
    if pairs.unpaired_later:
        message += f", {pairs.unpaired_later} of them because they are later turns whose earlier replies differ"
    return [CheckResult(Severity.INFO, message, value=share, threshold=SHARE)]


@check(
    name="NotInterleaved",
    severities=(Severity.INFO,),
    threshold="`order: Sequential` or `Soak` with at least two repeats and at least two arms",
    rationale=(
        "With interleaved repeats (arms forwards, then backwards: ABBA) a slow drift affects every arm equally, and"
        " each repeat has launches of its own; otherwise no interval includes how much launches of one engine differ."
        " A single repeat cannot be interleaved."
    ),
    remedy="Set load.order to Interleaved; it costs more launches.",
    imported_remedy="Alternate the benchmark's runs: the baseline, the arm, the arm, the baseline.",
    soak_remedy=(
        "Read each arm's change over time from this run, and the speed-up from a second run with load.order: "
        "Interleaved: a soak test launches each engine once."
    ),
)
def not_interleaved(evidence: RunEvidence) -> CheckResults:
    """The arms' repeats were not interleaved."""
    load = evidence.plan.load
    if load.order is ArmOrder.INTERLEAVED or load.repeats < 2 or len(evidence.plan.arms) < 2:
        return []
    message = (
        "arms were measured one after the other: if the machine drifts (heat, clocks, neighbours), it favours one"
        " of them"
    )
    if evidence.plan.engine.is_imported:
        message = f"the files do not state whether the runs of the arms alternated. If {message}"
    return [CheckResult(Severity.INFO, message)]


@check(
    name="RepeatsApart",
    severities=(Severity.WARNING,),
    threshold=(
        "`order: Interleaved`, and between an arm's and the baseline's point of a repeat another repeat. Of servers"
        " that keep running also a restart between the two points of an arm in a round at a load"
    ),
    rationale=(
        "A run that is continued after a server failed measures that server's repeats alone: drift since then looks"
        " like a speed-up."
    ),
    remedy="Measure both again without an interruption.",
)
def repeats_apart(_: PointEvidence) -> CheckResults:
    """Repeats of an arm and its baseline, which were to be measured in turns, were measured apart."""
    return []


"""Follows from the times of all points: `analysis.summary.trends` reports it."""


def divided_repeats(compared: Iterable[PointSummary], spans: Spans) -> list[int]:
    """Return the repeats of an arm and the baseline that another repeat divides."""
    parts, before = Counter[int](), -1
    for _, repeat in sorted((spans[each.hash], each.repeat) for each in compared):
        parts[repeat] += repeat != before
        before = repeat
    return [repeat for repeat, count in parts.items() if count > 1]


_TIMES = {1: "once", 2: "twice"}


@check(
    name="TooFewRepeats",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=f"fewer than {MIN_REPEATS_TO_COMPARE} repeats: Warning if arms are compared with a baseline, else Info",
    rationale=(
        "The variation between runs needs at least three of them for a t interval of a useful width. With a"
        " run-to-run noise of 3 % and no real difference, an interval from one repeat excludes 1 in 64 % of the"
        " runs, from two in 30 %, from three or more in 5 % to 7 %."
    ),
    remedy="Set load.repeats to 3 or more; use 5 for a claim.",
    imported_remedy="Run the benchmark three times or more for each arm, five times for a claim.",
)
def too_few_repeats(evidence: RunEvidence) -> CheckResults:
    """Points were measured fewer than three times."""
    repeats, arms = evidence.plan.load.repeats, {arm.name for arm in evidence.plan.arms}
    if repeats >= MIN_REPEATS_TO_COMPARE:
        return []
    compared = BASELINE_NAME in arms and len(arms) > 1
    most = max(Counter((each.arm, each.workload, each.level.label) for each in evidence.summaries).values())
    message = (
        f"no load was measured more than {_TIMES[most]}"
        if evidence.missing
        else f"each load was measured {_TIMES[most]}"
    )
    message += f" so far ({repeats} repeats are planned)" if most < repeats else ""
    message += ": the intervals do not cover the variation between runs"
    message += ", so no arm can be called faster or slower" if compared else ""
    return [
        CheckResult(
            Severity.WARNING if compared else Severity.INFO, message, value=most, threshold=MIN_REPEATS_TO_COMPARE
        )
    ]


SPREADS = 2.0
DECODING = 0.01
"""Lowest share of an answer's time that counts as without prefills of others, however many others wait."""
UNLIKE = 1.5
CACHED_ALIKE = 0.1
CHANCE = 5.0
REQUESTS_MIN = 8
"""Steady requests of a repeat from which on it is compared with others: chance is then below 0.1 % in five repeats."""


@check(
    name="NoisyRepeats",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"the time per token after the first differs by a factor of more than {UNLIKE:g} between repeats of one arm,"
        f" and by {CHANCE:g} standard errors over their requests, of which each has at least {REQUESTS_MIN}; also"
        " without the time in which others waited for their first token, unless both are known to have cached alike"
        f" shares of the prompts (within {CACHED_ALIKE:g}). Or"
        f" {SPREADS:g} standard deviations of the log of the baseline's speed over repeats are more than"
        " the log of the speed-up; only from three repeats on, and if the interval of the speed-up excludes 1. Info if"
        " both arms change alike, or if repeats differ by design (arrivals of an open loop); by the second rule also if"
        " texts are sampled, and unless load.order is Sequential"
    ),
    rationale=(
        "With a run-to-run noise of 5 %, speed-ups of five repeats are a factor of 1.5 apart in fewer than 1 of 1,000"
        " runs. What slows both arms cancels in the speed-up, but absolute figures are then averages of two speeds. Two"
        " standard deviations contain nearly all runs of an unchanged machine, so in a Sequential run the machine alone"
        " may cause a smaller effect, even if the interval is narrow. Interleaved repeats are paired, and have launches"
        " of their own: the interval includes their noise. Texts and arrivals that change with each repeat are the same"
        " for both arms: pairing removes their effect. If later repeats read prompts from a cache, prefills delay the"
        " answers of others in the first repeat only, on any machine."
    ),
    remedy=(
        "Measure on a quiet machine with fixed clocks, with more repeats, interleaved; correct PromptsSentAgain first."
    ),
)
def noisy_repeats(evidence: CellEvidence) -> CheckResults:
    """Repeats of an arm or of the baseline differ too much for the figures over all of them."""
    return [*_unlike_repeats(evidence), *_noisier_than_the_effect(evidence)]


def _logs(
    rows: Table | None, parts: Callable[[Table], tuple[Values, Values]], requests: int = 1
) -> dict[float, Values]:
    """Return the log of a ratio of each steady request that has it, shape (requests,), by repeat with so many."""
    found: dict[float, Values] = {}
    for repeat in [] if rows is None else rows.by_point():
        over, under = parts(repeat)
        known = repeat.array("steady") & (over > 0) & (under > 0)
        if known.sum() >= requests:
            found[float(repeat.array("repeat")[0])] = np.log(over[known] / under[known])
    return found


def _undelayed_parts(rows: Table) -> tuple[Values, Values]:
    """Return the parts of `TPOT_MS_POOLED` without the time in which other requests waited for their first token."""
    sent, first, last = (numbers(rows, name) for name in ("sent_ns", "first_token_ns", "last_token_ns"))
    waiting = InFlight.of(sent, first, np.ones(len(rows))).mean(first, last)
    flow, tokens = TPOT_MS_POOLED.parts(rows)
    return flow * np.maximum(1 - waiting, DECODING), tokens


def _cached_share(repeat: Table) -> float:
    """Return the share of prompt tokens that came from a prompt cache; NaN if the engine does not report it."""
    cached, prompts = map(known_sum, CACHED_SHARE.parts(repeat))
    return np.nan if cached is None or not prompts else cached / prompts


def _unlike_repeats(evidence: CellEvidence) -> CheckResults:
    """Compare decode times: prefill differs between repeats of a steady server, by cached and by other prompts.

    The prefills of other requests also delay an answer, by no more than the time in which these wait. Where a prompt
    cache was used alike, that time is no reason: elsewhere computed prompts delay nothing, and only it is longer.
    """
    # Repeats of a soak test are a trend. A baseline's are reported with those of each arm.
    if evidence.plan.soaks or (evidence.baseline is None and evidence.plan.has_baseline):
        return []
    sides = evidence.rows, evidence.baseline
    arm, baseline = (_logs(rows, TPOT_MS_POOLED.parts, REQUESTS_MIN) for rows in sides)
    undelayed = [_logs(rows, _undelayed_parts, REQUESTS_MIN) for rows in sides]
    cached = [
        {float(each.array("repeat")[0]): _cached_share(each) for each in ([] if rows is None else rows.by_point())}
        for rows in sides
    ]
    factor = max(map(_factor_between_repeats, (arm, baseline), undelayed, cached))
    if factor <= UNLIKE:
        return []
    # A repeat that only one side has is no evidence that both changed.
    alike = arm.keys() == baseline.keys() and bool(
        np.ptp([each.mean() - baseline[repeat].mean() for repeat, each in arm.items()]) <= np.log(UNLIKE)
    )
    affected = "tokens/s and latencies, but not the speed-up (both arms changed alike)," if alike else "all figures"
    severity = Severity.INFO if alike or evidence.level.concurrency is None else Severity.WARNING
    message = (
        f"a token after the first took at least {factor:.2f} times as long in one repeat as in another: {affected} are"
        f" averages over both{'' if severity is Severity.INFO else busy_machine(evidence.load_per_core)}"
    )
    return [CheckResult(severity, message, value=factor, threshold=UNLIKE)]


def _factor_between_repeats(
    decode: Mapping[float, Values], undelayed: Mapping[float, Values], cached: Mapping[float, float]
) -> float:
    """Return how many times as long a token took at least in one repeat as in another; 1 if that may be chance.

    `cached`: `_cached_share` of the repeats. Where it is not known to be alike, the lower factor of both counts.
    """
    samples = list(decode.values())
    sizes = np.array([each.size for each in samples])
    # Pooled: requests of a single repeat may be equal by chance.
    variance = sum(float(each.var()) * each.size for each in samples) / max(1, sizes.sum() - len(samples))
    error = np.sqrt(variance * (1 / sizes[:, None] + 1 / sizes))
    means = [np.array([each.mean() for each in logs.values()]) for logs in (decode, undelayed)]
    apart, apart_undelayed = (each[:, None] - each for each in means)
    shares = np.array([cached[repeat] for repeat in decode])
    least = np.where(np.abs(shares[:, None] - shares) <= CACHED_ALIKE, apart, np.minimum(apart, apart_undelayed))
    return float(np.exp(least[apart > CHANCE * error]).max(initial=1.0))


def _noisier_than_the_effect(evidence: CellEvidence) -> CheckResults:
    speedup, baseline = evidence.speedup, _logs(evidence.baseline, STREAM_TPS.parts)
    if speedup is None or speedup.value is None or len(baseline) < MIN_REPEATS_TO_COMPARE:
        return []
    spread = float(SPREADS * np.std([each.mean() for each in baseline.values()], ddof=1))
    effect = abs(float(np.log(speedup.value)))
    if not evidence.is_speedup_claimed or spread <= effect:
        return []
    alike = evidence.greedy and evidence.level.concurrency is not None and not evidence.plan.repeats_continue
    unpaired = alike and evidence.plan.load.order is ArmOrder.SEQUENTIAL
    severity = Severity.WARNING if unpaired else Severity.INFO
    message = (
        f"the baseline's own speed varies by a factor of {np.exp(spread):.2f} between repeats ({SPREADS:g} standard"
        f" deviations), and differs from the arm's only by a factor of {np.exp(effect):.2f}"
    )
    message += busy_machine(evidence.load_per_core) if unpaired else "; repeats are paired, so the interval includes it"
    return [CheckResult(severity, message, value=spread, threshold=effect)]


@check(
    name="IntervalTooWide",
    severities=(Severity.WARNING,),
    threshold=f"an upper bound of the speed-up of more than {WIDE:g} times the lower one, from three repeats on",
    rationale=(
        "Such an interval states no figure, also if it excludes 1. NoisyRepeats compares repeats of"
        f" {REQUESTS_MIN} requests or more; the interval shows noise with any number. With a run-to-run noise of 5 % in"
        " each server, three repeats give such an interval in about 1 of 10,000 runs."
    ),
    remedy="Stop other work on a busy machine; measure again, with more requests in each repeat, and more repeats.",
)
def interval_too_wide(evidence: CellEvidence) -> CheckResults:
    """The repeats differ too much for a figure of the speed-up."""
    speedup = evidence.speedup
    if speedup is None or speedup.interval is None or speedup.missing or not speedup.is_too_wide:
        return []
    message = f"{speedup.factor}: repeats differ too much for a figure{busy_machine(evidence.load_per_core)}"
    return [CheckResult(Severity.WARNING, message, value=speedup.interval.high / speedup.interval.low, threshold=WIDE)]


SHORTER = 0.1
STEPS_MIN = 30


@check(
    name="StepsFasterThanBaseline",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {SHORTER:.0%} shorter in every repeat, over at least {STEPS_MIN} steps per side; only if the"
        " engine reports its steps"
    ),
    rationale=(
        "With the same number of streams, a step that verifies drafts takes as long as a plain one, or longer. Runs"
        " of one engine differ by a few hundredths in both directions: three that are a tenth shorter are not"
        " chance. It is equivalent to a speed-up per token above the acceptance length, which no drafter can have."
        " In an open loop a faster arm has fewer requests in a step, so its steps may legitimately be shorter."
    ),
    remedy=(
        "Compare the launches' nodes, clocks, power limits, graphs and kernels (`provenance.json`), and interleave"
        " the arms."
    ),
    imported_remedy=(
        "Compare the nodes, clocks, power limits, graphs and kernels of both servers, and alternate the "
        "benchmark's runs."
    ),
)
def steps_faster_than_baseline(evidence: CellEvidence) -> CheckResults:
    """In a closed loop, the arm's decode steps are shorter than the paired baseline's.

    A step that verifies drafts reads the same weights and the same context as one that generates a single token, and
    computes more; the drafter's own time is added. If it is shorter than the baseline's nevertheless, the two engines
    differ in more than the drafter: one of them ran on a slower or shared machine, under a power cap or without graphs,
    or the answers came from a cache.
    """
    if evidence.pairs is None or evidence.level.concurrency is None:
        return []
    repeats = numbers(evidence.pairs.arm, "repeat")
    ratios = [_ratio(evidence.pairs.among(repeats == repeat)) for repeat in np.unique(repeats)]
    known = [ratio for ratio in ratios if ratio is not None]
    drafts = known_sum(numbers(evidence.pairs.baseline, "accepted_tokens"))  # then its steps verify drafts too
    if drafts or not known or max(known) >= 1 - SHORTER:
        return []
    middle = float(np.median(known))
    message = (
        f"a step of this arm takes {middle:.2f} of the time of the baseline's (median of {len(known)} repeats)"
        " although it does more work: the engines or machines differ in more than the drafter"
    )
    return [CheckResult(Severity.WARNING, message, value=middle, threshold=1 - SHORTER)]


def _ratio(pairs: Pairs) -> float | None:
    """Mean step time of the arm over the baseline's, in one repeat; None if steps are few or not reported."""
    mine, theirs = _mean_step_ns(pairs.arm), _mean_step_ns(pairs.baseline)
    return None if mine is None or theirs is None else mine / theirs


def _mean_step_ns(rows: Table) -> float | None:
    steps, times = timed_steps(rows), decode_ns(rows)
    known = (steps > 0) & ~np.isnan(times)
    count = float(steps[known].sum())
    return float(times[known].sum()) / count if count >= STEPS_MIN and times[known].sum() > 0 else None


EARLIER = 0.1
AT_LEAST_MS = 2.0
PAIRS_MIN = 5


@check(
    name="TtftBelowBaseline",
    severities=(Severity.WARNING,),
    threshold=(
        f"in every repeat with at least {PAIRS_MIN} pairs of first turns, a median TTFT more than {EARLIER:.0%} and"
        f" {AT_LEAST_MS:g} ms below the baseline's; only at concurrency 1"
    ),
    rationale=(
        "The same prompt needs the same prefill. Launches of one engine differ by a few hundredths, and all repeats"
        " in one direction are not chance. Under load a faster engine has shorter queues, so it is not evaluated"
        " there."
    ),
    remedy=(
        "Stop other work on a busy machine first. Unless the run measures prompt caches, disable them on every arm."
        " Look for a cache in front of the engine, and compare the nodes."
    ),
)
def ttft_below_baseline(evidence: CellEvidence) -> CheckResults:
    """At one stream, the arm's first tokens arrive earlier than the paired baseline's.

    Drafting begins after the first token. A single stream has no queue that a faster engine could shorten, so the same
    prompt takes as long as without a drafter, or longer if the drafter reads it too. An earlier first token came from a
    cache that the engine does not report, from a faster machine, or is not the model's first token.
    """
    if evidence.pairs is None or evidence.level.concurrency != 1:
        return []
    first = evidence.pairs.among(numbers(evidence.pairs.arm, "turn") == 0)
    repeats = numbers(first.arm, "repeat")
    by_repeat = [first.among(repeats == repeat) for repeat in np.unique(repeats)]
    middles = [
        (_median_ttft_ms(pairs.arm), _median_ttft_ms(pairs.baseline)) for pairs in by_repeat if len(pairs) >= PAIRS_MIN
    ]
    early = [mine < (1 - EARLIER) * theirs and theirs - mine > AT_LEAST_MS for mine, theirs in middles]
    if not early or not all(early):
        return []
    mine, theirs = (float(np.median(side)) for side in zip(*middles, strict=True))
    message = (
        f"at one stream the first token arrives after {mine:.0f} ms, but after {theirs:.0f} ms on the baseline:"
        f" drafting shortens no prefill, so something else differs{busy_machine(evidence.load_per_core)}"
    )
    return [CheckResult(Severity.WARNING, message, value=mine / theirs, threshold=1 - EARLIER)]


def _median_ttft_ms(rows: Table) -> float:
    """The median TTFT of these rows, from sending if that is known, in ms."""
    begun = np.fmax(numbers(rows, "sent_ns"), numbers(rows, "intended_ns"))
    return float(np.median(numbers(rows, "first_token_ns") - begun)) / NS_PER_MS


APART = 0.1
FEW_APART = 0.2
TURNS = 3
"""Steady requests per stream and repeat from which on `APART` applies; below it, `FEW_APART` does."""


@check(
    name="ThroughputContradictsSpeedup",
    severities=(Severity.WARNING,),
    threshold=(
        "a speed-up whose interval excludes 1, and a ratio of output_tps on the other side of 1, more than"
        f" {APART:.0%} apart ({FEW_APART:.0%} if a stream had fewer than {TURNS} steady requests per repeat)"
    ),
    rationale=(
        "The two differ slightly by design: the window contains requests without a partner, about one per stream."
        " In 148 cells of valid runs the standard deviation of the difference was 4 % below three requests per"
        " stream, 2.4 % from three to five, and 0.3 % from ten on; in one cell, with 36 prompts on 16 streams, they"
        " were 11 % apart: 1.11 times as fast by one and 0.99 by the other."
    ),
    remedy="See LateStreamEnd and ConcurrencyNotReached, and find out what the streams do between two answers.",
)
def throughput_contradicts_speedup(evidence: CellEvidence) -> CheckResults:
    """In a closed loop, speed-up and engine throughput point in opposite directions.

    In a closed loop with the same number of streams, faster answers mean more tokens per second. If the streams' time
    shows a speed-up and the throughput a slow-down, the missing time is where no latency is measured: between requests,
    or after the last token.
    """
    speedup, baseline = evidence.speedup, evidence.baseline
    if evidence.level.concurrency is None or baseline is None or speedup is None or speedup.value is None:
        return []
    mine, theirs = _output_tps(evidence.rows), _output_tps(baseline)
    if not evidence.is_speedup_claimed or not mine or not theirs:
        return []
    ratio = mine / theirs
    apart = float(abs(np.log(speedup.value / ratio)))
    if (speedup.value > 1) == (ratio > 1) or apart <= np.log1p(APART):
        return []
    turns = min(_turns(rows, evidence.level.concurrency) for rows in (evidence.rows, baseline))
    if turns < TURNS and apart <= np.log1p(FEW_APART):
        return []
    message = (
        f"streams were {speedup.value:.2f} times as fast as the baseline's, but the engine delivered {ratio:.2f}"
        " times as many tokens per second under the same load: one of the two omits part of the time"
    )
    return [CheckResult(Severity.WARNING, message, value=ratio, threshold=speedup.value)]


def _turns(rows: Table, streams: int) -> float:
    """Mean number of steady requests per stream and repeat."""
    inside = steady_rows(rows)
    return len(inside) / streams / max(1, np.unique(numbers(inside, "repeat")).size)


def _output_tps(rows: Table) -> float | None:
    tokens, seconds = window_throughput(rows)
    return float(tokens.sum() / seconds.sum()) if seconds.size else None


@check(
    name="BaselineInvalid",
    severities=(Severity.INVALID,),
    threshold="an invalid baseline",
    rationale="The arm's own points are valid, but a comparison needs both sides.",
    remedy="Fix what the baseline's own findings report, then measure the arm and the baseline together.",
    imported_remedy="Fix what the baseline's own findings report, then run the benchmark of both arms again.",
)
def baseline_invalid(_: CellEvidence) -> CheckResults:
    """The paired baseline is invalid, so the arm cannot be compared."""
    return []


"""Follows from the baseline's findings: `analysis.summary.run` reports it."""
