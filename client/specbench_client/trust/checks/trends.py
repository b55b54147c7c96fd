"""Checks whether an engine changes over time: its steps within a point, its acceptance over a soak test."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import Trend
from specbench_api.spec.engine import PromptCache
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.decode_speed import SAME_STEP, SHORT, flow_ms, later_tokens, total_by
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.tidy_frame import Values, numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence, PointEvidence

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
