"""One cell as an observation of the step time, with what a step had to do there.

All of it is what a request in decode sees, because its own time per step is what is observed: the batch is itself and
the mean number of the others that were in decode meanwhile, the context is its own and theirs, and prefill is the
prompt tokens of the others whose first token came between its own. So ramp, drain and open loops need no rule of their
own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.stepcost import StepObservation
from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_client.metrics.frame import Values, flags, numbers, points_of, steady
from specbench_client.metrics.pace import STEP_MS, TPOT_MS, flow_ms
from specbench_client.metrics.rows import Columns, Rows, among, pieces, read

_READ = [
    "point",
    "steady",
    "ok",
    "intended_ns",
    "first_token_ns",
    "last_token_ns",
    "input_tokens",
    "cached_tokens",
    "tokens",
    "steps",
    "drafted_tokens",
]
"""All that it asks of a row: it is copied."""
_ANSWERED = ["first_token_ns", "last_token_ns", "input_tokens", "cached_tokens"]
"""Of the answers among which a request was."""
REQUESTS_MIN = 5
"""A median of fewer is no observation."""


@dataclass(frozen=True)
class Place:
    """Which cell: run, arm, workload and load."""

    run: str
    arm: Arm
    workload: str
    level: Level

    @property
    def asked(self) -> int:
        """Draft tokens a step that were asked for."""
        return self.arm.drafter.num_speculative_tokens if self.arm.drafter else 0


def observation(place: Place, rows: pd.DataFrame | Rows) -> StepObservation | None:
    """Return the observation of a cell's tidy rows, or None where steps, times or lengths are not told."""
    inside = steady(rows)
    step_ms, contexts = _step_ms(inside, place.arm), _contexts(inside)
    known = ~(np.isnan(step_ms) | np.isnan(contexts))
    drafts = _draft_tokens(inside, place)
    if known.sum() < REQUESTS_MIN or drafts is None:
        return None
    seen = [_seen_by_each(point, place.arm) for point in points_of(rows, _READ)]
    others, prompts = (max(float(np.nanmean(np.concatenate(each))), 0.0) for each in zip(*seen, strict=True))
    context = float(contexts[known].mean()) + others * _by_steps(contexts, _steps(inside, place.arm))
    return StepObservation(
        run=place.run,
        arm=place.arm.name,
        workload=place.workload,
        load=place.level.label,
        asked_tokens=place.asked,
        draft_tokens=drafts,
        batch=1 + others,
        context_tokens=context,
        prefill_tokens=prompts,
        step_ms=float(np.median(step_ms[known])),
        requests=int(known.sum()),
    )


def _step_ms(rows: Columns, arm: Arm) -> Values:
    """Time per step; without drafts a step is a token."""
    return (TPOT_MS if arm.is_baseline else STEP_MS).values(rows)


def _steps(rows: Columns, arm: Arm) -> Values:
    if arm.is_baseline:
        return np.where(np.isnan(flow_ms(rows)), np.nan, numbers(rows, "tokens") - 1)
    return numbers(rows, "steps")


def _contexts(rows: Columns) -> Values:
    """Tokens in the cache of each request, mean over its decode."""
    return numbers(rows, "input_tokens") + numbers(rows, "tokens") / 2


def _computed(rows: Columns) -> Values:
    """Prompt tokens that are computed; where an engine does not tell cached ones, all of them."""
    return numbers(rows, "input_tokens") - np.nan_to_num(numbers(rows, "cached_tokens"))


def _draft_tokens(rows: Columns, place: Place) -> float | None:
    """Draft tokens a step: as counted, else as asked for."""
    if place.arm.is_baseline:
        return 0.0
    drafted, steps = numbers(rows, "drafted_tokens"), numbers(rows, "steps")
    known = ~(np.isnan(drafted) | np.isnan(steps))
    return float(drafted[known].sum() / steps[known].sum()) if steps[known].sum() > 0 else float(place.asked)


def _seen_by_each(rows: pd.DataFrame | Rows, arm: Arm) -> tuple[Values, Values]:
    """Of each steady request of one point: mean others in decode while it was, and their prompt tokens a step."""
    company = _Company.of(read(among(rows, flags(rows, "ok")), _ANSWERED))
    seen = [company.seen_by(piece, arm) for piece in pieces(steady(rows))]
    others, computed = (np.concatenate(each) for each in zip(*seen, strict=True))
    return others, computed


@dataclass(frozen=True)
class _Running:
    """Moments in order, and the sum of those before each of them."""

    moments: Values
    sums: Values

    @classmethod
    def of(cls, moments: Values) -> _Running:
        ordered = np.sort(moments[~np.isnan(moments)])
        return cls(ordered, np.concatenate([[0.0], np.cumsum(ordered)]))

    def waited(self, until: Values) -> Values:
        """Sum over the moments before each of these of the time since."""
        before = np.searchsorted(self.moments, until)
        return np.asarray(before * until - self.sums[before], dtype=np.float64)


@dataclass(frozen=True)
class _Company:
    """All answers of a point. `tokens`: prompt tokens that were computed before each of them began, and in all."""

    begun: _Running
    ended: _Running
    tokens: Values

    @classmethod
    def of(cls, answered: pd.DataFrame) -> _Company:
        begun, ended = (_Running.of(numbers(answered, name)) for name in ("first_token_ns", "last_token_ns"))
        known = answered[~np.isnan(numbers(answered, "first_token_ns"))].sort_values("first_token_ns")
        return cls(begun, ended, np.concatenate([[0.0], np.cumsum(np.nan_to_num(_computed(known)))]))

    def seen_by(self, looking: Columns, arm: Arm) -> tuple[Values, Values]:
        """Of each of these requests: mean others in decode while it was, and their prompt tokens a step."""
        first, last = numbers(looking, "first_token_ns"), numbers(looking, "last_token_ns")
        flow = np.where(last > first, last - first, np.nan)
        company = self.begun.waited(last) - self.begun.waited(first)
        company = company - self.ended.waited(last) + self.ended.waited(first)
        steps = _steps(looking, arm)
        return company / flow - 1, self._prompts_between(first, last) / np.where(steps > 0, steps, np.nan)

    def _prompts_between(self, first: Values, last: Values) -> Values:
        """Computed prompt tokens whose answers began in (first, last]: their prefill lay among the steps then."""
        before, until = (np.searchsorted(self.begun.moments, moment, side="right") for moment in (first, last))
        return np.asarray(self.tokens[until] - self.tokens[before], dtype=np.float64)


def _by_steps(values: Values, steps: Values) -> float:
    """Mean over steps: a long answer is met more often than a short one."""
    known = ~(np.isnan(values) | np.isnan(steps))
    return float((values[known] * steps[known]).sum() / steps[known].sum())
