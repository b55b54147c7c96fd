"""Conditions under which a run's results apply, with their values in this run.

The first six are the literature's checklist (workload, batch, output length, acceptance, memory, framework); the others
are the prompt cache, and what its authors report as not transferable: language, sampling, model, number format,
hardware. Unknown values are dashes, never guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.outcome.summary import ArmEnvironment, Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.workload import Workload
from specbench_client.report.text.prompt_coverage import dataset_text
from specbench_client.report.text.text_table import DASH, TextTable, number

_MIB = 1 << 20


@dataclass(frozen=True)
class ArmEnvironmentRow:
    """Engine and hardware of one arm, for a table; provenance.json has all facts."""

    arm: str
    launches: int
    engine: str
    machine: str
    dtype: str
    max_model_len: str
    kv_cache_tokens: str
    kv_cache_lost: str
    drafter_weights: str


def arm_environment_rows(summary: RunSummary) -> list[ArmEnvironmentRow]:
    """Return one row for each arm that was launched."""
    return [_environment_row(seen) for seen in summary.arm_environments]


def _environment_row(seen: ArmEnvironment) -> ArmEnvironmentRow:
    facts = seen.facts
    lost = seen.kv_cache_lost.value if seen.kv_cache_lost else None
    return ArmEnvironmentRow(
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
    """Return the GPUs; the processor where there are none."""
    gpu, count = _text(facts, FactName.GPU), facts[FactName.GPU_COUNT].value
    if gpu == DASH:
        return _text(facts, FactName.CPU)
    return f"{count} × {gpu}" if count else gpu


def _dtype(facts: Mapping[FactName, Fact]) -> str:
    formats = (_text(facts, name) for name in (FactName.DTYPE, FactName.QUANTIZATION))
    return ", ".join(text for text in formats if text not in (DASH, "none")) or DASH


def _mebibytes(facts: Mapping[FactName, Fact], name: FactName) -> str:
    value = facts[name].value
    return f"{value / _MIB:,.0f} MiB" if isinstance(value, int | float) else DASH


PROMPT_CACHE_WORDS = {PromptCache.DISABLED: "disabled", PromptCache.AS_SERVED: "as served"}
APPLICABILITY_TITLE = "When these results apply"
APPLICABILITY_COLUMNS = ("Look at", "In this run", "Elsewhere")
_LENGTH, _ACCEPTED = "output_tokens_mean", "acceptance_length_emitted_pooled"


def applicability_table(plan: Plan, summary: RunSummary) -> TextTable:
    """Return the conditions, one row each."""
    return TextTable(APPLICABILITY_TITLE, APPLICABILITY_COLUMNS, _rows(plan, summary), words=APPLICABILITY_COLUMNS)


def applicability_line(plan: Plan, summary: RunSummary) -> str:
    """The same as one phrase, for a terminal; what is not known is left out."""
    format_ = _formats(summary)
    model = f"{plan.target.title} ({format_ if format_ != DASH else 'quantisation unknown'})"
    cache = DASH if _prompt_cache(plan) == DASH else f"prompt cache {_prompt_cache(plan)}"
    where = [model, _engine(plan, summary), _machines(summary), _loads(plan), cache]
    known = ", ".join(part for part in where if part != DASH)
    return f"these prompts and their language, {known}; the report lists what may differ elsewhere"


def _rows(plan: Plan, summary: RunSummary) -> list[Sequence[str]]:
    return [
        ("Workload", _prompts(plan, summary), "acceptance differs by prompt: higher for code than for role play"),
        ("Batch", _loads(plan), "the gain falls as more requests share a step; other loads were not measured"),
        (
            "Output length",
            _lengths(plan, summary),
            "in short answers the time to the first token, which does not improve, weighs more",
        ),
        ("Acceptance", _accepted(summary), "depends on the prompts; its value depends on the cost of a step"),
        (
            "Memory",
            _memory(summary),
            "where the KV cache is full, the drafter's share of it reduces concurrent requests",
        ),
        ("Engine", _engine(plan, summary), "the cost of a step differs between versions and kernels"),
        (
            "Prompt cache",
            _prompt_cache(plan),
            "reused prompts have a shorter prefill; a drafter can lower the share that is reused",
        ),
        ("Language", _languages(plan), "drafters are trained more on some languages than on others"),
        ("Sampling", _sampling(plan), "acceptance falls with temperature"),
        (
            "Model",
            f"{plan.target.name}, revision {plan.target.revision}"
            + (f", with adapter {plan.target.adapter.model}" if plan.target.adapter else ""),
            "a drafter fits only the target that it was trained for, and the adapter that it was trained with",
        ),
        (
            "Quantisation",
            _formats(summary),
            "makes the target's step cheaper, and so the drafter's relatively more expensive",
        ),
        ("Hardware", _machines(summary), "the cost of a wider step depends on the ratio of bandwidth to compute"),
    ]


def _prompt_cache(plan: Plan) -> str:
    """Return the policy; it is unknown if another benchmark measured the run."""
    return DASH if plan.engine.is_imported else PROMPT_CACHE_WORDS[plan.prompt_cache]


def _prompts(plan: Plan, summary: RunSummary) -> str:
    used = {name: f", {each.used:,} prompts" for name, each in summary.coverage.items()}
    return _joined(
        f"{_named(each, plan)}{dataset_text(each.dataset)}{used.get(each.name, '')}" for each in plan.workloads
    )


def _named(workload: Workload, plan: Plan) -> str:
    return f"{workload.name}: " if len(plan.workloads) > 1 else ""


def _loads(plan: Plan) -> str:
    levels = plan.load.levels
    return ", ".join([levels[0].words, *(level.label for level in levels[1:])])


def _lengths(plan: Plan, summary: RunSummary) -> str:
    found = []
    for workload in plan.workloads:
        means = _values([cell for cell in summary.cells if cell.workload == workload.name], _LENGTH)
        mean = f"{_range(means, 0)} tokens on average, " if means else ""
        found.append(f"{_named(workload, plan)}{mean}at most {workload.output.max_tokens:,}")
    return _joined(found)


def _accepted(summary: RunSummary) -> str:
    arms = dict.fromkeys(cell.arm for cell in summary.cells if cell.arm != BASELINE_NAME)
    lengths = {arm: _values([cell for cell in summary.cells if cell.arm == arm], _ACCEPTED) for arm in arms}
    return _joined(f"{arm} {_range(values, 2)} tokens a step" for arm, values in lengths.items() if values)


def _memory(summary: RunSummary) -> str:
    rows = [row for row in arm_environment_rows(summary) if row.arm != BASELINE_NAME]
    lost = [f"{row.arm} takes {row.kv_cache_lost} of the KV cache" for row in rows if row.kv_cache_lost != DASH]
    weights = [f"{row.arm} has {row.drafter_weights}" for row in rows if row.drafter_weights != DASH]
    return _joined([*lost, *weights])


def _engine(plan: Plan, summary: RunSummary) -> str:
    versions = _joined(row.engine for row in arm_environment_rows(summary) if row.engine != DASH)
    version = versions if versions != DASH else plan.engine.version or ""
    kind = "an engine of unknown version" if plan.engine.is_imported else plan.engine.kind
    return f"{kind} {version}".strip()


def _languages(plan: Plan) -> str:
    languages = [", ".join(each.dataset.languages or []) for each in plan.workloads]
    return _joined(each for each in languages if each)


def _sampling(plan: Plan) -> str:
    return _joined(f"{_named(each, plan)}temperature {each.sampling.temperature:g}" for each in plan.workloads)


def _formats(summary: RunSummary) -> str:
    return _joined(row.dtype for row in arm_environment_rows(summary) if row.dtype != DASH)


def _machines(summary: RunSummary) -> str:
    return _joined(row.machine for row in arm_environment_rows(summary) if row.machine != DASH)


def _values(cells: Sequence[Cell], name: str) -> list[float]:
    figures = [cell.figures.get(name) for cell in cells]
    return [figure.value for figure in figures if figure is not None and figure.value is not None]


def _range(values: Sequence[float], digits: int) -> str:
    low, high = number(min(values), digits), number(max(values), digits)
    return low if low == high else f"{low} to {high}"


def _joined(parts: Iterable[str]) -> str:
    """Join distinct parts in order; a dash if there are none."""
    return "; ".join(dict.fromkeys(parts)) or DASH
