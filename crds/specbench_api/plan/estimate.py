"""How much a plan is, before it is paid for: launches, points and, where it is known, requests, tokens and seconds.

What the engine's own speed decides is not guessed: how many requests a closed loop fits into so many seconds, how long
it takes for so many requests, how long a trace is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.plan.plan import Plan
from specbench_api.spec.load import Arrival, Level, Load, Process


@dataclass(frozen=True)
class Estimate:
    """Counts only. Tokens are an upper bound: no answer is longer than maxTokens.

    `load_seconds`: for how long conversations begin, all points together; the answers of the last ones come on top.
    """

    launches: int
    points: int
    requests: int | None
    output_tokens_at_most: int | None
    load_seconds: float | None


def estimate(plan: Plan, turns: Mapping[str, Sequence[int]] | None = None) -> Estimate:
    """Count. `turns`: how many each prompt has, by the workload's name, where the prompts could be read."""
    known = turns or {}
    requests = [_requests(plan.load, point.level, known.get(point.workload)) for point in plan.points]
    longest = [plan.workload(point.workload).output.max_tokens for point in plan.points]
    seconds = [point_seconds(plan.load, point.level, known.get(point.workload)) for point in plan.points]
    told = [count for count in requests if count is not None]
    whole = len(told) == len(requests)
    return Estimate(
        launches=len(plan.groups),
        points=len(plan.points),
        requests=sum(told) if whole else None,
        output_tokens_at_most=sum(count * most for count, most in zip(told, longest, strict=True)) if whole else None,
        load_seconds=None if None in seconds else sum(each for each in seconds if each is not None),
    )


def requests_of(turns: Sequence[int], conversations: int) -> int:
    """Turns of so many conversations: whole laps over the prompts, and the rest of one."""
    laps, rest = divmod(conversations, len(turns))
    return laps * sum(turns) + sum(turns[:rest])


def _requests(load: Load, level: Level, turns: Sequence[int] | None) -> int | None:
    conversations = _conversations(load, level, turns)
    return None if turns is None or conversations is None else requests_of(turns, conversations)


def _conversations(load: Load, level: Level, turns: Sequence[int] | None) -> int | None:
    if _traced(load):
        return None
    if load.duration_seconds is not None:
        return None if level.rate is None else round(level.rate * load.duration_seconds)
    if load.requests is not None:
        return load.requests
    return None if turns is None else len(turns)


def point_seconds(load: Load, level: Level, turns: Sequence[int] | None) -> float | None:
    """For how long the conversations of one point begin, where the load says so. `turns`: of each prompt, if known."""
    if load.duration_seconds is not None:
        return float(load.duration_seconds)
    conversations = _conversations(load, level, turns)
    return None if level.rate is None or conversations is None else conversations / level.rate


def _traced(load: Load) -> bool:
    return (load.arrival or Arrival()).process is Process.TRACE
