"""One cell as an observation of the step time, with what a step had to do there.

All of it is what a request in decode sees, because its own time per step is what is observed: the batch is itself and
the mean number of the others in decode, the context is its own and theirs, and prefill is that of the others alone. A
closed loop of n streams has n − 1 others; in an open loop the others are as many as there are on the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.stepcost import StepObservation
from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_client.metrics.frame import Values, flags, numbers, steady
from specbench_client.metrics.pace import STEP_MS, TPOT_MS, flow_ms
from specbench_client.metrics.window import Window, steady_window

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


def observation(place: Place, rows: pd.DataFrame) -> StepObservation | None:
    """Return the observation of a cell's tidy rows, or None where steps, times or lengths are not told."""
    inside = steady(rows)
    step_ms, steps = _step_ms(inside, place.arm), _steps(inside, place.arm)
    own, prompt = _own_context(inside), _computed_prompt(inside)
    others, drafts = _others(rows, place.level), _draft_tokens(inside, place)
    known = ~np.isnan(step_ms)
    if known.sum() < REQUESTS_MIN or None in (own, prompt, others, drafts) or not np.nansum(steps):
        return None
    assert own is not None
    assert prompt is not None
    assert others is not None
    assert drafts is not None
    return StepObservation(
        run=place.run,
        arm=place.arm.name,
        workload=place.workload,
        load=place.level.label,
        asked_tokens=place.asked,
        draft_tokens=drafts,
        batch=1 + others,
        context_tokens=own + others * _by_steps(_contexts(inside), steps),
        prefill_tokens=others * prompt / float(np.nanmean(steps)),
        step_ms=float(np.median(step_ms[known])),
        requests=int(known.sum()),
    )


def _step_ms(rows: pd.DataFrame, arm: Arm) -> Values:
    """Time per step; without drafts a step is a token."""
    return (TPOT_MS if arm.is_baseline else STEP_MS).values(rows)


def _steps(rows: pd.DataFrame, arm: Arm) -> Values:
    if arm.is_baseline:
        return np.where(np.isnan(flow_ms(rows)), np.nan, numbers(rows, "tokens") - 1)
    return numbers(rows, "steps")


def _contexts(rows: pd.DataFrame) -> Values:
    """Tokens in the cache of each request, mean over its decode."""
    return numbers(rows, "input_tokens") + numbers(rows, "tokens") / 2


def _own_context(rows: pd.DataFrame) -> float | None:
    return _mean(_contexts(rows))


def _computed_prompt(rows: pd.DataFrame) -> float | None:
    """Prompt tokens that are computed; where an engine does not tell cached ones, all of them."""
    return _mean(numbers(rows, "input_tokens") - np.nan_to_num(numbers(rows, "cached_tokens")))


def _draft_tokens(rows: pd.DataFrame, place: Place) -> float | None:
    """Draft tokens a step: as counted, else as asked for."""
    if place.arm.is_baseline:
        return 0.0
    drafted, steps = numbers(rows, "drafted_tokens"), numbers(rows, "steps")
    known = ~(np.isnan(drafted) | np.isnan(steps))
    return float(drafted[known].sum() / steps[known].sum()) if steps[known].sum() > 0 else float(place.asked)


def _others(rows: pd.DataFrame, level: Level) -> float | None:
    """Requests in decode beside the one that looks, mean over the points."""
    found = [_in_decode(point) for _, point in rows.groupby("point", sort=True)]
    known = [each for each in found if each is not None]
    if not known:
        return None
    mean = float(np.mean(known))
    return mean if level.concurrency is None else mean * (level.concurrency - 1) / level.concurrency


def _in_decode(rows: pd.DataFrame) -> float | None:
    """Mean requests between first and last token over a point's steady window."""
    window = steady_window(rows)
    return None if window is None else _overlap(rows[flags(rows, "ok")], window) / (window.end_ns - window.start_ns)


def _overlap(rows: pd.DataFrame, window: Window) -> float:
    starts = np.clip(numbers(rows, "first_token_ns"), window.start_ns, window.end_ns)
    ends = np.clip(numbers(rows, "last_token_ns"), window.start_ns, window.end_ns)
    return float(np.nansum(ends - starts))


def _by_steps(values: Values, steps: Values) -> float:
    """Mean over steps: a long answer is met more often than a short one."""
    known = ~(np.isnan(values) | np.isnan(steps))
    return float((values[known] * steps[known]).sum() / steps[known].sum())


def _mean(values: Values) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
