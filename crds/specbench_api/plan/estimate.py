"""How much a plan is, before it is paid for: launches, points and, where lengths are known, requests and tokens."""

from __future__ import annotations

from dataclasses import dataclass

from specbench_api.plan.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """Counts only. Tokens are an upper bound: no answer is longer than maxTokens."""

    launches: int
    points: int
    requests: int | None
    output_tokens_at_most: int | None


def estimate(plan: Plan, turns: dict[str, int] | None = None) -> Estimate:
    """Count. `turns`: requests of one pass over each workload by its name, where the prompts could be read."""
    known = turns is not None and all(point.workload in turns for point in plan.points)
    if not known or turns is None:
        return Estimate(len(plan.groups), len(plan.points), None, None)
    requests = sum(turns[point.workload] for point in plan.points)
    tokens = sum(turns[point.workload] * plan.workload(point.workload).output.max_tokens for point in plan.points)
    return Estimate(len(plan.groups), len(plan.points), requests, tokens)
