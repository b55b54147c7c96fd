"""A drafter that reduces the KV cache: fewer requests fit at a time, which a run at low load does not show."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.provenance import FactName
from specbench_api.outcome.summary import ArmEnvironment, PointSummary
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

LOST_FROM = 0.10
_LENGTHS = ("input_tokens_mean", "output_tokens_mean")


def _evaluate(evidence: RunEvidence) -> CheckResults:
    found = [
        _of_arm(each, [point for point in evidence.summaries if point.arm == each.arm])
        for each in evidence.arm_environments
    ]
    return [result for result in found if result is not None]


def _of_arm(environment: ArmEnvironment, points: Sequence[PointSummary]) -> CheckResult | None:
    lost = environment.kv_cache_lost.value if environment.kv_cache_lost else None
    if lost is None or lost < LOST_FROM:
        return None
    tokens_left = environment.facts[FactName.KV_CACHE_TOKENS].value
    left = f", {tokens_left:,.0f} tokens are left" if isinstance(tokens_left, int | float) else ""
    message = f"this arm has {lost:.0%} less KV cache than the baseline{left}{_effect(tokens_left, points)}"
    return CheckResult(Severity.INFO, message, value=lost, threshold=LOST_FROM, arm=environment.arm)


def _effect(tokens_left: object, points: Sequence[PointSummary]) -> str:
    """State whether the highest load fills the remaining cache; empty if that is not known."""
    needed = max((each for point in points if (each := _needed(point)) is not None), default=None)
    if needed is None or not isinstance(tokens_left, int | float):
        return ""
    if needed < tokens_left:
        return f"; the highest load needs about {needed:,.0f}: no speed-up of this run includes the cost of the loss"
    return f"; the highest load needs about {needed:,.0f}: its speed-ups include the cost of the loss"


def _needed(point: PointSummary) -> float | None:
    """Tokens of prompts and answers that the requests in flight need when they end; None if it is not known."""
    in_flight = point.level.concurrency or point.client_health.reached_concurrency
    lengths = [figure.value for name in _LENGTHS if (figure := point.figures.get(name)) and figure.value is not None]
    return in_flight * sum(lengths) if in_flight and len(lengths) == len(_LENGTHS) else None


CHECK: Check[RunEvidence] = Check(
    name="KvCacheReduced",
    severities=(Severity.INFO,),
    description=(
        "A drafter's weights and its own cache leave the engine less KV cache for requests than the baseline has."
    ),
    threshold=f"{LOST_FROM:.0%} of the baseline's KV cache in tokens; both are medians over an arm's launches",
    rationale=(
        "Where the cache is full, an engine runs correspondingly fewer requests at a time, and the throughput of a"
        " memory-bound engine falls by up to as much: a tenth is all that EAGLE-3 is published to gain in some"
        " settings at 128 streams (1.10). The threshold also separates drafters: an EAGLE head takes less than a tenth;"
        " a 0.6B draft model next to an 8B target makes the cache per token 1.77 times as large, which loses 44 %. A"
        " cache that is not full costs nothing, so the severity is Info."
    ),
    remedy="Add your service's load to `load`, with long prompts too: the speed-up there includes the loss.",
    evaluate=_evaluate,
)
