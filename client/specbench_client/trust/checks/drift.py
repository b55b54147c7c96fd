"""An engine that changes its speed within one point's steady state: throttled, disturbed, or still warming up.

The first third of the steady requests (in the order in which they were sent) is compared with the last, each pooled:
time per decode step where the engine tells its steps, else time per output token, into which each prompt's own
acceptance comes. Prompts differ, and a file may hold its categories one after the other: only requests of the same
category and turn are compared, and how much prompts alone can do is resampled, with the prompt as the unit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Values, numbers, steady
from specbench_client.metrics.pace import flow_ms, later_tokens
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

CHANGE = 0.1
OPEN_CHANGE = 0.2
CONFIDENCE = 0.9999
RESAMPLES = 500
STRATUM_MIN = 3
PROMPTS_MIN = 8
LEVEL_IN_FLIGHT = 1.1


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    growth = evidence.watch.in_flight_growth
    level = growth is not None and 1 / LEVEL_IN_FLIGHT <= growth <= LEVEL_IN_FLIGHT
    if not evidence.closed and not level:
        return []
    rows = steady(evidence.rows).sort_values("sent_ns", kind="stable").reset_index(drop=True)
    what, units = _pace(rows)
    strata = _strata(rows, units)
    if sum(min(stratum.sizes) for stratum in strata) < PROMPTS_MIN:
        return []
    seed = evidence.plan.workload(evidence.point.workload).sampling.seed
    change, uncertainty = _change(strata, seed)
    least = max(math.log1p(_tolerated(evidence, len(rows))), uncertainty)
    if abs(change) <= least:
        return []
    message = (
        f"time per {what} changed by {math.expm1(change):+.0%} from the first third of the steady state to the last"
        f" (prompts alone: up to {math.expm1(uncertainty):.0%}): the engine was not the same all the while"
    )
    return [Seen(Severity.DOUBT, message, value=math.expm1(change), threshold=math.expm1(least))]


def _tolerated(evidence: PointEvidence, requests: int) -> float:
    """The change that is nobody's fault, by how many requests are steady.

    Where a third of them is less than one turn of the streams, all of it began among the same others, as in an open
    loop: whose prompts were read in its steps is one chance for all, which drawing prompts anew does not show.
    """
    streams = evidence.point.level.concurrency
    return OPEN_CHANGE if streams is None or requests // 3 < streams else CHANGE


@dataclass(frozen=True)
class _Stratum:
    """Prompts of one category and turn: their flow (ms) and their units, in the first third and in the last."""

    first: Values
    last: Values

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.first), len(self.last)

    @property
    def weight(self) -> float:
        return len(self.first) * len(self.last) / (len(self.first) + len(self.last))

    def change(self, first: Values, last: Values) -> Values:
        """Log ratio of the pooled times per unit, the last over the first; each prompt as often as it is given."""
        before, after = first @ self.first, last @ self.last
        return np.asarray(np.log(after[..., 0] / after[..., 1]) - np.log(before[..., 0] / before[..., 1]))


def _pace(rows: pd.DataFrame) -> tuple[str, Values]:
    """What the unit of time is called, and how many of them each request has."""
    steps = numbers(rows, "steps")
    return ("output token", later_tokens(rows)) if np.isnan(steps).any() else ("decode step", steps)


def _strata(rows: pd.DataFrame, units: Values) -> list[_Stratum]:
    """What can be compared of rows that stand in the order in which they were sent."""
    parts = pd.DataFrame({
        "category": [name or "" for name in rows["category"]], "turn": numbers(rows, "turn"),
        "prompt": rows["prompt_id"], "flow": flow_ms(rows), "units": units,
    })  # fmt: skip
    known = parts[((parts["flow"] > 0) & (parts["units"] > 0)).to_numpy(bool)]
    third = len(known) // 3
    first, last = _by_stratum(known[:third]), _by_stratum(known[len(known) - third :])
    found = [_Stratum(prompts, last[key]) for key, prompts in first.items() if key in last]
    return [stratum for stratum in found if min(stratum.sizes) >= STRATUM_MIN]


def _by_stratum(part: pd.DataFrame) -> dict[Hashable, Values]:
    """Flow and units of each prompt, by category and turn."""
    sums = part.groupby(["category", "turn", "prompt"])[["flow", "units"]].sum()
    found: dict[Hashable, list[Values]] = {}
    for (category, turn, _), prompt in zip(sums.index, sums.to_numpy(np.float64), strict=True):
        found.setdefault((category, turn), []).append(prompt)
    return {key: np.stack(prompts) for key, prompts in found.items()}


def _change(strata: Sequence[_Stratum], seed: int) -> tuple[float, float]:
    """The change as a log ratio, weighed over the strata, and what chance in the choice of prompts can do."""
    rng = np.random.default_rng(seed)
    weights = np.array([stratum.weight for stratum in strata]) / sum(stratum.weight for stratum in strata)
    seen = [stratum.change(*(np.ones(size) for size in stratum.sizes)) for stratum in strata]
    drawn = [stratum.change(*(_draws(rng, size) for size in stratum.sizes)) for stratum in strata]
    freedom = sum(first + last - 2 for first, last in (stratum.sizes for stratum in strata))
    units = freedom + 2 * len(strata)
    error = float(np.std(weights @ np.stack(drawn))) * math.sqrt(units / freedom)
    return float(weights @ np.array(seen)), error * float(special.stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2))


def _draws(rng: np.random.Generator, size: int) -> Values:
    """How often each of so many prompts comes up when as many are drawn with replacement, resample by resample."""
    return rng.multinomial(size, [1 / size] * size, RESAMPLES).astype(np.float64)


CHECK: Check[PointEvidence] = Check(
    name="Drift",
    severities=(Severity.DOUBT,),
    says="Time per decode step (per output token where steps are not told) changed within one point's steady state.",
    threshold=(
        f"more than {CHANGE:.0%} ({OPEN_CHANGE:.0%} in an open loop, and where a third has fewer requests than streams)"
        " between the first third and the last, compared"
        f" within category and turn, and beyond the {CONFIDENCE:.2%} bootstrap bound (unit: prompt); at least"
        f" {PROMPTS_MIN} prompts in each. In an open loop only where the requests in flight stayed level (within"
        f" {LEVEL_IN_FLIGHT - 1:.0%}): step times follow them"
    ),
    argument=(
        "Heat and clocks move by a tenth and more when they move. A run has a hundred points and more: at one in ten"
        " thousand, chance alone doubts one run in a hundred. In an open loop it is chance, too, whose prompts are read"
        " in the same steps: one of a hundred honest open loops changed by a tenth. So it is where a third is less than"
        " one turn of the streams: two of two hundred honest runs, 35 prompts on 16 streams, changed by 10 % to 17 %,"
        " in every repeat alike; the same with three times the prompts by 3 %."
    ),
    remedy="Fix the clocks, cool the machine, look for neighbours; raise load.warmupRequests; measure again.",
    look=_look,
)
