"""What the arms ran on, for people: a few words an arm. Everything that was seen is in provenance.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact
from specbench_api.outcome.summary import ArmSeen, RunSummary
from specbench_client.report.columns import DASH

_MIB = 1 << 20


@dataclass(frozen=True)
class SeenRow:
    """One line of the table of what was seen."""

    arm: str
    launches: int
    engine: str
    machine: str
    dtype: str
    max_model_len: str
    kv_cache_tokens: str
    kv_cache_lost: str
    drafter_weights: str


def seen_rows(summary: RunSummary) -> list[SeenRow]:
    """One row an arm that was launched."""
    return [_row(seen) for seen in summary.arms_seen]


def _row(seen: ArmSeen) -> SeenRow:
    facts = seen.facts
    lost = seen.kv_cache_lost.value if seen.kv_cache_lost else None
    return SeenRow(
        arm=seen.arm,
        launches=len(seen.launches),
        engine=_text(facts, FactName.ENGINE_VERSION),
        machine=_machine(facts),
        dtype=_dtype(facts),
        max_model_len=_text(facts, FactName.MAX_MODEL_LEN),
        kv_cache_tokens=_text(facts, FactName.KV_CACHE_TOKENS),
        kv_cache_lost=DASH if lost is None else f"{lost:.1%}",
        drafter_weights=_mebibytes(facts, FactName.DRAFTER_WEIGHTS_BYTES),
    )


def _text(facts: Mapping[FactName, Fact], name: FactName) -> str:
    value = facts[name].value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.0f}"
    return DASH if value is None else str(value)


def _machine(facts: Mapping[FactName, Fact]) -> str:
    """The GPUs; the processor where there are none."""
    gpu, count = _text(facts, FactName.GPU), facts[FactName.GPU_COUNT].value
    if gpu == DASH:
        return _text(facts, FactName.CPU)
    return f"{count} × {gpu}" if count else gpu


def _dtype(facts: Mapping[FactName, Fact]) -> str:
    told = (_text(facts, name) for name in (FactName.DTYPE, FactName.QUANTIZATION))
    return ", ".join(text for text in told if text not in (DASH, "none")) or DASH


def _mebibytes(facts: Mapping[FactName, Fact], name: FactName) -> str:
    value = facts[name].value
    return f"{value / _MIB:,.0f} MiB" if isinstance(value, int | float) else DASH
