"""Checks whether the engine was under the requested load, in a steady state, and alone."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import timedelta

import numpy as np

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.load import ArrivalProcess
from specbench_client.documents.figure import counted
from specbench_client.documents.finding import Severity
from specbench_client.load.steady_state import NS_PER_S
from specbench_client.metrics.chunks_and_steps import STALL_NS, STALL_TIMES
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import POINT, Table, distinct_texts, has_text, join_tables, text_counts
from specbench_client.metrics.tidy_frame import REQUEST, numbers, steady_rows
from specbench_client.metrics.time_per_token import flow_ms
from specbench_client.numpy_columns import Mask
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import truncate
from specbench_client.trust.check_type import (
    CheckResult,
    CheckResults,
    busy_machine,
    check,
    counted_rows,
    list_names,
    name_some,
)
from specbench_client.trust.checks import trends
from specbench_client.trust.checks.client import timing_fault
from specbench_client.trust.evidence import CellEvidence, PointEvidence, RunEvidence

CONCURRENCY_SHARE = 0.9


@check(
    name="ConcurrencyNotReached",
    severities=(Severity.INVALID,),
    threshold=(
        f"less than {CONCURRENCY_SHARE:.0%} of the requested concurrency. Not evaluated with thinkTime or agent traces"
    ),
    rationale=(
        "Between two requests a stream only parses the answer and picks the next prompt; if that takes a tenth of"
        " the time, the client is part of the measurement. Speed-ups fall with load, so a lower load makes them"
        " look better."
    ),
    remedy="Give the client more CPU, request longer answers, or lower the concurrency.",
)
def concurrency_not_reached(evidence: PointEvidence) -> CheckResults:
    """In a closed loop, fewer requests than requested were in flight on average in the steady state."""
    reached, requested = evidence.health.reached_concurrency, evidence.point.level.concurrency
    if evidence.workload.waits:  # a stream without a request may be waiting with its user
        return []
    if reached is None or requested is None or reached >= CONCURRENCY_SHARE * requested:
        return []
    message = f"{reached:.1f} requests were in flight on average in the steady state, but the load requests {requested}"
    return [CheckResult(Severity.INVALID, message, value=reached, threshold=CONCURRENCY_SHARE * requested)]


LACKING = 0.05
RATE_ERRORS = 3.0


@check(
    name="RateNotReached",
    severities=(Severity.INVALID,),
    threshold=(
        f"{LACKING:.0%} below the requested rate, and by more than {RATE_ERRORS:g} standard errors of the arrival"
        " process (CV / √conversations). Not evaluated for traces, whose rate varies by design"
    ),
    rationale=(
        "An open loop does not wait for answers, so only a client that cannot keep up, that ran out of sockets, or that"
        " is limited by load.arrival.maxInFlight starts fewer. Near the engine's limit, 5 % of the rate changes the"
        " waiting time by a multiple of that."
    ),
    remedy=(
        "Give the client more CPU (on a cluster placement.client.resources), or lower the rate; request more"
        " conversations per point (load.requests)."
    ),
    imported_remedy="Give the benchmark more CPU and more requests, or lower the rate.",
)
def rate_not_reached(evidence: PointEvidence) -> CheckResults:
    """In an open loop, fewer conversations per second than requested started in the steady state."""
    reached, requested, cv = evidence.health.reached_rate, evidence.point.level.rate, evidence.arrival.cv
    if reached is None or requested is None or cv is None:
        return []
    expected = None if evidence.steady_s is None else requested * evidence.steady_s
    chance = RATE_ERRORS * cv / math.sqrt(expected) if expected else 0.0
    least = requested * (1 - max(LACKING, chance))
    if reached >= least:
        return []
    message = f"{reached:.3g} conversations per second started in the steady state, but the load requests {requested:g}"
    if evidence.arrival.max_in_flight is not None:
        message += (
            f": at most {evidence.arrival.max_in_flight} at once (load.arrival.maxInFlight) are fewer than this rate"
            " needs, so the others wait in the client, and the longer the point, the longer they wait"
        )
    return [CheckResult(Severity.INVALID, message, value=reached, threshold=least)]


GROWTH = 1.5
IN_FLIGHT_MIN = 8
OVERLOADED_ERRORS = 3.0
UNKNOWN_CV = 1.0


@check(
    name="Overloaded",
    severities=(Severity.INVALID, Severity.WARNING),
    threshold=(
        f"{GROWTH:g} times as many in its last third as in its first, more than {IN_FLIGHT_MIN} on average, and more"
        f" than chance in the arrivals explains ({OVERLOADED_ERRORS:g} standard errors). Warning if a trace is"
        " replayed, whose own increase looks the same"
    ),
    rationale=(
        "Below capacity the number in flight returns to its mean; above it, it grows with time, and so does every"
        f" latency. Up to {IN_FLIGHT_MIN} requests, a factor of {GROWTH:g} is two or three requests."
    ),
    remedy=(
        "Lower the rate until the number in flight is stable: the highest such rate is the engine's capacity,"
        " itself a result."
    ),
)
def overloaded(evidence: PointEvidence) -> CheckResults:
    """In an open loop, the number of requests in flight grew throughout the steady state.

    Latency then has no stationary distribution: every percentile depends on how long the point was. The probability of
    a queue that grew by chance is bounded by the statistics of the arrivals: the mean number in flight over a period
    with n arrivals has a relative standard error of √((CV² + 1) / n) (Little's law, for lengths that vary by no more
    than their mean).
    """
    growth, in_flight = evidence.health.in_flight_growth, evidence.health.reached_concurrency
    if evidence.closed or growth is None or in_flight is None or in_flight <= IN_FLIGHT_MIN:
        return []
    most = max(GROWTH, _by_chance(evidence))
    if growth <= most:
        return []
    message = (
        f"requests in flight grew {growth:.1f} times from the first third of the steady state to the last"
        f" ({in_flight:.0f} on average): more requests arrive than the engine can serve, so latencies depend on the"
        " length of the point"
    )
    traced = evidence.arrival.process is ArrivalProcess.TRACE
    return [CheckResult(Severity.WARNING if traced else Severity.INVALID, message, value=growth, threshold=most)]


def _by_chance(evidence: PointEvidence) -> float:
    """Growth that the arrival process alone may cause; 1 if the number of arrivals is not known."""
    rate, seconds = evidence.health.reached_rate, evidence.steady_s
    cv = UNKNOWN_CV if evidence.arrival.cv is None else evidence.arrival.cv
    if not rate or not seconds:
        return 1.0
    in_a_third = rate * seconds / 3
    return math.exp(min(50.0, OVERLOADED_ERRORS * math.sqrt(2 * (cv**2 + 1) / in_a_third)))


FAILED_SHARE = 0.01
NAMED = 5
QUOTED_CHARS = 200
"""Longest part of an error that a message quotes."""


@check(
    name="RequestsFailed",
    severities=(Severity.INVALID, Severity.INFO),
    threshold=f"Invalid above {FAILED_SHARE:.0%} of the requests that were sent, Info below",
    rationale=(
        "Failed requests are removed from both sides of a comparison, but they are seldom typical; from 1 % on the"
        " 99th percentile may consist of the missing requests."
    ),
    remedy=(
        "Correct what the quoted error states (the records have all errors): lower the load, remove the prompts that"
        " are rejected, or fix the engine."
    ),
)
def requests_failed(evidence: PointEvidence) -> CheckResults:
    """Requests failed."""
    tried = evidence.tried
    failed = tried.among(~tried.array("ok"))
    if not len(failed):
        return []
    share = len(failed) / len(tried)
    kinds = ", ".join(f"{count} {name}" for name, count in text_counts(failed, "error_class").most_common())
    skipped = len(evidence.rows) - len(tried)
    errors = text_counts(failed, "error").most_common(1)
    quoted = "".join(f", most often with: {truncate(' '.join(text.split()), QUOTED_CHARS)}" for text, _ in errors)
    message = f"{len(failed)} of {counted_rows(tried, 'requests')} failed ({kinds}{quoted})"
    message += f", and {skipped} later turns were not sent" if skipped else ""
    rejected = distinct_texts(failed.among(has_text(failed, "error_class", ErrorClass.HTTP_4XX)), "prompt_id")
    message += f"; the server rejected prompts {name_some(sorted(rejected), NAMED)}" if rejected else ""
    limited = has_text(failed, "error_class", ErrorClass.RATE_LIMITED).any()
    message += "; the server limits the rate of requests (HTTP 429): lower the load" if limited else ""
    severity = Severity.INVALID if share > FAILED_SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=FAILED_SHARE)]


STALL_EFFECT = 0.05


@check(
    name="RequestsStalled",
    severities=(Severity.WARNING, Severity.INFO),
    threshold=(
        f"nothing of an answer arrived for {STALL_NS / NS_PER_S:g} s, and {STALL_TIMES:g} times as long as of the"
        " median request and of the partner, at one moment of all repeats of a side. Warning if the speed-up differs"
        f" by {STALL_EFFECT:.0%} without these pairs"
    ),
    rationale=(
        "One stop of half a minute decides the mean of a point of some minutes. Whose fault it is cannot be seen, so no"
        " request is left out. A long prompt takes long on both sides, and stops that recur are how a server works."
    ),
    remedy=(
        "Look for that time in the logs of server and proxies. If such stops are how the server works (a compilation, a"
        " full KV cache), they belong to the result; else measure again."
    ),
    imported_remedy="Look for that time in the logs of server and proxies, and run the benchmark again.",
)
def requests_stalled(evidence: CellEvidence) -> CheckResults:
    """The server, or the network, stopped once, for many seconds within a request."""
    pairs = evidence.pairs
    if pairs is None:
        steady = steady_rows(evidence.rows)
        # A baseline's stalls are reported of the arms that are compared with it.
        alone = len(evidence.plan.arms) == 1 or not evidence.arm.is_baseline
        stalled = steady.among(_in_one_stop(steady, steady.known(REQUEST) & alone))
    else:
        sides = zip((pairs.arm, pairs.baseline), stalled_sides(pairs), strict=True)
        stalled = join_tables([side.among(mask) for side, mask in sides])
    if not len(stalled):
        return []
    silence_s = numbers(stalled, "silence_ns") / NS_PER_S
    worst = stalled.at(np.argsort(-silence_s)[:1])
    point = next(each for each in evidence.plan.points if has_text(worst, POINT, each.hash).all())
    span = evidence.spans.get(point.hash)
    begun = timedelta(seconds=float(numbers(worst, "silent_from_ns")[0]) / NS_PER_S)
    clock = f" at {span[0] + begun:%Y-%m-%d %H:%M:%S%z}" if span else ""
    message = (
        f"the server of {point.arm}, or the network, stopped{clock} in repeat {point.repeat + 1} at"
        f" {point.level.words}:"
        f" nothing of request {distinct_texts(worst, REQUEST)[0]} arrived for {silence_s.max():.1f} s"
    )
    message += f", and {counted(len(stalled) - 1, 'more request')} stalled" if len(stalled) > 1 else ""
    changed, speedup, without = 0.0, evidence.speedup, evidence.speedup_without_stalls
    if speedup and without and speedup.value and without.value:
        changed = abs(math.log(without.value / speedup.value))
        message += f"; the speed-up without them is {without.factor}, with them {speedup.factor}"
    severity = Severity.WARNING if changed > math.log1p(STALL_EFFECT) else Severity.INFO
    return [CheckResult(severity, message, value=float(silence_s.max()), threshold=STALL_NS / NS_PER_S)]


def without_stalls(pairs: Pairs) -> Pairs | None:
    """Return the pairs of which neither request stalled; None if none stalled."""
    mine, theirs = stalled_sides(pairs)
    return pairs.among(~(mine | theirs)) if (mine | theirs).any() else None


def stalled_sides(pairs: Pairs) -> tuple[Mask, Mask]:
    """Return in which pairs the arm's request stalled and its partner did not, and the opposite, shape (pairs,).

    None of a side that stopped more than once.
    """
    mine, theirs = (np.nan_to_num(numbers(side, "silence_ns")) for side in (pairs.arm, pairs.baseline))
    return (
        _in_one_stop(pairs.arm, pairs.arm.known(REQUEST) & (mine > STALL_TIMES * theirs)),
        _in_one_stop(pairs.baseline, pairs.baseline.known(REQUEST) & (theirs > STALL_TIMES * mine)),
    )


def _in_one_stop(rows: Table, stalled: Mask) -> Mask:
    """Return the mask if these rows were silent at one moment of one point, else one without any row."""
    silent = rows.among(stalled)
    begins = numbers(silent, "silent_from_ns")
    ends = begins + numbers(silent, "silence_ns")
    is_one = len(silent) == 0 or (begins.max() < ends.min() and len(distinct_texts(silent, POINT)) == 1)
    return stalled & is_one


APART = 2.0


@check(
    name="NoisyRequests",
    severities=(Severity.WARNING,),
    threshold=(
        "a mean time per decode step (per output token if steps are not reported) that differs from the median by a"
        f" factor of more than {APART:g} over the steady requests. Only at one stream of a closed loop, if nothing is"
        " compared with a baseline, and if no WarmupNotSteady, StepTimeDrift or ChunksCoalesced (Invalid) explains it"
    ),
    rationale=(
        "tokens/s is a mean, TPOT p50 a median: if a few requests decide the one and not the other, each describes"
        " another server. With one request at a time no other one delays it, and steps differ little: in"
        " simulated runs without a fault the mean is at most 1.1 times the median, on busy machines up to 3.7 times."
        " Where requests queue, or prompts delay answers, both may differ widely; in a comparison the interval contains"
        " the noise (IntervalTooWide)."
    ),
    remedy=(
        "Stop other work on the server's machine and repeat the command with `--new` (on a cluster: a run with another"
        " name), with more requests (load.requests). If the same prompts are slow again, the server is slow for them:"
        " measure them apart from the others."
    ),
    imported_remedy=(
        "Stop other work on the server's machine, and run the benchmark again with more requests. If the same prompts"
        " are slow again, the server is slow for them: measure them apart from the others."
    ),
)
def noisy_requests(evidence: PointEvidence) -> CheckResults:
    """At one stream, some requests were so slow that tokens/s and TPOT p50 describe different servers.

    The figures are computed correctly, so the severity is Warning.
    """
    plan, steady, health = evidence.plan, evidence.steady, evidence.health
    is_compared = plan.has_baseline and len(plan.arms) > 1
    is_explained = health.warmup_steady is False or timing_fault(evidence) or trends.step_time_drift.evaluate(evidence)
    if is_compared or evidence.point.level.concurrency != 1 or is_explained:
        return []
    what, rows, units = trends.paced(steady)
    if not len(rows):
        return []
    taken_ms = flow_ms(rows) / units
    mean, median = float(np.average(taken_ms, weights=units)), float(np.median(taken_ms))
    apart = max(mean, median) / min(mean, median)
    if apart <= APART:
        return []
    slow, times = rows.at(np.argsort(-taken_ms)).codes("prompt_id"), -np.sort(-taken_ms)
    slow_ms = APART * min(mean, median)
    named = [f"{slow.texts[code]} ({ms:.1f} ms)" for code, ms in zip(slow.codes, times, strict=True) if ms > slow_ms]
    message = (
        f"the time per {what} is {mean:.1f} ms on average, but {median:.1f} ms in the median of"
        f" {counted_rows(rows, 'requests')}: tokens/s and TPOT p50 describe different servers; prompts of the slowest"
        f" requests: {name_some(named, NAMED)}{busy_machine(health.load_per_core)}"
    )
    return [CheckResult(Severity.WARNING, message, value=apart, threshold=APART)]


IN_FLIGHT = 1.5


@check(
    name="SingleStreamOnly",
    severities=(Severity.INFO,),
    threshold=(
        f"fewer than {IN_FLIGHT:g} requests in flight at the highest load: as requested for a closed loop, as"
        " measured for an open loop. Not evaluated without a baseline, which has no speed-up"
    ),
    rationale=(
        "With a batch of one the GPU waits for memory, and verifying drafts is free; a full batch has no spare"
        " time: n-gram drafts for Llama-3.3-70B are published with a speed-up of 0.88 at 32 streams. A service with"
        " one user at a time may be intended, so the severity is Info."
    ),
    remedy=(
        "Measure higher loads too (load.concurrency or load.rate), up to your service's: the report then shows where"
        " the gain ends."
    ),
    imported_remedy=(
        "Run the benchmark at higher loads too, up to your service's, and import all files; the report then"
        " shows the load at which the gain ends."
    ),
)
def single_stream_only(evidence: RunEvidence) -> CheckResults:
    """Every load of the run keeps about one request in flight."""
    most = _most_in_flight(evidence, [arm.name for arm in evidence.plan.arms])
    if not evidence.plan.has_baseline or most is None or most >= IN_FLIGHT:
        return []
    message = (
        f"no load of this run keeps more than {most:.1f} requests in flight: the speed-ups apply to an idle"
        " engine; on a loaded engine drafting gains less, or is slower"
    )
    return [CheckResult(Severity.INFO, message, value=most, threshold=IN_FLIGHT)]


def _most_in_flight(evidence: RunEvidence, arms: Collection[str]) -> float | None:
    """The highest requested concurrency of a closed loop.

    Of an open loop, and where all streams wait, the highest number in flight in any point of these arms.
    """
    waits = all(workload.waits for workload in evidence.plan.workloads)
    reached = [each.client_health.reached_concurrency for each in evidence.summaries if each.arm in arms]
    return max((not waits and evidence.plan.load.concurrency) or filter(None, reached), default=None)


@check(
    name="RequestsQueued",
    severities=(Severity.INFO,),
    threshold=(
        "more requests in flight at the highest load than the server processes at once, as it reports: as requested for"
        " a closed loop, as measured for an open loop and where all streams wait"
    ),
    rationale=(
        "Above its limit a server's batch does not grow: latencies contain its queue, and the speed-up is that of the"
        " smaller batch. Measuring a limit is legitimate, so the severity is Info."
    ),
    remedy=(
        "Restart the server with a higher limit (llama-server -np, SGLang --max-running-requests), or measure lower"
        " loads (load.concurrency or load.rate)."
    ),
)
def requests_queued(evidence: RunEvidence) -> CheckResults:
    """More requests are in flight than a server processes at once, so the others wait in its queue."""
    limits = {launch.arm: launch.facts[FactName.MAX_RUNNING_REQUESTS].number for launch in evidence.launches}
    in_flight = {arm: _most_in_flight(evidence, [arm]) or 0.0 for arm in limits}
    queued = {arm: limit for arm, limit in limits.items() if limit is not None and in_flight[arm] > limit}
    if not queued:
        return []
    worst = max(queued, key=lambda arm: in_flight[arm] / queued[arm])
    served = list_names([f"{round(limit)} of {in_flight[arm]:.3g} on {arm}" for arm, limit in queued.items()])
    message = (
        f"the server processes fewer requests at once than are in flight at the highest load: {served}; the others wait"
        " in its queue, and latencies contain that time"
    )
    arm = worst if len(queued) == 1 else None
    return [CheckResult(Severity.INFO, message, value=in_flight[worst], threshold=queued[worst], arm=arm)]


FOREIGN_SHARE = 0.01


@check(
    name="ForeignTraffic",
    severities=(Severity.INVALID, Severity.INFO),
    threshold=(
        f"more than {FOREIGN_SHARE:.0%} plus one token per request; failed requests count as full answers. Info if the"
        " server counts them for another model, which may run on another GPU"
    ),
    rationale=(
        "One token per request is the end-of-sequence token, which some counters include; 1 % of foreign tokens"
        " reduces the speed by about 1 % at most."
    ),
    remedy=(
        "Make sure that nothing else uses the engine during the measurement; check the Service and the network policy."
    ),
)
def foreign_traffic(evidence: PointEvidence) -> CheckResults:
    """The engine's counter of generated tokens is larger than what our requests received."""
    counters, tried = evidence.monotonic_counters, evidence.tried
    counted = numbers(tried, "output_tokens")
    uncounted = tried.array("ok") & np.isnan(counted)
    if counters is None or counters.output_tokens is None or uncounted.any() or not len(tried):
        return []
    most = evidence.workload.output.max_tokens
    ours = float(np.nansum(counted)) + most * int((~tried.array("ok")).sum())
    foreign = counters.output_tokens - ours
    if foreign <= FOREIGN_SHARE * ours + len(tried):
        return _of_other_models(evidence)
    message = (
        f"the engine generated {counters.output_tokens} tokens, but our requests received at most {ours:.0f}: other"
        " clients used it during the measurement"
    )
    return [CheckResult(Severity.INVALID, message, value=foreign / counters.output_tokens, threshold=FOREIGN_SHARE)]


def _of_other_models(evidence: PointEvidence) -> CheckResults:
    """Name the other models of the server if they generated tokens meanwhile."""
    counters, counted = evidence.counters, evidence.monotonic_counters
    if counters is None or counters.all_models is None or counted is None:
        return []
    theirs = (counters.all_models.output_tokens or 0) - (counted.output_tokens or 0)
    if theirs <= 0:
        return []
    names = name_some(counters.other_models, NAMED)
    message = (
        f"the server also generated {theirs} tokens with other models ({names}) during the measurement: if they share"
        " its GPU, they slowed it"
    )
    return [CheckResult(Severity.INFO, message, value=theirs, threshold=0)]


@check(
    name="NoSteadyState",
    severities=(Severity.INVALID,),
    threshold=(
        "fewer error-free steady requests than streams; in an open loop, fewer than requests in flight on average;"
        " if fillers kept the load up, none"
    ),
    rationale=(
        "With fewer than one request per stream, the window contains only parts of requests, and its throughput"
        " depends on where it begins. Fillers keep the full load on each measured request from beginning to end, so"
        " that one request is enough."
    ),
    remedy=(
        "Request more (load.requests: at least three times the highest concurrency; load.durationSeconds: many"
        " times the longest answer), or lower a rate that the engine cannot serve."
    ),
    imported_remedy=(
        "Give the benchmark more requests (at least three times the highest concurrency), or lower a rate "
        "that the engine cannot serve."
    ),
)
def no_steady_state(evidence: PointEvidence) -> CheckResults:
    """The steady state has too few requests."""
    found, required = len(evidence.steady), _required(evidence)
    if found >= required:
        return []
    load = evidence.point.level.words
    message = (
        f"{found} of {counted_rows(evidence.rows, 'requests')} are in the steady state at {load}, and at least"
        f" {required} are required; the others are ramp, drain or failed: "
    ) + (
        "about three requests per stream are needed"
        if evidence.closed
        else "the point was too short, or more requests arrived than the engine can serve"
    )
    return [CheckResult(Severity.INVALID, message, value=found, threshold=required)]


def _required(evidence: PointEvidence) -> int:
    """One request per stream; in an open loop, as many as were in flight; any number if fillers kept the load up."""
    if evidence.rows.array("filler").any():
        return 1
    return evidence.point.level.concurrency or max(1, math.ceil(evidence.health.reached_concurrency or 0))


@check(
    name="WarmupNotSteady",
    severities=(Severity.WARNING,),
    threshold="the warm-up's own test, see load.warmupRequests",
    rationale=(
        "Compilation, graph capture for new batch sizes, clocks and caches slow the first requests down; if the"
        " last warm-up requests were still getting faster, so were the first measured ones."
    ),
    remedy="Raise load.warmupRequests; on a noisy machine, find out what else runs on it.",
    imported_remedy=(
        "Let the benchmark warm the engine up before it measures; on a noisy machine, find out what else runs on it."
    ),
)
def warmup_not_steady(evidence: PointEvidence) -> CheckResults:
    """The warm-up before the launch's first point ended without steady step times."""
    health = evidence.health
    if health.warmup_steady is not False:
        return []
    message = (
        f"step times were not steady after {health.warmup_requests or 0} warm-up requests, four times the minimum"
        " (load.warmupRequests, or one of each stream): this point, the first of its launch, may contain the rest of"
        " the warm-up"
    )
    return [CheckResult(Severity.WARNING, message, value=health.warmup_requests)]
