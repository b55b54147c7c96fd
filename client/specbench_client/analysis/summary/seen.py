"""What was seen of each arm's launches, and what its drafter costs of the KV cache. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.launched import Fact, Launched
from specbench_api.outcome.summary import ArmSeen
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME

SHOWN = (
    FactName.ENGINE_VERSION,
    FactName.GPU,
    FactName.GPU_COUNT,
    FactName.CPU,
    FactName.DTYPE,
    FactName.QUANTIZATION,
    FactName.MAX_MODEL_LEN,
    FactName.KV_CACHE_TOKENS,
    FactName.KV_BYTES_PER_TOKEN,
    FactName.WEIGHTS_BYTES,
    FactName.DRAFTER_WEIGHTS_BYTES,
    FactName.GPU_MEMORY_USED_BYTES,
    FactName.STEP_SPLIT_MS,
    FactName.DRAFT_TO_TARGET_RATIO,
)
"""What a comparison is read by: the engine, the machine, and what the drafter takes of it."""
LOST = "KV cache of the baseline that this arm lacks: 1 - its tokens over the baseline's, each the median over launches"


def arms_seen(plan: Plan, launches: Sequence[Launched]) -> list[ArmSeen]:
    """One row an arm that was launched, in the plan's order."""
    by_arm = {arm.name: [launch for launch in launches if launch.arm == arm.name] for arm in plan.arms}
    facts = {arm: {name: _over(name, mine) for name in SHOWN} for arm, mine in by_arm.items() if mine}
    whole = facts[BASELINE_NAME][FactName.KV_CACHE_TOKENS] if BASELINE_NAME in facts else None
    return [
        ArmSeen(
            arm=arm,
            launches=[launch.launch for launch in by_arm[arm]],
            facts=seen,
            kv_cache_lost=None if arm == BASELINE_NAME else _lost(seen, whole, len(by_arm[arm])),
        )
        for arm, seen in facts.items()
    ]


def _over(name: FactName, launches: Sequence[Launched]) -> Fact:
    """One fact over an arm's launches: the median of numbers, else what all say; where none told it, the reason."""
    told = [fact for launch in launches if (fact := launch.facts[name]).value is not None]
    if not told:
        return launches[0].facts[name]
    values, source = [fact.value for fact in told], str(told[0].source)
    numbers = [number for fact in told if (number := _number(fact)) is not None]
    if all(value == values[0] for value in values):
        return told[0]
    if len(numbers) == len(values):
        return Fact.seen(median(numbers), f"{source}; the median of {len(numbers)} launches")
    return Fact.unseen(f"its launches differ: {', '.join(dict.fromkeys(map(str, values)))}")


def _lost(seen: dict[FactName, Fact], whole: Fact | None, launches: int) -> Figure:
    mine, full = _number(seen[FactName.KV_CACHE_TOKENS]), None if whole is None else _number(whole)
    value = 1 - mine / full if mine is not None and full else None
    return Figure(value=value, unit="ratio", definition=LOST, n=0 if value is None else launches, source="engine")


def _number(fact: Fact) -> float | None:
    value = fact.value
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
