"""A discrete-event engine with continuous batching and chunked prefill, and the closed or open loop that loads it.

Each step computes one step of every request that decodes, and prompt tokens of the requests that wait, first come,
first served, until its token budget is used. An exclusive step does not decode if it computes prompt tokens. A request
emits its first token at the end of the step that computes the last token of its prompt, and then decodes until its
answer ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

UNLIMITED = 1 << 30
"""A token budget that no step reaches."""


@dataclass(frozen=True)
class StepCosts:
    """Time of a step: a sum of these costs in ms, with log-normal noise, and sometimes a pause.

    `token` per computed prompt token; `depth` per computed prompt token and token before it, so that long prompts cost
    more than in proportion. `eager` per step that computes prompt tokens, as if only the others ran as CUDA graphs.
    `pause_share` of the steps take `pause` times as long.
    """

    base: float = 8.0
    request: float = 0.15
    context: float = 0.0002
    token: float = 0.03
    depth: float = 0.0
    eager: float = 0.0
    budget: int = UNLIMITED
    """Tokens of a step: prompt tokens, and `slots` tokens of each request that decodes."""
    slots: int = 4
    exclusive: bool = False
    """Whether requests that decode wait while a step computes prompts."""
    noise: float = 0.03
    pause_share: float = 0.002
    pause: float = 4.0


@dataclass(frozen=True)
class EngineRequest:
    """What the engine computes for one request: `emitted` are the tokens of each step after that of the first token."""

    prompt: int
    cached: int
    emitted: tuple[int, ...]


@dataclass
class ServedRequest:
    """When a request began and its chunks arrived, in ms of the client's clock."""

    request: EngineRequest
    stream: int
    begun: float
    chunks: list[float] = field(default_factory=list)
    left: int = 0
    """Prompt tokens that are not computed yet."""
    context: int = 0
    """Tokens whose keys and values its next step reads."""

    @property
    def e2e_ms(self) -> float:
        return self.chunks[-1] - self.begun

    @property
    def ended(self) -> bool:
        return len(self.chunks) > len(self.request.emitted)


@dataclass(frozen=True)
class Loop:
    """The load: the streams of a closed loop, or the intervals between arrivals in ms.

    `delay`: one way of the network in ms, with the standard deviation `delay_spread` of its log.
    """

    streams: int = 8
    intervals: tuple[float, ...] = ()
    delay: float = 0.2
    delay_spread: float = 0.3


def serve(requests: Sequence[EngineRequest], costs: StepCosts, loop: Loop, seed: int) -> list[ServedRequest]:
    """Return the served requests in order of their beginning."""
    clients, rng = _Clients(deque(requests), loop, np.random.default_rng((seed, 1))), np.random.default_rng((seed, 2))
    clients.start()
    waiting, decoding, now = deque[ServedRequest](), list[ServedRequest](), 0.0
    while clients.arriving or waiting or decoding:
        if not waiting and not decoding:
            now = max(now, clients.arriving[0][0])
        waiting += clients.arrived(now)
        served = [] if costs.exclusive and waiting else decoding
        step_ms, ready = _step(waiting, served, costs)
        step_ms *= float(np.exp(rng.normal(0.0, costs.noise)))
        now += step_ms * (costs.pause if rng.random() < costs.pause_share else 1.0)
        for each in served:
            each.context += each.request.emitted[len(each.chunks) - 1]
        for each in [*served, *ready]:
            each.chunks.append(now + clients.delay())
            if each.ended:
                clients.end(each)
        decoding = [each for each in [*decoding, *ready] if not each.ended]
    return clients.served


@dataclass
class _Clients:
    """What the clients sent, and what is on its way to the engine: the time of its arrival, and its number."""

    upcoming: deque[EngineRequest]
    loop: Loop
    rng: np.random.Generator
    served: list[ServedRequest] = field(default_factory=list)
    arriving: list[tuple[float, int]] = field(default_factory=list)

    def start(self) -> None:
        """Send the first request of each stream, or all requests of an open loop."""
        closed = [0.01 * stream for stream in range(self.loop.streams)]
        for stream, at in enumerate(np.cumsum(self.loop.intervals).tolist() or closed):
            self._send(at, stream)

    def delay(self) -> float:
        """Return the delay of the next bytes in ms."""
        return float(self.loop.delay * np.exp(self.rng.normal(0.0, self.loop.delay_spread)))

    def arrived(self, now: float) -> list[ServedRequest]:
        """Return what arrived until now, once."""
        found = []
        while self.arriving and self.arriving[0][0] <= now:
            found.append(self.served[heapq.heappop(self.arriving)[1]])
        return found

    def end(self, ended: ServedRequest) -> None:
        """In a closed loop, send the next request of the stream."""
        if not self.loop.intervals:
            self._send(ended.chunks[-1], ended.stream)

    def _send(self, at: float, stream: int) -> None:
        if self.upcoming:
            request = self.upcoming.popleft()
            heapq.heappush(self.arriving, (at + self.delay(), len(self.served)))
            left = max(request.prompt - request.cached, 1)
            self.served.append(ServedRequest(request, stream, at, left=left, context=request.prompt + 1))


def _step(
    waiting: deque[ServedRequest], decoding: Sequence[ServedRequest], costs: StepCosts
) -> tuple[float, list[ServedRequest]]:
    """Compute prompts of those that wait; return the time of the step and the requests whose prompt is complete."""
    ready = list[ServedRequest]()
    context = sum(each.context for each in decoding)
    step_ms = costs.base + costs.request * len(decoding) + costs.context * context
    free = max(costs.budget - costs.slots * len(decoding), 0)
    step_ms += costs.eager if waiting and free else 0.0
    while waiting and free > 0:
        each = waiting[0]
        computed = min(each.left, free)
        before = each.request.prompt - each.left
        step_ms += computed * (costs.token + costs.depth * (before + computed / 2))
        free -= computed
        each.left -= computed
        if each.left:
            break
        ready.append(waiting.popleft())
    return step_ms, ready
