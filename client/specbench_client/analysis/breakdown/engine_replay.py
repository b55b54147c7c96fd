"""A model of an engine's steps, fitted to the requests of a cell, that replays them with other prompt lengths.

All requests in flight share the steps of the engine. A step takes

    base + per request × requests that decode + per context token × their context + per token × prompt tokens computed

and gives every request its next tokens. A request joins at the first step after its beginning, which computes its
prompt; where the prompt must have taken longer, the fit spreads it over several steps. So each request has two
equations: the time from its first step to its first token, and from there to its last. They are fitted together, by
least squares with costs that are not negative and little weight on outliers, with a pace for each point. Where the load
hardly varies, what follows the load cannot be distinguished from `base`, and a share of it is assumed.

A replay runs the steps again. Requests of an open loop begin when they did; later ones of a conversation, and all of a
closed loop, begin after the same pause as they did, which counts from the last end in their conversation or stream
before. So it contains what one token costs all others, queues included, and the number of requests in flight that
results.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from specbench_api.outcome.reuse import SplitMissing
from specbench_client.metrics.decode_speed import SAME_STEP, SHORT
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.rows import Columns
from specbench_client.metrics.tidy_frame import Mask, Values, numbers

PASSES = 10
"""Fits in sequence: each one weights the requests in flight by the steps of the previous one."""
INDEPENDENT_SHARE_MIN = 1e-3
"""Smallest share of a column outside the span of the others; below it the column counts as their combination."""
ERROR_SHARE_MIN = 1e-3
"""Smallest error of an equation, as a share of the mean of its left side; it bounds the weights."""
LOAD_SHARE = 0.3
"""Assumed share of a step's time that follows the number of requests, and the same for their context. Both have a
standard deviation of their own size, because loads that hardly vary tell nothing about them."""
HUBER = 2.0
"""Errors beyond so many of their typical size have less weight: an engine sometimes pauses for many steps."""
SIGMA_PER_MEDIAN = 1.4826
"""Standard deviation over the median absolute error, of a normal distribution."""
_TOKEN, _BASE, _CONTEXT, _REQUEST, _WAIT, _LATE = range(6)
"""The columns of the equations: the costs, and the time before a request's first step, if no event is known in it and
after the last such event."""
_COSTS = 6
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class PointRequests:
    """The completed requests of one point, shape (requests,) each; times are in ms."""

    rows: Indices
    """Their rows in the cell."""
    begun: Values
    first: Values
    last: Values
    computed: Values
    """Prompt tokens that were not cached."""
    context: Values
    """Mean number of tokens whose keys and values a step reads."""
    steps: Values
    """Steps after that of the first token."""
    previous: Indices
    """The last request of the same conversation or stream to end before each one begins; -1: none."""
    pause: Values
    """Time between both; without a previous request: between the first beginning and its own."""


@dataclass(frozen=True)
class EngineCosts:
    """Costs of a step in ms."""

    token: float
    base: float
    request: float
    context: float

    def at_pace(self, pace: float) -> EngineCosts:
        """Return the costs of a machine that takes so many times as long."""
        return EngineCosts(*(pace * cost for cost in (self.token, self.base, self.request, self.context)))


@dataclass(frozen=True)
class EngineFit:
    """The costs of all points together, and of each one.

    `paces`: factor on the costs of each point, because launches differ, shape (points,). `influence`: of each row of
    the cell on `costs.token`, 0 for those that are not fitted, shape (rows,).
    """

    costs: EngineCosts
    paces: Values
    influence: Values

    @property
    def by_point(self) -> list[EngineCosts]:
        """The costs of each point."""
        return [self.costs.at_pace(pace) for pace in self.paces.tolist()]


def cached_tokens(rows: Columns) -> Values:
    """Return the cached prompt tokens of each row; NaN if more are recorded than the prompt has. Shape (rows,)."""
    cached = numbers(rows, "cached_tokens")
    return np.where(cached <= numbers(rows, "input_tokens"), cached, np.nan)


def requests_by_point(rows: Columns, *, closed: bool) -> list[PointRequests]:
    """Return the completed requests of a cell by point. `closed`: whether its streams wait for their answers."""
    names = ("intended_ns", "first_token_ns", "last_token_ns", "input_tokens", "tokens", "steps")
    begun, first, last, prompt, tokens, steps = (numbers(rows, name) for name in names)
    cached = cached_tokens(rows)
    steps = np.where(np.isnan(steps), numbers(rows, "chunks") - 1, steps)
    points = numbers(rows, "repeat")
    series = numbers(rows, "stream_index" if closed else "conversation_id")
    found = []
    for point in np.unique(points):
        at = np.flatnonzero((points == point) & (last >= first) & (last > begun) & ~np.isnan(prompt - cached))
        start, end = begun[at], last[at]
        zero, previous = start.min(initial=np.inf), _last_ended(series[at], start, end)
        found.append(
            PointRequests(
                rows=at,
                begun=(start - zero) / NS_PER_MS,
                first=(first[at] - zero) / NS_PER_MS,
                last=(end - zero) / NS_PER_MS,
                computed=(prompt - cached)[at],
                context=(prompt + np.nan_to_num(tokens) / 2)[at],
                steps=np.maximum(np.nan_to_num(steps[at]), 0.0),
                previous=previous,
                pause=(start - np.where(previous < 0, zero, end[previous])) / NS_PER_MS,
            )
        )
    return found


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


def fit_engine(points: Sequence[PointRequests], fitted: Mask) -> EngineFit | SplitMissing:
    """Fit the model to the rows of a mask, shape (rows,); return the reason if the cost of a token is not found."""
    if not points:
        return SplitMissing.TOO_FEW_STEPS
    # An answer whose tokens all arrived at once has no step times.
    chosen = [fitted[each.rows] & (each.steps > 0) & (each.last > each.first) for each in points]
    among = np.concatenate([each.rows[mask] for each, mask in zip(points, chosen, strict=True)])
    means = np.concatenate([
        (each.last - each.first)[mask] / each.steps[mask] for each, mask in zip(points, chosen, strict=True)
    ])  # fmt: skip
    if 2 * among.size <= _COSTS:
        return SplitMissing.TOO_FEW_STEPS
    near = SAME_STEP * float(np.quantile(means, SHORT))
    costs, weights = np.zeros(_COSTS), np.ones((2, among.size))
    owner = np.repeat(np.arange(len(points)), [mask.sum() for mask in chosen])
    paces = np.ones(len(points))
    for _ in range(PASSES):
        # Shape (equations, columns + 1, requests): the last column is the left side.
        equations = np.concatenate(
            [_equations(each, costs, near)[:, :, mask] for each, mask in zip(points, chosen, strict=True)], axis=2
        )
        equations[:, _COSTS] /= paces[owner]
        weighted = equations * weights[:, np.newaxis, :]
        costs, active = _solve(np.concatenate([weighted, _assumed(equations[1], costs)], axis=2))
        paces *= _paces(equations[1], costs, owner, len(points))
        errors = equations[:, _COSTS] - np.einsum("ecr,c->er", equations[:, :_COSTS], costs)
        least = ERROR_SHARE_MIN * equations[:, _COSTS].mean(axis=1)
        sizes = np.maximum(SIGMA_PER_MEDIAN * np.median(np.abs(errors), axis=1), least)[:, np.newaxis]
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            return SplitMissing.NO_COST
        weights = np.sqrt(1.0 / np.maximum(np.abs(errors) / (HUBER * sizes), 1.0)) / sizes
    if not costs[_TOKEN] > 0:
        return SplitMissing.NO_COST
    influence = np.zeros(fitted.size)
    known = np.concatenate([weighted, _assumed(equations[1], costs)], axis=2)[:, active]
    inverse = np.linalg.pinv(np.einsum("ecr,edr->cd", known, known))[active.index(_TOKEN)]
    left = weighted[:, _COSTS] - np.einsum("ecr,c->er", weighted[:, :_COSTS], costs)
    influence[among] = np.einsum("c,ecr,er->r", inverse, weighted[:, active], left)
    found = EngineCosts(*(float(costs[column]) for column in (_TOKEN, _BASE, _REQUEST, _CONTEXT)))
    return EngineFit(found, paces, influence)


def _assumed(equations: Values, costs: Values) -> Values:
    """Return what is assumed about a step, as weighted equations, shape (2, columns + 1, 1); zeros without costs."""
    found = np.zeros((2, _COSTS + 1, 1))
    per_step = equations[:_COSTS].sum(axis=1) / equations[_BASE].sum()
    step_ms = float(sum(costs[column] * per_step[column] for column in (_BASE, _REQUEST, _CONTEXT)))
    if step_ms > 0:
        for row, column in enumerate((_REQUEST, _CONTEXT)):
            found[row, column], found[row, _COSTS] = per_step[column] / (LOAD_SHARE * step_ms), 1.0
    return found


def _paces(equations: Values, costs: Values, owner: Indices, points: int) -> Values:
    """Return the median ratio of observed to modelled times by point, relative to their mean, shape (points,).

    `equations` have the shape (columns + 1, requests); `owner` is the point of each request.
    """
    ratios = equations[_COSTS] / np.maximum(costs @ equations[:_COSTS], np.finfo(float).tiny)
    found = np.ones(points)
    for each in np.unique(owner):
        found[each] = np.median(ratios[owner == each])
    return np.asarray(found / found.mean())


def _equations(point: PointRequests, costs: Values, near: float) -> Values:
    """Return the equations of the time to the first token, from the step that begins the prompt, and of the time after.

    Shape (2, columns + 1, requests).
    """
    # A step ends at each event: a first or a last token.
    events = np.concatenate([point.first, point.last])
    order = np.argsort(events, kind="stable")
    times = events[order]
    change = np.repeat([1.0, -1.0], point.first.size)
    changes = np.stack([change, change * np.tile(point.context, 2)])[:, order]
    # Requests that decode and their context, before the first event and after each, and the step that they take.
    load = np.concatenate([np.zeros((2, 1)), np.cumsum(changes, axis=1)], axis=1)
    step_ms = costs[_BASE] + costs[_REQUEST] * load[0] + costs[_CONTEXT] * load[1]
    divisor = np.where(step_ms > 0, step_ms, 1.0)
    started, before = _prefill_starts(point, costs, times, near)
    at_start = np.searchsorted(times, started, side="right")
    boundary = np.maximum(np.append(-np.inf, times)[at_start], point.begun)
    known = boundary > point.begun
    computed_by = _spread(started, point.first, point.computed)
    found = np.zeros((2, _COSTS + 1, point.first.size))
    found[:, _COSTS] = point.first - boundary, point.last - point.first
    found[0, _TOKEN] = computed_by(point.first) - computed_by(np.maximum(boundary, started - near))
    found[1, _TOKEN] = computed_by(point.last) - computed_by(point.first)
    found[0, _WAIT], found[0, _LATE] = ~known, known
    several = np.rint((found[0, _COSTS] - costs[_TOKEN] * found[0, _TOKEN]) / divisor[at_start])
    split = (started < before - near) & (step_ms[at_start] > 0)
    found[0, _BASE] = np.where(split, np.maximum(several, 1.0), 1.0)
    found[0, _REQUEST], found[0, _CONTEXT] = found[0, _BASE] * load[:, at_start]
    # Steps between two events, and the requests that decode there.
    passed = np.maximum(np.diff(times - costs[_TOKEN] * computed_by(times)), 0.0) / divisor[1:-1]
    # Whole steps, so that the noise of one that computes a prompt does not count as more or fewer of the others.
    whole = np.where(np.diff(times) > near, np.maximum(np.rint(passed), 1.0), 0.0)
    steps = np.where(step_ms[1:-1] > 0, whole, passed)
    sums = np.cumsum(np.stack([np.ones(steps.size), *load[:, 1:-1]]) * steps, axis=1)
    sums = np.concatenate([np.zeros((3, 1)), sums], axis=1)
    place = np.argsort(order)
    during = sums[:, place[point.first.size :]] - sums[:, place[: point.first.size]]
    mean = during[1:] / np.maximum(during[0], np.finfo(float).tiny)
    found[1, _BASE], (found[1, _REQUEST], found[1, _CONTEXT]) = point.steps, point.steps * mean
    return found


def _prefill_starts(point: PointRequests, costs: Values, times: Values, near: float) -> tuple[Values, Values]:
    """Return when the prompt of each request began to be computed, and the last event before its first token."""
    before = np.append(-np.inf, times)[np.searchsorted(times, point.first - near, side="right")]
    needed = point.first - costs[_TOKEN] * point.computed - costs[_BASE]
    known = before > point.begun
    started = np.where(known, np.where(needed < before - near, needed, before), np.minimum(needed, point.first - near))
    return np.maximum(started, point.begun), before


def _spread(start: Values, end: Values, amounts: Values) -> Callable[[Values], Values]:
    """Return a function of times: the sum of the amounts until then, each spread evenly from its start to its end."""
    rates = amounts / np.maximum(end - start, np.finfo(float).eps)
    times, changes = np.concatenate([start, end]), np.concatenate([rates, -rates])
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    rate = np.cumsum(changes[order])
    totals = np.append(0.0, np.cumsum(rate[:-1] * np.diff(ordered)))
    return lambda until: np.interp(until, ordered, totals)


def _solve(equations: Values) -> tuple[Values, list[int]]:
    """Return the costs, and the columns that have one; columns that others determine have none."""
    matrix = np.moveaxis(equations, 1, 2).reshape(-1, _COSTS + 1)
    triangle: Values = np.linalg.qr(matrix, mode="r")  # type: ignore[assignment]  # the stubs ignore the mode
    lengths = np.sqrt((triangle**2).sum(axis=0))
    own = np.abs(np.diagonal(triangle)) > INDEPENDENT_SHARE_MIN * lengths
    columns = [column for column in range(_COSTS) if own[column]]
    found, _ = optimize.nnls(triangle[:, columns] / lengths[columns], triangle[:, _COSTS])
    costs = np.zeros(_COSTS)
    costs[columns] = found / lengths[columns]
    return costs, [column for column in columns if costs[column] > 0]


def replay(point: PointRequests, costs: EngineCosts, computed: Values) -> Values:
    """Return the E2E latency of each request in ms, if so many tokens of its prompt are computed."""
    following: list[list[int]] = [[] for _ in range(point.rows.size)]
    for request in np.flatnonzero(point.previous >= 0).tolist():
        following[point.previous[request]].append(request)
    load = (costs.request + costs.context * point.context).tolist()
    prefill, steps, pause = ((costs.token * computed).tolist(), point.steps.tolist(), point.pause.tolist())
    waiting = [(pause[request], request) for request in np.flatnonzero(point.previous < 0).tolist()]
    heapq.heapify(waiting)
    running: list[tuple[float, int]] = []
    begun, ended = [0.0] * len(load), [0.0] * len(load)
    now, done, decoding = 0.0, 0.0, 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0][0])
        step, joining = costs.base + decoding, []
        while waiting and waiting[0][0] <= now:
            start, request = heapq.heappop(waiting)
            begun[request] = start
            joining.append(request)
            step += prefill[request]
        count = 1.0
        if not joining:  # Nothing changes before the next end or the next beginning.
            count = running[0][0] - done
            if waiting and step > 0:
                count = min(count, (waiting[0][0] - now) // step + 1.0)
            count = max(count, 1.0)
        now, done = now + step * count, done + count
        for request in joining:
            heapq.heappush(running, (done + steps[request], request))
            decoding += load[request]
        while running and running[0][0] <= done:
            _, request = heapq.heappop(running)
            decoding -= load[request]
            ended[request] = now
            for later in following[request]:
                heapq.heappush(waiting, (now + pause[later], later))
    return np.array(ended, dtype=np.float64) - np.array(begun, dtype=np.float64)
