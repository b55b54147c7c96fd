"""Checks whether an engine changes over time: its steps within a point, its acceptance over a soak test."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import optimize, special

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import Trend
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.concurrent_requests import InFlight, computed_tokens, mean_context, total_by
from specbench_client.metrics.decode_speed import SAME_STEP, SHORT, flow_ms, later_tokens
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.tidy_frame import Values, numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence, PointEvidence

CHANGE = 0.1
CONFIDENCE = 0.9999
STRATUM_MIN = 3
REQUESTS_MIN = 8
LEVEL_IN_FLIGHT = 1.1


def _step_time_drift(evidence: PointEvidence) -> CheckResults:
    """An engine that changes its speed within the steady state of a point: throttled, disturbed, or still warming up.

    The first third of the steady requests, in the order in which they were sent, is compared with the last third, each
    pooled: by time per decode step if the engine reports its steps, else by time per output token, which also depends
    on each prompt's acceptance. Prompts differ, and a file may be sorted by category: only requests of the same
    category and turn are compared. Batches differ too, because conversations grow: see `_at_equal_load`.
    """
    growth = evidence.health.in_flight_growth
    level = growth is not None and 1 / LEVEL_IN_FLIGHT <= growth <= LEVEL_IN_FLIGHT
    if not evidence.closed and not level:
        return []
    rows = steady_rows(evidence.rows).sort_values("sent_ns", kind="stable").reset_index(drop=True)
    what, units = _pace(rows)
    if np.isfinite(flow_ms(rows) * units).sum() < 3 * REQUESTS_MIN:
        return []
    compared = _compared(rows, _at_equal_load(evidence.rows, rows, units), units)
    if compared is None:
        return []
    change, uncertainty = _change(compared)
    least = max(math.log1p(CHANGE), uncertainty)
    if abs(change) <= least:
        return []
    message = (
        f"time per {what} changed by {math.expm1(change):+.0%} from the first third of the steady state to the last"
        f" (chance explains up to {math.expm1(uncertainty):.0%}): the engine's speed was not constant"
    )
    return [CheckResult(Severity.WARNING, message, value=math.expm1(change), threshold=math.expm1(least))]


def _pace(rows: pd.DataFrame) -> tuple[str, Values]:
    """The name of the unit of time, and how many units each request has, shape (rows,)."""
    steps = numbers(rows, "steps")
    return ("output token", later_tokens(rows)) if np.isnan(steps).any() else ("decode step", steps)


def _at_equal_load(rows: pd.DataFrame, steady: pd.DataFrame, units: Values) -> Values:
    """Return the flow of steady requests in ms as it would be in steps with the mean load of all of them.

    A step takes longer the more tokens it reads: contexts of the requests in flight, which grow with every turn of
    their conversations, and prompts that are computed, which are few while the cache has them. What a token costs is
    the slope of the time per unit on both, within category, turn and third; it is not negative.
    """
    flow, some = flow_ms(steady), np.where(units > 0, units, np.nan)
    pace = flow / some
    begun, ended = (numbers(rows, name) for name in ("first_token_ns", "last_token_ns"))
    first, last = (numbers(steady, name) for name in ("first_token_ns", "last_token_ns"))
    near_ns = SAME_STEP * pd.Series(pace).quantile(SHORT) * NS_PER_MS
    computed_by = total_by(begun, np.nan_to_num(computed_tokens(rows)))
    prompts = (computed_by(last + near_ns) - computed_by(first + near_ns)) / some
    contexts = InFlight.of(begun, ended, np.nan_to_num(mean_context(rows))).mean(first, last)
    parts = pd.DataFrame({"pace": pace, "prompts": prompts, "contexts": contexts})
    means = parts.groupby([steady["category"], steady["turn"], _thirds(len(steady))], dropna=False).transform("mean")
    apart = (parts - means).mul(np.sqrt(units), axis=0).dropna()
    loads = apart[["prompts", "contexts"]].to_numpy(np.float64)
    size = np.maximum(np.linalg.norm(loads, axis=0), 1.0)
    slopes = optimize.nnls(loads / size, apart["pace"].to_numpy(np.float64))[0] / size
    load = parts[["prompts", "contexts"]].to_numpy(np.float64)
    return np.asarray(flow - units * ((load - np.nanmean(load, axis=0)) @ slopes), dtype=np.float64)


def _thirds(size: int) -> Values:
    """Which third each of `size` ordered requests is in: 0, 1 or 2; the first and the last have the same size."""
    place, third = np.arange(size), size // 3
    return np.where(place < third, 0.0, np.where(place < size - third, 1.0, 2.0))


def _compared(rows: pd.DataFrame, flow: Values, units: Values) -> pd.DataFrame | None:
    """Return the requests of the first and the last third whose category and turn are in both; None if too few.

    `rows` are in the order in which they were sent. Columns: `stratum` (category and turn), `late` (in the last third),
    `flow`, `units`, `first_ns`, `last_ns`.
    """
    parts = pd.DataFrame({
        "stratum": pd.Series(list(zip((name or "" for name in rows["category"]), numbers(rows, "turn"), strict=True))),
        "flow": flow, "units": units,
        "first_ns": numbers(rows, "first_token_ns"), "last_ns": numbers(rows, "last_token_ns"),
    })  # fmt: skip
    known = parts[((parts["flow"] > 0) & (parts["units"] > 0)).to_numpy(bool)]
    thirds = _thirds(len(known))
    known = known.assign(late=thirds == 2)[thirds != 1]
    sizes = pd.DataFrame({late: known[known["late"] == late].groupby("stratum").size() for late in (False, True)})
    fewest = sizes.min(axis=1, skipna=False)
    enough = fewest[fewest >= STRATUM_MIN]
    return known[known["stratum"].isin(enough.index)] if enough.sum() >= REQUESTS_MIN else None


def _change(compared: pd.DataFrame) -> tuple[float, float]:
    """The change as a log ratio, weighted over the strata, and the bound on what chance explains.

    Requests in flight together share the engine's steps and its pauses: they are not independent. What the time of a
    request differs by is taken as the mean of noise over its time in flight, and the change as a sum of such means.
    """
    sums = compared.groupby(["stratum", "late"])[["flow", "units"]].transform("sum")
    pace = sums["flow"] / sums["units"]
    halves = [compared.assign(pace=pace)[(compared["late"] == late).to_numpy(bool)] for late in (False, True)]
    sizes = pd.concat([half.groupby("stratum").size() for half in halves], axis=1)
    weights = sizes.prod(axis=1) / sizes.sum(axis=1)
    weights /= weights.sum()
    first, last = (half.groupby("stratum")["pace"].first() for half in halves)
    change = float((weights * np.log(last / first)).sum())
    deviation = compared["flow"] / compared["units"] / pace - 1
    begun, ended = (compared[name].to_numpy(np.float64) for name in ("first_ns", "last_ns"))
    flow_ns = ended - begun
    freedom = len(compared) - 2 * len(weights)
    noise = float((deviation**2 * flow_ns).sum()) / freedom
    shares = (compared["stratum"].map(weights) * compared["units"] / sums["units"]).to_numpy(np.float64) / flow_ns
    together = InFlight.of(begun, ended, shares).mean(begun, ended)
    error = math.sqrt(noise * float((shares * flow_ns * together).sum()))
    return change, error * float(special.stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2))


STEP_TIME_DRIFT: Check[PointEvidence] = Check(
    name="StepTimeDrift",
    severities=(Severity.WARNING,),
    description=(
        "Time per decode step (per output token if steps are not reported) changed within the steady state of a point."
    ),
    threshold=(
        f"more than {CHANGE:.0%} between the first third and the last, compared within category and turn at equal load"
        f" (contexts of the requests in flight, prompts computed), and beyond the {CONFIDENCE:.2%} bound on chance, for"
        f" which requests that were in flight together are not independent; at least {REQUESTS_MIN} requests in each."
        f" In an open loop only if the requests in flight stayed level (within {LEVEL_IN_FLIGHT - 1:.0%}), because step"
        " times follow them"
    ),
    rationale=(
        "Heat and clocks change the speed by a tenth or more. A run may have a hundred points, so at one in ten"
        " thousand chance flags one run in a hundred. Steps take longer the more tokens they read: in valid runs with"
        " a prompt cache and conversations of three turns on 16 streams the time per step rose by up to 46 %, because"
        " contexts grow with every turn, and the prompts of fillers are not cached. A pause of the engine delays every"
        " request in flight: where a third has two requests per stream, one pause changed it by a tenth."
    ),
    remedy=(
        "Fix the clocks, cool the machine, look for other processes on it, raise load.warmupRequests, and measure"
        " again."
    ),
    evaluate=_step_time_drift,
)


DECAY = 0.02


def is_decay(trend: Trend) -> bool:
    """Return whether an acceptance length certainly falls, and by an amount that matters."""
    lost, bounds = trend.change.value, trend.change.interval
    return lost is not None and bounds is not None and bounds.high < 0 and lost < -DECAY


def _acceptance_decays(evidence: CellEvidence) -> CheckResults:
    """An acceptance length that falls over the hours of a soak test: what is deployed becomes slower than measured."""
    trend = next((each for each in evidence.trends if each.name == EMITTED_POOLED.name), None)
    if trend is None or trend.change.interval is None or trend.change.value is None or not is_decay(trend):
        return []
    lost, bounds, hourly = -trend.change.value, trend.change.interval, trend.change_per_hour
    message = (
        f"the acceptance length fell from {trend.start:.2f} to {trend.end:.2f} in {trend.time_words},"
        f" by {lost:.1%} [{-bounds.high:.1%}, {-bounds.low:.1%}]"
    )
    message += "" if hourly is None else f", {-hourly:.1%} an hour"
    message += f"; {trend.restart_words}" if trend.restarts else ""
    return [CheckResult(Severity.FAULT, message, value=lost, threshold=DECAY)]


ACCEPTANCE_DECAYS: Check[CellEvidence] = Check(
    name="AcceptanceDecays",
    severities=(Severity.FAULT,),
    description="The acceptance length falls over the windows of a soak test.",
    threshold=f"a fall of more than {DECAY:.0%} over the test, and an interval of the change below 0",
    rationale=(
        "Reported for several engines after hours of service: a drafter whose state or cache goes wrong accepts ever"
        " fewer tokens, so a speed-up measured in the first minutes is not what users get. The interval of the slope"
        " respects the autocorrelation of windows."
    ),
    remedy=(
        'Measure again with promptCache: "Off": if acceptance is then stable, restored prefixes damage the drafter\'s'
        " state. Report it to the engine's authors with both results, and restart engines more often than it takes."
    ),
    evaluate=_acceptance_decays,
)
