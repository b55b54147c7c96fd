"""The size of a plan before anything is executed: launches, points and, if known, requests, tokens and seconds.

Nothing that depends on the engine's speed is estimated: how many requests a closed loop completes in a given time, how
long a number of requests takes, or how long a trace is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.plan.plan import Plan
from specbench_api.spec.load import Arrival, ArrivalProcess, Level, Load

SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class PlanSize:
    """Size of a plan. Tokens are an upper bound, because no answer is longer than maxTokens.

    `load_seconds`: seconds during which conversations start, over all points; the last answers take additional time.
    """

    launches: int
    points: int
    requests: int | None
    output_tokens_at_most: int | None
    load_seconds: float | None


def estimate(plan: Plan, turns: Mapping[str, Sequence[int]] | None = None) -> PlanSize:
    """Return the size of a plan. `turns`: number of turns of each prompt by workload, if the prompts could be read."""
    known = turns or {}
    requests = [point_requests(plan.load, point.level, known.get(point.workload)) for point in plan.points]
    longest = [plan.workload(point.workload).output.max_tokens for point in plan.points]
    seconds = [point_seconds(plan.load, point.level, known.get(point.workload)) for point in plan.points]
    counts = [count for count in requests if count is not None]
    complete = len(counts) == len(requests)
    return PlanSize(
        launches=len(plan.groups),
        points=len(plan.points),
        requests=sum(counts) if complete else None,
        output_tokens_at_most=(
            sum(count * most for count, most in zip(counts, longest, strict=True)) if complete else None
        ),
        load_seconds=None if None in seconds else sum(each for each in seconds if each is not None),
    )


CONTENDERS_MIN = 3
"""Arms of a round of a search at least, without the baseline: fewer would leave nothing to compare the best with."""


def contenders(arms: int, rounds: int) -> int:
    """Return how many arms the next round of a search has at most, without the baseline: half of the round before.

    `arms`: of the first round. `rounds`: how many were measured.
    """
    return min(arms, max(CONTENDERS_MIN, math.ceil(arms / (1 << rounds))))


def rounds_text(plan: Plan) -> str:
    """Return how large a search may become; empty for a run without one."""
    if plan.search is None:
        return ""
    rounds, arms = plan.load.repeats, len(plan.arms) - 1
    launches = sum(1 + contenders(arms, number) for number in range(rounds))
    points = launches * len(plan.workloads) * len(plan.load.levels)
    return f" in the first of at most {rounds} rounds, which have at most {launches} launches and {points} points"


def requests_of(turns: Sequence[int], conversations: int) -> int:
    """Return the number of turns of the given number of conversations, which cycle through the prompts."""
    laps, rest = divmod(conversations, len(turns))
    return laps * sum(turns) + sum(turns[:rest])


def point_requests(load: Load, level: Level, turns: Sequence[int] | None) -> int | None:
    """Return the number of requests of one point, or None if load and prompts do not determine it."""
    if turns is None:
        return None
    conversations = point_conversations(load, level, len(turns))
    return None if conversations is None else requests_of(turns, conversations)


def point_conversations(load: Load, level: Level, prompts: int | None) -> int | None:
    """Return the number of conversations of one point, or None if the load does not determine it.

    `prompts`: their number, if known.
    """
    if (load.arrival or Arrival()).process is ArrivalProcess.TRACE:
        return None
    if load.duration_seconds is not None:
        return None if level.rate is None else round(level.rate * load.duration_seconds)
    requested = load.requested(level)
    return prompts if requested is None else requested


def point_seconds(load: Load, level: Level, turns: Sequence[int] | None) -> float | None:
    """Return for how many seconds the conversations of one point start, or None if the load does not determine it.

    `turns`: number of turns of each prompt, if known.
    """
    if load.duration_seconds is not None:
        return float(load.duration_seconds)
    conversations = point_conversations(load, level, None if turns is None else len(turns))
    return None if level.rate is None or conversations is None else conversations / level.rate
