"""The steps of an engine, inferred from the arrival times of all chunks of a point.

Chunks of one step arrive together, so that groups of arrivals are the ends of steps. A request decodes in the steps
after that of its first chunk until that of its last one. Its prompt was computed in the steps before, the last of which
is that of its first chunk: in one step, or in several if the engine limits the prompt tokens of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.decode_speed import SAME_STEP, SHORT
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.rows import Columns, Rows, rows_at
from specbench_client.metrics.tidy_frame import Values, numbers
from specbench_client.ragged import RaggedColumn

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class PointSteps:
    """The requests of a point whose chunks are known, shape (requests,), and its steps, shape (steps,); times in ms."""

    rows: NDArray[np.int32]
    """Rows of the requests in the cell."""
    begun: Values
    prompt: Values
    computed: Values
    """Prompt tokens that were not cached."""
    context: Values
    """Mean number of tokens whose keys and values a step reads."""
    first: Indices
    """Step of the first chunk."""
    last: Indices
    previous: Indices
    """The last request of the same conversation or stream to end before each one begins; -1: none."""
    pause: Values
    """Time between both; without a previous request: between the first beginning and its own."""
    ends: Values
    """When each step ended."""
    arrivals: Indices
    """Number of requests of which a chunk arrived at the end of each step."""
    slots: float
    """Mean number of tokens that a step verifies for a request that decodes."""
    near: float
    """Largest time between arrivals of one step."""

    @cached_property
    def decoding(self) -> Values:
        """Number of requests that decode in each step, and their context; shape (2, steps)."""
        changes = np.zeros((2, self.ends.size + 1))
        for row, amount in enumerate((np.ones(self.rows.size), self.context)):
            np.add.at(changes[row], self.first + 1, amount)
            np.add.at(changes[row], self.last + 1, -amount)
        return np.cumsum(changes, axis=1)[:, :-1]

    @cached_property
    def firsts(self) -> Indices:
        """Number of requests whose prompt was complete at the end of each step."""
        return np.bincount(self.first, minlength=self.ends.size)

    def decode_steps(self, *, exclusive: bool) -> Indices:
        """Return in how many steps each request decoded. `exclusive`: not in those that completed prompts of others."""
        prompts = np.cumsum(self.firsts > 0) if exclusive else np.zeros_like(self.firsts)
        return self.last - self.first - (prompts[self.last] - prompts[self.first])

    @cached_property
    def earliest(self) -> Indices:
        """First step that may have computed the prompt of each request: the one after its beginning.

        Where no request decodes, steps cannot be distinguished, so that it is the one of its beginning.
        """
        during = np.minimum(np.searchsorted(self.ends, self.begun - self.near), self.first)
        found: Indices = np.minimum(during + (self.decoding[0][during] > 0), self.first)
        return found

    @cached_property
    def durations(self) -> Values:
        """Time of each step. One in which no request decodes begins with the first request whose chunk ends it."""
        starts = np.append(-np.inf, self.ends[:-1])
        begun = np.full(self.ends.size, np.inf)
        np.minimum.at(begun, self.first, self.begun)
        return self.ends - np.where(self.decoding[0] > 0, starts, np.maximum(starts, begun))


@dataclass(frozen=True)
class PrefillParts:
    """Prompt tokens that a step computes for a request, shape (parts,) each. `start`: first of them by request."""

    request: Indices
    step: Indices
    tokens: Values
    start: Indices


def cached_tokens(rows: Columns) -> Values:
    """Return the cached prompt tokens of each row; NaN if more are recorded than the prompt has. Shape (rows,)."""
    cached = numbers(rows, "cached_tokens")
    return np.where(cached <= numbers(rows, "input_tokens"), cached, np.nan)


def point_steps(rows: pd.DataFrame | Rows, *, closed: bool) -> list[PointSteps]:
    """Return the steps of every point of a cell. `closed`: whether its streams wait for their answers."""
    points = numbers(rows, "repeat")
    usable = ~np.isnan(numbers(rows, "input_tokens") - cached_tokens(rows))
    return [
        found
        for point in np.unique(points[usable])
        if (found := _steps_of(rows, np.flatnonzero((points == point) & usable).astype(np.int32), closed=closed))
    ]


def served_share(points: Sequence[PointSteps]) -> float:
    """Return the share of decoding requests that get tokens from a step that completes a prompt, relative to others.

    It is 1 if such a step also decodes, and 0 if the requests that decode wait. NaN without such steps.
    """
    served, decoding = (np.zeros(2) for _ in range(2))
    for point in points:
        completes = (point.firsts > 0).astype(np.intp)
        served += np.bincount(completes, point.arrivals - point.firsts, 2)
        decoding += np.bincount(completes, point.decoding[0], 2)
    other, complete = (float(each) for each in np.divide(served, decoding, out=np.full(2, np.nan), where=decoding > 0))
    return complete / other if other else np.nan


def _steps_of(cell: pd.DataFrame | Rows, at: NDArray[np.int32], *, closed: bool) -> PointSteps | None:
    """Return the steps of the point with these rows, None if no chunk of them is known."""
    chunks = RaggedColumn.of(rows_at(cell, at)["arrival_ms"], 1)
    sizes = np.bincount(chunks.owner, minlength=at.size)
    at, sizes = at[sizes > 0], sizes[sizes > 0]
    if not at.size:
        return None
    rows = rows_at(cell, at)
    prompt, tokens, drafted, steps, intended, last_token = (
        numbers(rows, name)
        for name in ("input_tokens", "tokens", "drafted_tokens", "steps", "intended_ns", "last_token_ns")
    )
    begun, end = ((each - intended.min()) / NS_PER_MS for each in (intended, last_token))
    owner, bounds = np.repeat(np.arange(at.size), sizes), np.cumsum([0, *sizes])
    times = begun[owner] + chunks.fields[0]
    gaps = np.diff(times)[np.diff(owner) == 0]
    gaps = gaps[gaps > 0]
    near = SAME_STEP * float(np.quantile(gaps, SHORT)) if gaps.size else 0.0
    step, ends = _group(times, near)
    previous = _last_ended(numbers(rows, "stream_index" if closed else "conversation_id"), begun, end)
    drafting = drafted > 0
    return PointSteps(
        rows=at,
        begun=begun,
        prompt=prompt,
        computed=prompt - cached_tokens(rows),
        context=prompt + np.nan_to_num(tokens) / 2,
        first=step[bounds[:-1]],
        last=step[bounds[1:] - 1],
        previous=previous,
        pause=begun - np.where(previous < 0, 0.0, end[previous]),
        ends=ends,
        arrivals=np.bincount(np.unique(owner * ends.size + step) % ends.size, minlength=ends.size),
        slots=1 + float(drafted[drafting].sum() / max(np.nansum(steps[drafting]), 1.0)),
        near=near,
    )


def _group(times: Values, near: float) -> tuple[Indices, Values]:
    """Return the step of each arrival, shape (arrivals,), and the mean arrival of each step, shape (steps,)."""
    order = np.argsort(times, kind="stable")
    new = np.diff(times[order], prepend=-np.inf) > near
    step = np.empty(times.size, dtype=np.intp)
    step[order] = np.cumsum(new) - 1
    return step, np.bincount(step, times) / np.bincount(step)


def _last_ended(series: Values, start: Values, end: Values) -> Indices:
    """Return the request of the same series that ended last when each one started, -1 if none had; shape (requests,).

    Every request must end after its start.
    """
    size = start.size
    order = np.lexsort((np.repeat([0, 1], size), np.concatenate([end, start]), np.tile(series, 2)))
    is_end = order < size
    latest = np.maximum.accumulate(np.where(is_end, np.arange(2 * size), -1))
    found = np.full(size, -1, dtype=np.intp)
    found[order[~is_end] - size] = np.where(latest < 0, -1, order[latest])[~is_end]
    return np.where((found >= 0) & (series[found] == series), found, -1)


def prefill_parts(point: PointSteps, limits: Sequence[float]) -> PrefillParts:
    """Return which steps computed which prompts. `limits`: most prompt tokens of each step.

    Prompts are computed in the order of their first chunks and as late as these allow.
    """
    order = np.lexsort((point.begun, point.first)).tolist()
    first, earliest, computed = point.first.tolist(), point.earliest.tolist(), point.computed.tolist()
    start = [0] * len(order)
    used: defaultdict[int, float] = defaultdict(float)
    for request in reversed(order):
        step, left = first[request], computed[request]
        while True:
            taken = min(left, limits[step] - used[step])
            used[step] += taken
            left -= taken
            if left <= 0 or step <= earliest[request]:
                break
            step -= 1
        start[request] = step
    used.clear()
    parts: list[tuple[int, int, float]] = []
    for request in order:
        left = computed[request]
        for step in range(start[request], first[request] + 1):
            taken = left if step == first[request] else min(left, limits[step] - used[step])
            used[step] += taken
            left -= taken
            if taken > 0:
                parts.append((request, step, taken))
    columns = np.array(parts, dtype=np.float64).reshape(-1, 3).T
    return PrefillParts(columns[0].astype(np.intp), columns[1].astype(np.intp), columns[2], np.array(start))
