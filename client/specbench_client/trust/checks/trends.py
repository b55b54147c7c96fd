"""Checks whether an engine changes over time: its steps within a point, its acceptance over a soak test."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from specbench_client.documents.finding import Severity
from specbench_client.documents.summary import Trend
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.concurrent_requests import InFlight, computed_tokens, mean_context, total_by
from specbench_client.metrics.rows import Table, group_numbers
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.metrics.time_per_token import SAME_STEP, SHORT, flow_ms, later_tokens, timed_steps
from specbench_client.numpy_columns import Values
from specbench_client.trust.check_type import CheckResult, CheckResults, check
from specbench_client.trust.evidence import CellEvidence, PointEvidence

CHANGE = 0.1
CONFIDENCE = 0.99999
REQUESTS_MIN = 8
FIXED, LOADS = 4, 2
"""Columns of the regression besides the last third: the middle third and the places; the loads."""
LOAD_ERROR = 0.25
"""Error of the time that the load of steps explains: contexts and prompts are means over the time of a request."""
IDENTICAL = 1e-9
MOST = 1.9
LEVEL_IN_FLIGHT = 1.1


@check(
    name="StepTimeDrift",
    severities=(Severity.WARNING,),
    threshold=(
        f"more than {CHANGE:.0%} between the first third of the steady requests and the last, at equal load of the"
        " steps: tokens in the contexts of the requests in flight, and prompt tokens computed. As the cost of load is"
        f" not exact, {LOAD_ERROR:.0%} of what it explains is added to the {CHANGE:.0%}. The change must also be more"
        f" than chance explains at {CONFIDENCE:.3%}; requests in flight together count as fewer, because they share the"
        f" engine's pauses. At least {REQUESTS_MIN} requests of each third have a counterpart of the same turn in the"
        " other one, and with a drafter of the same category; else the point is not checked. In an open loop only if"
        f" the requests in flight stayed level (within {LEVEL_IN_FLIGHT - 1:.0%}), because step times follow them"
    ),
    rationale=(
        "Heat and clocks change the speed by a tenth or more. A run may have a hundred points: at a chance of one in a"
        " hundred thousand for each, one run in a thousand has a false alarm. Steps take longer the more tokens they"
        " read: in valid runs with a prompt cache and conversations of three turns on 16 streams, the time per step"
        " rose by up to 46 %, because contexts grow with every turn, and the prompts of fillers are not cached. If"
        " prompts grow with time, as in a file sorted by length, the check cannot distinguish them from a slower"
        " engine: shuffle the file."
    ),
    remedy=(
        "Fix the clocks, cool the machine, look for other processes on it, raise load.warmupRequests, and measure"
        " again."
    ),
    imported_remedy=(
        "Fix the clocks, cool the machine, look for other processes on it, let the benchmark warm the engine "
        "up, and run it again."
    ),
)
def step_time_drift(evidence: PointEvidence) -> CheckResults:
    """Time per decode step (per output token if steps are not reported) changed within the steady state of a point.

    The first third of the steady requests, in the order in which they were sent, is compared with the last third: by
    time per decode step if the engine reports its steps, else by time per output token, which also depends on each
    prompt's acceptance. Prompts differ, a file may be sorted by category, and batches change: see `_change`.
    """
    growth = evidence.health.in_flight_growth
    level = growth is not None and 1 / LEVEL_IN_FLIGHT <= growth <= LEVEL_IN_FLIGHT
    if not evidence.closed and not level:
        return []
    rows = evidence.steady.at(np.argsort(numbers(evidence.steady, "sent_ns"), kind="stable"))
    what, steady, units = paced(rows)
    found = _change(evidence.rows, steady, units, _strata(steady))
    if found is None:
        return []
    change, chance, load = found
    least = max(math.log1p(CHANGE), chance) + load
    if abs(change) <= least:
        return []
    value, by_chance, by_load, threshold = (
        math.expm1(math.copysign(part, change)) for part in (change, chance, load, least)
    )
    message = (
        f"time per {what} changed by {value:+.0%} from the first third of the steady state to the last (chance explains"
        f" up to {by_chance:+.0%}, load perhaps another {by_load:+.0%}): the engine's speed was not constant"
    )
    return [CheckResult(Severity.WARNING, message, value=value, threshold=threshold)]


def paced(rows: Table) -> tuple[str, Table, Values]:
    """Return the name of the unit of time, the requests whose time per unit is known, and how many units each has."""
    steps = timed_steps(rows)
    what, units = ("output token", later_tokens(rows)) if np.isnan(steps).any() else ("decode step", steps)
    timed = (flow_ms(rows) > 0) & (units > 0)
    return what, rows.among(timed), units[timed]


def _strata(rows: Table) -> NDArray[np.intp]:
    """Return which requests take equally long, as far as can be known: a number for each, shape (rows,).

    Those of the same turn; with a drafter, also of the same category, because drafts and acceptance depend on it.
    """
    drafting = np.isnan(numbers(rows, "steps")).any() or (numbers(rows, "drafted_tokens") > 0).any()
    turn = rows.column("turn")
    return group_numbers(rows.column("category"), turn) if drafting else group_numbers(turn)


def _change(rows: Table, steady: Table, units: Values, strata: NDArray[np.intp]) -> tuple[float, float, float] | None:
    """The change from the first third to the last, what chance explains at most, and what load may; as log ratios.

    `steady` are requests with known times and `units`, in the order in which they were sent; `rows` are all requests.
    None if too few of the same stratum are in both thirds, or if nothing tells time and load apart.

    The time per unit is regressed on the third; on the stratum; on the load of the steps, whose cost is not negative;
    and on the place within each third, so that a drift is not taken for the cost of a load that grows.
    Requests in flight together share the engine's steps and pauses, and are not independent: what a request's time
    differs by is taken as the mean of noise over its time in flight.
    """
    place = np.arange(len(steady), dtype=np.float64)
    third = len(steady) // 3
    thirds = np.stack([place < third, (third <= place) & (place < len(steady) - third), place >= len(steady) - third])
    first, _, last = (np.bincount(strata[each], minlength=len(steady)) for each in thirds)
    if np.minimum(first, last).sum() < REQUESTS_MIN:
        return None
    flow = flow_ms(steady)
    loads = _loads(rows, steady, units, flow / units)
    places = [each * (place - np.average(place, weights=units * each)) / third for each in thirds]
    columns = np.column_stack([flow / units * (units.sum() / flow.sum()), thirds[2], thirds[1], *places, loads])
    apart = _within_strata(columns, strata, units)
    pace, late = apart[:, 0], apart[:, 1]
    others = _without_gains(late, apart[:, 2:], pace)
    unexplained = late - others @ _fit(others, late)
    size = float(unexplained @ unexplained)
    freedom = len(steady) - len(np.unique(strata)) - others.shape[1] - 1
    if size <= IDENTICAL * float(late @ late) or freedom < 1:
        return None
    change = float(unexplained @ pace) / size
    without_change = pace - change * late
    residual = without_change - others @ _fit(others, without_change)
    begun, ended = (numbers(steady, name) for name in ("first_token_ns", "last_token_ns"))
    flow_ns = ended - begun
    noise = float((residual**2 / units * flow_ns).sum()) / freedom
    shares = np.sqrt(units) * unexplained / size / flow_ns
    variance = noise * float((shares * flow_ns * InFlight.of(begun, ended, shares).mean(begun, ended)).sum())
    half = float(np.clip(change, -MOST, MOST)) / 2
    bound = math.sqrt(max(variance, 0.0)) * float(scipy.special.stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2))
    without_load = float(_fit(np.column_stack([late, others[:, :FIXED]]), pace)[0])
    return math.log((1 + half) / (1 - half)), bound, LOAD_ERROR * abs(without_load - change)


def _within_strata(columns: Values, strata: NDArray[np.intp], units: Values) -> Values:
    """Return the columns without the means of their stratum, weighted for least squares; shape (requests, columns)."""
    sums = np.zeros((int(strata.max()) + 1, columns.shape[1]))
    np.add.at(sums, strata, columns * units[:, None])
    means = (sums / np.bincount(strata, units)[:, None])[strata]
    return np.asarray((columns - means) * np.sqrt(units)[:, None], dtype=np.float64)


def _fit(columns: Values, target: Values) -> Values:
    """Return the coefficients of least squares, shape (columns,)."""
    return np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], dtype=np.float64)


def _without_gains(late: Values, others: Values, pace: Values) -> Values:
    """Leave out loads, the last columns of `others`, that would make steps shorter."""
    loads = LOADS
    while loads:
        costs = _fit(np.column_stack([late, others]), pace)[-loads:]
        kept = np.append(np.ones(others.shape[1] - loads, dtype=bool), costs >= 0)
        if kept.all():
            break
        others, loads = others[:, kept], int((costs >= 0).sum())
    return others


def _loads(rows: Table, steady: Table, units: Values, unit_ms: Values) -> Values:
    """What makes the steps of each steady request longer, relative to the most of any, shape (steady, 2).

    Prompt tokens that are computed in a step: few while the prompt cache has them. And tokens whose keys and values it
    reads: the contexts of the requests in flight, which grow with every turn of their conversations. `unit_ms`: the
    time per unit of each steady request.
    """
    begun, ended = (numbers(rows, name) for name in ("first_token_ns", "last_token_ns"))
    first, last = (numbers(steady, name) for name in ("first_token_ns", "last_token_ns"))
    near_ns = SAME_STEP * float(np.quantile(unit_ms, SHORT)) * NS_PER_MS
    computed_by = total_by(begun, np.nan_to_num(computed_tokens(rows)))
    prompts = (computed_by(last + near_ns) - computed_by(first + near_ns)) / units
    contexts = InFlight.of(begun, ended, np.nan_to_num(mean_context(rows))).mean(first, last)
    loads = np.stack([prompts, contexts], axis=1)
    return np.asarray(loads / np.maximum(loads.max(axis=0), 1.0), dtype=np.float64)


DECAY = 0.02


def is_decay(trend: Trend) -> bool:
    """Return whether an acceptance length certainly falls, and by an amount that matters."""
    lost, bounds = trend.change.value, trend.change.interval
    return lost is not None and bounds is not None and bounds.high < 0 and lost < -DECAY


@check(
    name="AcceptanceDecays",
    severities=(Severity.FAULT,),
    threshold=f"a fall of more than {DECAY:.0%} over the test, and an interval of the change below 0",
    rationale=(
        "Reported for several engines after hours of service: a drafter whose state or cache goes wrong accepts ever"
        " fewer tokens, so a speed-up measured in the first minutes is not what users get. The interval of the slope"
        " respects the autocorrelation of windows."
    ),
    remedy=(
        "If prompts were cached (promptCache: AsServed), measure again with promptCache: Disabled: if acceptance is"
        " then stable, restored prefixes damage the drafter's state. Report it to the engine's authors with both"
        " results, and restart engines more often than it takes."
    ),
)
def acceptance_decays(evidence: CellEvidence) -> CheckResults:
    """The acceptance length falls over the windows of a soak test."""
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
