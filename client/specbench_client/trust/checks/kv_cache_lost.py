"""A drafter that takes room of the KV cache: fewer requests at a time, which a run at low loads does not feel."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import ArmSeen, PointSummary
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

LOST_FROM = 0.10
_HELD = ("input_tokens_mean", "output_tokens_mean")


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    found = [_of(each, [point for point in evidence.summaries if point.arm == each.arm]) for each in evidence.arms_seen]
    return [seen for seen in found if seen is not None]


def _of(seen: ArmSeen, points: Sequence[PointSummary]) -> Seen | None:
    lost = seen.kv_cache_lost.value if seen.kv_cache_lost else None
    if lost is None or lost < LOST_FROM:
        return None
    room = seen.facts[FactName.KV_CACHE_TOKENS].value
    told = f", {room:,.0f} tokens are left" if isinstance(room, int | float) else ""
    message = f"{lost:.0%} of the baseline's KV cache is lost to this arm{told}{_felt(room, points)}"
    return Seen(Severity.NOTE, message, value=lost, threshold=LOST_FROM, arm=seen.arm)


def _felt(room: object, points: Sequence[PointSummary]) -> str:
    """Whether the highest load fills what is left; empty where that is not known."""
    needed = max((each for point in points if (each := _needed(point)) is not None), default=None)
    if needed is None or not isinstance(room, int | float):
        return ""
    if needed < room:
        return f"; the highest load holds at most about {needed:,.0f}: what the loss costs is in none of its speed-ups"
    return f"; the highest load would hold about {needed:,.0f}: its speed-ups have felt the loss"


def _needed(point: PointSummary) -> float | None:
    """Tokens of prompt and answer that the requests in flight hold when they end; None where it is not known."""
    in_flight = point.level.concurrency or point.self_watch.reached_concurrency
    lengths = [figure.value for name in _HELD if (figure := point.figures.get(name)) and figure.value is not None]
    return in_flight * sum(lengths) if in_flight and len(lengths) == len(_HELD) else None


CHECK: Check[RunEvidence] = Check(
    name="KvCacheLost",
    severities=(Severity.NOTE,),
    says="A drafter's weights and its own cache leave the engine less room for requests than the baseline has.",
    threshold=f"{LOST_FROM:.0%} of the baseline's tokens of KV cache, each the median over an arm's launches",
    argument=(
        "Where the cache is full, an engine holds so many fewer requests at a time, and a memory-bound engine's"
        " throughput falls by up to as much: a tenth is all that EAGLE-3 is published to gain in some places at 128"
        " streams (1.10). It tells drafters apart, too: an EAGLE head takes less than a tenth; a 0.6B model beside an"
        " 8B one makes a token's cache 1.77 times as large, and 44 % is lost. Below full it costs nothing, so it is a"
        " note."
    ),
    remedy="Add the load at which your service runs to load, long prompts too: there the loss is in the speed-up.",
    look=_look,
)
