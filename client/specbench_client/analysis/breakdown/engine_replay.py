"""A model of an engine's steps, fitted to their durations, that replays the requests with other prompt lengths.

All requests in flight share the steps of the engine. A step takes

    base + per request × requests that decode + per context token × their context + per token × prompt tokens computed

where a prompt token may cost more the more tokens are before it. A step without a request that decodes has a `base` of
its own, and so has one that computes prompts while others decode: engines often run only the others as CUDA graphs. It
computes prompt tokens of the requests that wait, in their order, up to a budget, and gives every other request its next
tokens. In some engines these wait while a prompt is computed: no chunk of theirs arrives together with a first chunk.

The costs are fitted to the durations of the steps (`engine_steps`), relative to their size, with little weight on
outliers and a pace for each point. The budget is the one with the best fit.

A replay runs the steps again. Requests of an open loop begin when they did; later ones of a conversation, and all of a
closed loop, begin after the same pause as they did, which counts from the last end in their conversation or stream
before. So it contains what one token costs all others, queues included, and the number of requests in flight that
results.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import optimize

from specbench_api.outcome.reuse import SplitMissing
from specbench_client.analysis.breakdown.engine_steps import (
    Indices,
    PointSteps,
    PrefillParts,
    prefill_parts,
    served_share,
)
from specbench_client.metrics.tidy_frame import Values

PASSES = 8
"""Fits in sequence: each one weights the steps by the errors of the previous one."""
INDEPENDENT_SHARE_MIN = 1e-3
"""Smallest share of a column outside the span of the others; below it the column counts as their combination."""
ERROR_SHARE_MIN = 1e-3
"""Smallest typical error of a step, as a share of its duration; it bounds the weights."""
HUBER = 2.0
"""Errors beyond so many of their typical size have less weight: an engine sometimes pauses."""
SIGMA_PER_MEDIAN = 1.4826
"""Standard deviation over the median absolute error, of a normal distribution."""
TOKEN_ERROR_MAX = 0.1
"""Largest relative standard error of the cost of a token. It is larger where every step computes as many prompt tokens
as it may, because the duration of steps is then always the same."""
CHUNKS_MIN = 3.0
"""Smallest mean number of chunks of an answer. Streams with shorter ones begin together, and which of their prompts
share a step depends on delays that the replay does not have."""
EXCLUSIVE_MAX, MIXED_MIN = 0.2, 0.8
"""Bounds of `served_share`: up to the first, requests that decode wait for prompts; from the second on, they do not.
Between both, neither model describes the engine."""
BUDGET_STEPS = (0.15, 0.04, 0.01)
"""Differences of the log between budgets that are compared: first over all that are possible, then around the best."""
BUDGET_PASSES = 3
"""Fits in sequence while budgets are compared."""
_TOKEN, _BASE, _IDLE, _REQUEST, _CONTEXT, _DEPTH, _MIXED = range(7)
_COSTS = 7
_MINIMUM = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, 0.0, 0.0])


@dataclass(frozen=True)
class Budget:
    """What a step may compute: prompt tokens, and `slots` of each request that decodes."""

    tokens: float = np.inf
    slots: float = 0.0
    exclusive: bool = False
    """Whether requests that decode wait while a step computes prompts; it has no limit then."""

    def prompt_tokens(self, decoding: int) -> float:
        """Return the most prompt tokens of a step in which so many requests decode."""
        return max(self.tokens - self.slots * decoding, 1.0)

    def parts(self, point: PointSteps) -> PrefillParts:
        """Return which steps computed which prompts.

        What seems to be a single step, if no request decodes in it, may be several.
        """
        limits = [
            self.prompt_tokens(number) if number and not self.exclusive else np.inf
            for number in point.decoding[0].tolist()
        ]
        return prefill_parts(point, limits)


@dataclass(frozen=True)
class EngineCosts:
    """Costs of a step in ms, and what limits it.

    `idle`: added to a step in which no request decodes. `mixed`: added to one that computes prompts while others decode
    or wait. `depth`: of a prompt token for each token before it beyond `middle`; so `token` is the cost of one that has
    `middle` tokens before it.
    """

    token: float
    base: float
    request: float = 0.0
    context: float = 0.0
    idle: float = 0.0
    mixed: float = 0.0
    depth: float = 0.0
    middle: float = 0.0
    budget: Budget = Budget()
    late: float = 0.0
    """A request takes part in steps that begin so many ms after it."""

    def at_pace(self, pace: float) -> EngineCosts:
        """Return the costs of a machine that takes so many times as long."""
        names = ("token", "base", "request", "context", "idle", "mixed", "depth")
        return replace(self, **{name: pace * getattr(self, name) for name in names})

    def step_ms(self, load: float, *, decodes: bool, prompts: bool) -> float:
        """Return the time of a step without its prompt tokens. `load`: cost of all requests that decode.

        `decodes`: whether there are any. `prompts`: whether it computes prompt tokens.
        """
        if not decodes:
            return self.base + self.idle
        if not prompts:
            return self.base + load
        return self.base + self.mixed + (0.0 if self.budget.exclusive else load)

    def token_ms(self, prompt: Values, computed: Values) -> Values:
        """Return the mean cost of a token where so many last tokens of the prompts are computed."""
        return np.maximum(self.token + self.depth * (prompt - computed / 2 - self.middle), 0.0)


@dataclass(frozen=True)
class EngineFit:
    """The costs of all points together, and of each one.

    `influence`: of each row of the cell on `costs.token`, 0 for those that are not fitted, shape (rows,).
    """

    costs: EngineCosts
    by_point: list[EngineCosts]
    influence: Values


def fit_engine(points: Sequence[PointSteps], size: int, middle: float) -> EngineFit | SplitMissing:
    """Fit the model to all steps; return the reason if the cost of a token is not found.

    `size`: rows of the cell. `middle`: see `EngineCosts`.
    """
    sizes = [point.ends.size for point in points]
    chunks = sum(int(point.arrivals.sum()) for point in points)
    if chunks < CHUNKS_MIN * sum(point.rows.size for point in points):
        return SplitMissing.TOO_FEW_STEPS
    if sum(sizes) <= 2 * _COSTS or not any(point.decoding[0].any() for point in points):
        return SplitMissing.TOO_FEW_STEPS
    share = served_share(points)
    if EXCLUSIVE_MAX < share < MIXED_MIN:
        return SplitMissing.REPLAY_DIFFERS
    longest = max(points, key=lambda point: point.ends.size)
    budget = Budget(exclusive=True) if share <= EXCLUSIVE_MAX else _budget(longest, middle)
    parts = [budget.parts(point) for point in points]
    matrix = np.concatenate([_columns(point, each, middle, budget) for point, each in zip(points, parts, strict=True)])
    durations = np.concatenate([point.durations for point in points])
    owner = np.repeat(np.arange(len(points)), sizes)
    found = _fit(matrix, durations, owner)
    if not budget.exclusive:
        # Without a real cost of mixed steps, its column only takes a part of the cost of tokens.
        without = matrix * (np.arange(_COSTS) != _MIXED)
        simpler = _fit(without, durations, owner)
        if simpler.error < found.error * durations.size ** (1 / durations.size):  # By the log-likelihood.
            found, matrix = simpler, without
    if not np.sqrt((found.influence**2).sum()) < TOKEN_ERROR_MAX * found.costs[_TOKEN]:
        return SplitMissing.NO_COST
    # In a closed loop, the next request of a stream arrives after the step that begins when the previous one ends.
    late = np.median(np.concatenate([each.start - point.earliest for point, each in zip(points, parts, strict=True)]))
    token, base, idle, request, context, depth, mixed = found.costs.tolist()
    mixed -= base if budget.exclusive else 0.0
    costs = EngineCosts(
        token, base, request, context, idle, mixed, depth, middle, budget, late=points[0].near if late >= 1 else 0.0
    )
    influence, by_point, modelled = np.zeros(size), [], matrix @ found.costs
    for number, (point, each) in enumerate(zip(points, parts, strict=True)):
        inside = owner == number
        of_step = each.tokens / np.maximum(matrix[inside, _TOKEN], 1.0)[each.step]
        np.add.at(influence, point.rows[each.request], of_step * found.influence[inside][each.step])
        inside &= matrix[:, _IDLE] == 0
        # Means, unlike the fit, contain pauses, which lengthen all steps in proportion.
        by_point.append(costs.at_pace(durations[inside].sum() / modelled[inside].sum() if inside.any() else 1.0))
    return EngineFit(costs, by_point, influence)


@dataclass(frozen=True)
class _Fit:
    """Costs, shape (columns,); the influence of each step on that of a token, shape (steps,); the mean error."""

    costs: Values
    influence: Values
    error: float


def _fit(matrix: Values, durations: Values, owner: Indices, passes: int = PASSES) -> _Fit:
    """Fit the durations, shape (steps,), of points whose machines have their own pace. `matrix`: (steps, columns)."""
    typical = np.median(durations)
    modelled, weights, paces = durations, np.ones(durations.size), np.ones(owner.max() + 1)
    for _ in range(passes):
        left = durations / paces[owner]
        scale = weights / np.maximum(modelled, typical / 4)
        costs, columns = _solve(np.column_stack([matrix, left]) * scale[:, np.newaxis])
        modelled = matrix @ costs
        errors = (left - modelled) / np.maximum(modelled, typical / 4)
        sigma = max(SIGMA_PER_MEDIAN * float(np.median(np.abs(errors))), ERROR_SHARE_MIN)
        large = np.maximum(np.abs(errors) / (HUBER * sigma), 1.0)
        weights = np.sqrt(1.0 / large)
        paces = paces * _paces(durations / paces[owner] / np.maximum(modelled, typical / 4), owner, paces.size)
    known = (matrix * scale[:, np.newaxis])[:, columns]
    influence = np.zeros(durations.size)
    if _TOKEN in columns:
        inverse = np.linalg.pinv(known.T @ known)[columns.index(_TOKEN)]
        influence = (known @ inverse) * scale * (left - modelled)
    return _Fit(costs, influence, float(np.abs(errors).mean()))


def _paces(ratios: Values, owner: Indices, points: int) -> Values:
    """Return the median ratio of observed to modelled durations by point, relative to their mean, shape (points,)."""
    found = np.array([np.median(ratios[owner == each]) for each in range(points)])
    return np.asarray(found / found.mean())


def _solve(equations: Values) -> tuple[Values, list[int]]:
    """Return the costs, and the columns that have one; columns that others determine have none."""
    triangle: Values = np.linalg.qr(equations, mode="r")  # type: ignore[assignment]  # the stubs ignore the mode
    lengths = np.sqrt((triangle**2).sum(axis=0))
    own = np.abs(np.diagonal(triangle)) > INDEPENDENT_SHARE_MIN * lengths
    columns = [column for column in range(_COSTS) if own[column]]
    left, right = triangle[:, columns] / lengths[columns], triangle[:, _COSTS]
    solved = optimize.lsq_linear(left, right, (_MINIMUM[columns], np.inf), method="bvls")
    costs = np.zeros(_COSTS)
    costs[columns] = solved.x / lengths[columns]
    return costs, [column for column in columns if costs[column] != 0]


def _columns(point: PointSteps, parts: PrefillParts, middle: float, budget: Budget) -> Values:
    """Return the columns of the model, shape (steps, columns)."""
    found = np.zeros((point.ends.size, _COSTS))
    depth = point.prompt - point.computed / 2 - middle
    found[:, _TOKEN] = np.bincount(parts.step, parts.tokens, point.ends.size)
    found[:, _DEPTH] = np.bincount(parts.step, parts.tokens * depth[parts.request], point.ends.size)
    found[:, _BASE], found[:, _IDLE] = 1.0, point.decoding[0] == 0
    found[:, _REQUEST], found[:, _CONTEXT] = point.decoding
    found[:, _MIXED] = (found[:, _TOKEN] > 0) & (point.decoding[0] > 0)
    if budget.exclusive:
        # The whole base of such a step, which may be shorter than one that drafts.
        found[found[:, _MIXED] > 0, _BASE : _CONTEXT + 1] = 0.0
    return found


def _budget(point: PointSteps, middle: float) -> Budget:
    """Return the budget with the best fit to the steps of a point."""
    owner = np.zeros(point.ends.size, dtype=np.intp)

    def error(budget: Budget) -> float:
        return _fit(_columns(point, budget.parts(point), middle, budget), point.durations, owner, BUDGET_PASSES).error

    parts = Budget().parts(point)
    inside = point.decoding[0][point.earliest] > 0
    if not inside.any() or point.ends.size <= 2 * _COSTS:
        return Budget()
    least = max(float((point.computed / (point.first - point.earliest + 1))[inside].max()), 1.0)
    most = float(np.bincount(parts.step, parts.tokens, 1).max()) + point.slots * float(point.decoding[0].max())
    found = [Budget()]
    for slots in (0.0, point.slots):
        low, high = np.log(least), np.log(max(most, least))
        for step in BUDGET_STEPS:
            tokens = np.exp(np.arange(low, high + step, step)).tolist()
            best = min((Budget(each, slots) for each in tokens), key=error)
            low, high = np.log(best.tokens) - step, np.log(best.tokens) + step
        found.append(best)
    return min(found, key=error)


@dataclass
class _Queue:
    """Requests whose prompts are computed next, in order. `left`, `token_ms`: tokens of each prompt and their cost."""

    left: list[float]
    token_ms: list[float]
    waiting: deque[int] = field(default_factory=deque)

    def compute(self, free: float) -> tuple[float, list[int]]:
        """Compute at most so many tokens; return the time and the requests whose prompt is complete."""
        step_ms, complete = 0.0, list[int]()
        while self.waiting and free > 0:
            request = self.waiting[0]
            taken = min(self.left[request], free)
            step_ms += taken * self.token_ms[request]
            free -= taken
            self.left[request] -= taken
            if self.left[request] > 0:
                break
            complete.append(self.waiting.popleft())
        return step_ms, complete


def _unchanged_steps(end: float, beginning: float, step_ms: float) -> float:
    """Return the number of steps until the next end of a request, so many steps away, or beginning, so many ms away."""
    if step_ms > 0:
        end = min(end, min(beginning / step_ms, end) // 1 + 1)
    return max(end, 1.0)


def replay(point: PointSteps, costs: EngineCosts, computed: Values) -> Values:
    """Return the E2E latency of each request in ms, if so many tokens of its prompt are computed."""
    following: list[list[int]] = [[] for _ in range(point.rows.size)]
    for request in np.flatnonzero(point.previous >= 0).tolist():
        following[point.previous[request]].append(request)
    load = (costs.request + costs.context * point.context).tolist()
    steps, pause = point.decode_steps(exclusive=costs.budget.exclusive).tolist(), point.pause.tolist()
    coming = [(pause[request], request) for request in np.flatnonzero(point.previous < 0).tolist()]
    heapq.heapify(coming)
    queue = _Queue(computed.tolist(), costs.token_ms(point.prompt, computed).tolist())
    running: list[tuple[float, int]] = []
    begun, ended = [0.0] * len(load), [0.0] * len(load)
    now, done, decoding = 0.0, 0.0, 0.0
    while coming or queue.waiting or running:
        late = costs.late
        if not running and not queue.waiting:
            now, late = max(now, coming[0][0]), 0.0
        while coming and coming[0][0] + late <= now:
            begun[coming[0][1]] = coming[0][0]
            queue.waiting.append(heapq.heappop(coming)[1])
        prompts = bool(queue.waiting)
        step, count = costs.step_ms(decoding, decodes=bool(running), prompts=prompts), 1.0
        if not prompts:
            beginning = coming[0][0] + late - now if coming else np.inf
            count = _unchanged_steps(running[0][0] - done, beginning, step)
        prefill_ms, joining = queue.compute(costs.budget.prompt_tokens(len(running)))
        now += step * count + prefill_ms
        done += 0.0 if prompts and costs.budget.exclusive else count
        for request in joining:
            heapq.heappush(running, (done + steps[request], request))
            decoding += load[request]
        while running and running[0][0] <= done:
            _, request = heapq.heappop(running)
            decoding -= load[request]
            ended[request] = now
            for later in following[request]:
                heapq.heappush(coming, (now + pause[later], later))
    return np.array(ended, dtype=np.float64) - np.array(begun, dtype=np.float64)
