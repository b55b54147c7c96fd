"""Checks whether the engine was under the requested load, in a steady state, and alone."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.finding import Severity
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.load import ArrivalProcess
from specbench_client.metrics.decode_speed import SAME_STEP, SHORT, flow_ms, later_tokens, total_by
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.tidy_frame import Values, flags, numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence, RunEvidence

CONCURRENCY_SHARE = 0.9


def _concurrency_not_reached(evidence: PointEvidence) -> CheckResults:
    """Fewer requests in flight than requested, so that the numbers belong to a different load."""
    reached, requested = evidence.health.reached_concurrency, evidence.point.level.concurrency
    if evidence.workload.waits:  # a stream without a request may be waiting with its user
        return []
    if reached is None or requested is None or reached >= CONCURRENCY_SHARE * requested:
        return []
    message = f"{reached:.1f} requests were in flight on average in the steady state, but the load requests {requested}"
    return [CheckResult(Severity.INVALID, message, value=reached, threshold=CONCURRENCY_SHARE * requested)]


CONCURRENCY_NOT_REACHED: Check[PointEvidence] = Check(
    name="ConcurrencyNotReached",
    severities=(Severity.INVALID,),
    description="In a closed loop, fewer requests than requested were in flight on average in the steady state.",
    threshold=(
        f"less than {CONCURRENCY_SHARE:.0%} of the requested concurrency. Not evaluated with thinkTime or agent traces"
    ),
    rationale=(
        "Between two requests a stream only parses the answer and picks the next prompt; if that takes a tenth of"
        " the time, the client is part of the measurement. Speed-ups fall with load, so a lower load makes them"
        " look better."
    ),
    remedy="Give the client more CPU, request longer answers, or lower the concurrency.",
    evaluate=_concurrency_not_reached,
)


LACKING = 0.05
RATE_ERRORS = 3.0


def _rate_not_reached(evidence: PointEvidence) -> CheckResults:
    """Fewer conversations per second than requested, so that the numbers belong to a different load."""
    reached, requested, cv = evidence.health.reached_rate, evidence.point.level.rate, evidence.arrival_cv
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


RATE_NOT_REACHED: Check[PointEvidence] = Check(
    name="RateNotReached",
    severities=(Severity.INVALID,),
    description="In an open loop, fewer conversations per second than requested started in the steady state.",
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
    evaluate=_rate_not_reached,
)


GROWTH = 1.5
IN_FLIGHT_MIN = 8
OVERLOADED_ERRORS = 3.0
UNKNOWN_CV = 1.0


def _overloaded(evidence: PointEvidence) -> CheckResults:
    """An open loop with more arrivals than the engine can serve: the queue grows as long as the point lasts.

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
    cv = UNKNOWN_CV if evidence.arrival_cv is None else evidence.arrival_cv
    if not rate or not seconds:
        return 1.0
    in_a_third = rate * seconds / 3
    return math.exp(min(50.0, OVERLOADED_ERRORS * math.sqrt(2 * (cv**2 + 1) / in_a_third)))


OVERLOADED: Check[PointEvidence] = Check(
    name="Overloaded",
    severities=(Severity.INVALID, Severity.WARNING),
    description="In an open loop, the number of requests in flight grew throughout the steady state.",
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
    evaluate=_overloaded,
)


FAILED_SHARE = 0.01


def _requests_failed(evidence: PointEvidence) -> CheckResults:
    """Requests that failed are not part of the figures, and the remaining ones may be the easy ones."""
    tried = evidence.tried
    failed = tried[~tried["ok"].to_numpy(bool)]
    if failed.empty:
        return []
    share = len(failed) / len(tried)
    classes = failed["error_class"].value_counts()
    kinds = ", ".join(f"{count} {name}" for name, count in classes.items())
    skipped = len(evidence.rows) - len(tried)
    message = f"{len(failed)} of {len(tried)} requests failed ({kinds})"
    message += f", and {skipped} later turns were not sent" if skipped else ""
    severity = Severity.INVALID if share > FAILED_SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=FAILED_SHARE)]


REQUESTS_FAILED: Check[PointEvidence] = Check(
    name="RequestsFailed",
    severities=(Severity.INVALID, Severity.INFO),
    description="Requests failed.",
    threshold=f"Invalid above {FAILED_SHARE:.0%} of the requests that were sent, Info below",
    rationale=(
        "Failed requests are removed from both sides of a comparison, but they are seldom typical; from 1 % on the"
        " 99th percentile may consist of the missing requests."
    ),
    remedy="Read the errors in the records and the engine's log, then lower the load or fix the engine.",
    evaluate=_requests_failed,
)


IN_FLIGHT = 1.5


def _single_stream_only(evidence: RunEvidence) -> CheckResults:
    """Only one request at a time, a load that hardly any production server has."""
    in_flight = [_in_flight(evidence, level.label) for level in evidence.plan.load.levels]
    known = [value for value in in_flight if value is not None]
    if not known or max(known) >= IN_FLIGHT:
        return []
    message = (
        f"no load of this run keeps more than {max(known):.1f} requests in flight: the speed-ups apply to an idle"
        " engine; on a loaded engine drafting gains less, or is slower"
    )
    return [CheckResult(Severity.INFO, message, value=max(known), threshold=IN_FLIGHT)]


def _in_flight(evidence: RunEvidence, load: str) -> float | None:
    """The requested concurrency of a closed loop; the highest number in flight in any point of an open loop."""
    levels = [level for level in evidence.plan.load.levels if level.label == load]
    if levels[0].concurrency is not None:
        return float(levels[0].concurrency)
    watches = [each.client_health for each in evidence.summaries if each.level.label == load]
    return max((each.reached_concurrency for each in watches if each.reached_concurrency is not None), default=None)


SINGLE_STREAM_ONLY: Check[RunEvidence] = Check(
    name="SingleStreamOnly",
    severities=(Severity.INFO,),
    description="Every load of the run keeps about one request in flight.",
    threshold=(
        f"fewer than {IN_FLIGHT:g} requests in flight at the highest load: as requested for a closed loop, as"
        " measured for an open loop"
    ),
    rationale=(
        "With a batch of one the GPU waits for memory, and verifying drafts is free; a full batch has no spare"
        " time: n-gram drafts for Llama-3.3-70B are published with a speed-up of 0.88 at 32 streams. A service with"
        " one user at a time may be intended, so the severity is Info."
    ),
    remedy=(
        "Add your service's load (load.concurrency or load.rate); `specbench analyze curve` shows the load at which"
        " the gain ends."
    ),
    evaluate=_single_stream_only,
)


FOREIGN_SHARE = 0.01


def _foreign_traffic(evidence: PointEvidence) -> CheckResults:
    """The engine generated more tokens than our requests received: other clients used it at the same time."""
    counters, tried = evidence.monotonic_counters, evidence.tried
    counted = numbers(tried, "output_tokens")
    uncounted = flags(tried, "ok") & np.isnan(counted)
    if counters is None or counters.output_tokens is None or uncounted.any() or tried.empty:
        return []
    most = evidence.workload.output.max_tokens
    ours = float(np.nansum(counted)) + most * int((~flags(tried, "ok")).sum())
    foreign = counters.output_tokens - ours
    if foreign <= FOREIGN_SHARE * ours + len(tried):
        return []
    message = (
        f"the engine generated {counters.output_tokens} tokens, but our requests received at most {ours:.0f}: other"
        " clients used it during the measurement"
    )
    return [CheckResult(Severity.INVALID, message, value=foreign / counters.output_tokens, threshold=FOREIGN_SHARE)]


FOREIGN_TRAFFIC: Check[PointEvidence] = Check(
    name="ForeignTraffic",
    severities=(Severity.INVALID,),
    description="The engine's counter of generated tokens is larger than what our requests received.",
    threshold=f"more than {FOREIGN_SHARE:.0%} plus one token per request; failed requests count as full answers",
    rationale=(
        "One token per request is the end-of-sequence token, which some counters include; 1 % of foreign tokens"
        " reduces the speed by about 1 % at most."
    ),
    remedy=(
        "Make sure that nothing else uses the engine during the measurement; check the Service and the network policy."
    ),
    evaluate=_foreign_traffic,
)


def _no_steady_state(evidence: PointEvidence) -> CheckResults:
    """Too few requests between ramp and drain for a steady state."""
    found, required = len(steady_rows(evidence.rows)), _required(evidence)
    if found >= required:
        return []
    load = evidence.point.level.words
    message = (
        f"{found} of {len(evidence.rows)} requests are in the steady state at {load}, and at least {required} are"
        " required; the others are ramp, drain or failed: "
    ) + (
        "about three requests per stream are needed"
        if evidence.closed
        else "the point was too short, or more requests arrived than the engine can serve"
    )
    return [CheckResult(Severity.INVALID, message, value=found, threshold=required)]


def _required(evidence: PointEvidence) -> int:
    """One request per stream; in an open loop, as many as were in flight; any number if fillers kept the load up."""
    if flags(evidence.rows, "filler").any():
        return 1
    return evidence.point.level.concurrency or max(1, math.ceil(evidence.health.reached_concurrency or 0))


NO_STEADY_STATE: Check[PointEvidence] = Check(
    name="NoSteadyState",
    severities=(Severity.INVALID,),
    description=("The steady state has too few requests."),
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
    evaluate=_no_steady_state,
)


def _warmup_not_steady(evidence: PointEvidence) -> CheckResults:
    """A warm-up that ended before step times were steady, so that part of it is in the figures."""
    health = evidence.health
    if health.warmup_steady is not False:
        return []
    message = (
        f"step times were not steady after {health.warmup_requests or 0} warm-up requests, the maximum set by"
        " load.warmupRequests: this point, the first of its launch, may contain the rest of the warm-up"
    )
    return [CheckResult(Severity.WARNING, message, value=health.warmup_requests)]


WARMUP_NOT_STEADY: Check[PointEvidence] = Check(
    name="WarmupNotSteady",
    severities=(Severity.WARNING,),
    description="The warm-up before the launch's first point ended without steady step times.",
    threshold="the warm-up's own test, see load.warmupRequests",
    rationale=(
        "Compilation, graph capture for new batch sizes, clocks and caches slow the first requests down; if the"
        " last warm-up requests were still getting faster, so were the first measured ones."
    ),
    remedy="Raise load.warmupRequests; on a noisy machine, find out what else runs on it.",
    evaluate=_warmup_not_steady,
)


CHANGE = 0.1
OPEN_CHANGE = 0.2
CONFIDENCE = 0.9999
RESAMPLES = 500
STRATUM_MIN = 3
PROMPTS_MIN = 8
LEVEL_IN_FLIGHT = 1.1


def _step_time_drift(evidence: PointEvidence) -> CheckResults:
    """An engine that changes its speed within the steady state of a point: throttled, disturbed, or still warming up.

    The first third of the steady requests, in the order in which they were sent, is compared with the last third, each
    pooled: by time per decode step if the engine reports its steps, else by time per output token, which also depends
    on each prompt's acceptance. Prompts differ, and a file may be sorted by category: only requests of the same
    category and turn are compared, and the variation caused by the prompts alone is bootstrapped, with the prompt as
    the unit.

    With a prompt cache, the prompts computed meanwhile are not alike over time: the first ones and those of fillers are
    not cached. Their time is subtracted.
    """
    growth = evidence.health.in_flight_growth
    level = growth is not None and 1 / LEVEL_IN_FLIGHT <= growth <= LEVEL_IN_FLIGHT
    if not evidence.closed and not level:
        return []
    rows = steady_rows(evidence.rows).sort_values("sent_ns", kind="stable").reset_index(drop=True)
    what, units = _pace(rows)
    flow = flow_ms(rows)
    if evidence.plan.prompt_cache is PromptCache.AS_SERVED:
        flow = _without_prompts(evidence.rows, rows, flow, units)
    strata = _strata(rows, flow, units)
    if sum(min(stratum.sizes) for stratum in strata) < PROMPTS_MIN:
        return []
    seed = evidence.workload.sampling.seed
    change, uncertainty = _change(strata, seed)
    least = max(math.log1p(_tolerated(evidence, len(rows))), uncertainty)
    if abs(change) <= least:
        return []
    message = (
        f"time per {what} changed by {math.expm1(change):+.0%} from the first third of the steady state to the last"
        f" (prompts alone explain up to {math.expm1(uncertainty):.0%}): the engine's speed was not constant"
    )
    return [CheckResult(Severity.WARNING, message, value=math.expm1(change), threshold=math.expm1(least))]


def _tolerated(evidence: PointEvidence, requests: int) -> float:
    """The change that is tolerated, as a share, given the number of steady requests.

    If a third of them is less than one request per stream, all of them started among the same other requests, as in
    an open loop: whose prompts were read in the same steps is then a single random event, which resampling prompts
    does not show.
    """
    streams = evidence.point.level.concurrency
    return OPEN_CHANGE if streams is None or requests // 3 < streams else CHANGE


@dataclass(frozen=True)
class _Stratum:
    """Prompts of one category and turn in the first and the last third.

    Both arrays have the shape (prompts, 2): flow in ms, and units.
    """

    first: Values
    last: Values

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.first), len(self.last)

    @property
    def weight(self) -> float:
        return len(self.first) * len(self.last) / (len(self.first) + len(self.last))

    def change(self, first: Values, last: Values) -> Values:
        """Log ratio of the pooled times per unit, last over first.

        The arguments are the weights of the prompts, shape (..., prompts).
        """
        before, after = first @ self.first, last @ self.last
        return np.asarray(np.log(after[..., 0] / after[..., 1]) - np.log(before[..., 0] / before[..., 1]))


def _pace(rows: pd.DataFrame) -> tuple[str, Values]:
    """The name of the unit of time, and how many units each request has, shape (rows,)."""
    steps = numbers(rows, "steps")
    return ("output token", later_tokens(rows)) if np.isnan(steps).any() else ("decode step", steps)


def _without_prompts(rows: pd.DataFrame, steady: pd.DataFrame, flow: Values, units: Values) -> Values:
    """Subtract the time in which prompts of other requests were computed from the flow of steady requests, in ms.

    A prompt token costs the slope of the time per unit over these tokens per unit, within category, turn and third.
    """
    computed = np.nan_to_num(numbers(rows, "input_tokens") - numbers(rows, "cached_tokens"))
    tokens_by = total_by(numbers(rows, "first_token_ns"), computed)
    some = np.where(units > 0, units, np.nan)
    pace = pd.Series(flow / some)
    near_ns = SAME_STEP * pace.quantile(SHORT) * NS_PER_MS
    tokens = np.subtract(*(tokens_by(numbers(steady, name) + near_ns) for name in ("last_token_ns", "first_token_ns")))
    parts = pd.DataFrame({"pace": pace, "tokens": tokens / some})
    thirds = np.arange(len(steady)) * 3 // max(len(steady), 1)
    means = parts.groupby([steady["category"], steady["turn"], thirds], dropna=False).transform("mean")
    apart = (parts - means).mul(np.sqrt(units), axis=0).dropna()
    squares = float((apart["tokens"] ** 2).sum())
    slope = float((apart["tokens"] * apart["pace"]).sum()) / squares if squares > 0 else 0.0
    return np.asarray(flow - max(slope, 0.0) * tokens, dtype=np.float64)


def _strata(rows: pd.DataFrame, flow: Values, units: Values) -> list[_Stratum]:
    """Return the strata that can be compared, of rows sorted by the time at which they were sent."""
    parts = pd.DataFrame({
        "category": [name or "" for name in rows["category"]], "turn": numbers(rows, "turn"),
        "prompt": rows["prompt_id"], "flow": flow, "units": units,
    })  # fmt: skip
    known = parts[((parts["flow"] > 0) & (parts["units"] > 0)).to_numpy(bool)]
    third = len(known) // 3
    first, last = _by_stratum(known[:third]), _by_stratum(known[len(known) - third :])
    found = [_Stratum(prompts, last[key]) for key, prompts in first.items() if key in last]
    return [stratum for stratum in found if min(stratum.sizes) >= STRATUM_MIN]


def _by_stratum(part: pd.DataFrame) -> dict[Hashable, Values]:
    """Flow and units of each prompt, shape (prompts, 2), by category and turn."""
    sums = part.groupby(["category", "turn", "prompt"])[["flow", "units"]].sum()
    found: dict[Hashable, list[Values]] = {}
    for (category, turn, _), prompt in zip(sums.index, sums.to_numpy(np.float64), strict=True):
        found.setdefault((category, turn), []).append(prompt)
    return {key: np.stack(prompts) for key, prompts in found.items()}


def _change(strata: Sequence[_Stratum], seed: int) -> tuple[float, float]:
    """The change as a log ratio, weighted over the strata, and the bound on what the choice of prompts explains."""
    rng = np.random.default_rng(seed)
    weights = np.array([stratum.weight for stratum in strata]) / sum(stratum.weight for stratum in strata)
    observed = [stratum.change(*(np.ones(size) for size in stratum.sizes)) for stratum in strata]
    drawn = [stratum.change(*(_draws(rng, size) for size in stratum.sizes)) for stratum in strata]
    freedom = sum(first + last - 2 for first, last in (stratum.sizes for stratum in strata))
    units = freedom + 2 * len(strata)
    error = float(np.std(weights @ np.stack(drawn))) * math.sqrt(units / freedom)
    return float(weights @ np.array(observed)), error * float(special.stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2))


def _draws(rng: np.random.Generator, size: int) -> Values:
    """How often each prompt is drawn when `size` prompts are drawn with replacement, shape (resamples, size)."""
    return rng.multinomial(size, [1 / size] * size, RESAMPLES).astype(np.float64)


STEP_TIME_DRIFT: Check[PointEvidence] = Check(
    name="StepTimeDrift",
    severities=(Severity.WARNING,),
    description=(
        "Time per decode step (per output token if steps are not reported) changed within the steady state of a point."
    ),
    threshold=(
        f"more than {CHANGE:.0%} ({OPEN_CHANGE:.0%} in an open loop, and if a third has fewer requests than streams)"
        f" between the first third and the last, compared within category and turn, and beyond the {CONFIDENCE:.2%}"
        f" bootstrap bound (unit: prompt); at least {PROMPTS_MIN} prompts in each. In an open loop only if the"
        f" requests in flight stayed level (within {LEVEL_IN_FLIGHT - 1:.0%}), because step times follow them"
    ),
    rationale=(
        "Heat and clocks change the speed by a tenth or more. A run may have a hundred points, so at one in ten"
        " thousand chance flags one run in a hundred. In an open loop, chance also decides which prompts share a step:"
        " one of a hundred valid open loops changed by a tenth. So it does if a third has less than one request per"
        " stream: two of two hundred valid runs, with 35 prompts on 16 streams, changed by 10 % to 17 %; with three"
        " times the prompts the change was 3 %. With a prompt cache, the time per step follows the prompts that are not"
        " cached: in valid runs at 16 streams it rose by up to 46 %, because those of fillers never are; without their"
        " time it changed by less than a tenth in all points but one."
    ),
    remedy=(
        "Fix the clocks, cool the machine, look for other processes on it, raise load.warmupRequests, and measure"
        " again."
    ),
    evaluate=_step_time_drift,
)
