"""The nearest published row of a measured figure, and in what the two differ.

Near is a row of the same figure and method; then the fewer and the smaller the differences, the nearer: a doubled batch
or a target of twice the size counts 1, a draft token 0.5, a unit of temperature 2, and another engine, dataset or GPU 1
each; what only one side tells counts 1. The weights only order rows: every difference is told beside the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.comparison import Difference
from specbench_api.outcome.facts import FactName
from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.published import BesidePublished, PublishedComparison, PublishedFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.published.table import Table

APART = (
    "A published number was measured elsewhere, with another version and on other prompts. That yours lies above or"
    " below it is no pass and no fail: read what differs first."
)
FIGURES = {
    "speedup": "speedup",
    "tpot_speedup": "tpot_speedup",
    "acceptance_length": str(Headline.ACCEPTANCE_LENGTH),
    "acceptance_rate": str(Headline.ACCEPTANCE_RATE),
    "tpot_ms_p50": "tpot_ms_p50",
}
"""Published figure → ours."""
NOT_KNOWN = "not told"
_UNKNOWN = 1.0
_ALIKE = re.compile(r"[^a-z0-9]+")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([bm])(?![a-z0-9])", re.IGNORECASE)
_BILLION = {"b": 1.0, "m": 1e-3}


@dataclass(frozen=True)
class Circumstances:
    """Of a measured cell, in the words in which tables tell theirs."""

    model: str
    engine: str
    hardware: str
    method: str
    draft_tokens: int | None
    dataset: str
    batch: int | None
    temperature: float


def beside(plan: Plan, summary: RunSummary, uri: str, tables: Sequence[Table]) -> PublishedComparison:
    """A run beside tables. The nearest row of each table stands beside each figure of each valid cell."""
    rows, unmatched = list[BesidePublished](), list[str]()
    for cell in summary.cells:
        place = f"{cell.arm} on {cell.workload} at {cell.level.label}"
        if not cell.valid:
            unmatched.append(f"{place}: invalid ({', '.join(cell.findings)})")
            continue
        found = _of_cell(cell, circumstances(plan, summary, cell), tables)
        rows += found
        if not found:
            method = _method(plan, cell.arm)
            unmatched.append(f"{place}: no published row of {method} has a figure that was measured here")
    return PublishedComparison(
        run=uri,
        simulated=summary.simulated,
        trustworthy=summary.trustworthy,
        tables=[table.told for table in tables],
        rows=rows,
        unmatched=unmatched,
        limits=[APART, *(f"{table.name}: {table.caution}" for table in tables if table.caution)],
    )


def circumstances(plan: Plan, summary: RunSummary, cell: Cell) -> Circumstances:
    """What a table would tell of this cell."""
    drafter, workload = plan.arm(cell.arm).drafter, plan.workload(cell.workload)
    facts = next((each.facts for each in summary.arms_seen if each.arm == cell.arm), {})
    gpu, cpu, version, count = (
        facts[name].value if name in facts else None
        for name in (FactName.GPU, FactName.CPU, FactName.ENGINE_VERSION, FactName.GPU_COUNT)
    )
    gpus = plan.placement.engine_devices or count
    hardware = f"{gpus} x {gpu}" if gpu and gpus else str(gpu or cpu or NOT_KNOWN)
    return Circumstances(
        model=plan.target.name,
        engine=" ".join(str(each) for each in (plan.engine.kind, version or plan.engine.version) if each),
        hardware=hardware,
        method=_method(plan, cell.arm),
        draft_tokens=(drafter.num_draft_tokens or drafter.num_speculative_tokens) if drafter else None,
        dataset=workload.dataset.where,
        batch=cell.level.concurrency,
        temperature=workload.sampling.temperature,
    )


def differences(here: Circumstances, there: PublishedFigure) -> list[Difference]:
    """Published → measured, of everything that is not the same."""
    pairs = [
        ("model", there.model, here.model, _same_name(there.model, here.model)),
        ("hardware", there.hardware, here.hardware, _same_name(there.hardware, here.hardware)),
        ("engine", there.engine, here.engine, _same_name(there.engine, here.engine)),
        ("dataset", there.dataset, here.dataset, _same_name(there.dataset, here.dataset)),
        ("batch", _told(there.batch), _told(here.batch), there.batch == here.batch is not None),
        ("temperature", _told(there.temperature), _told(here.temperature), there.temperature == here.temperature),
    ]
    if here.draft_tokens is not None:
        same = there.draft_tokens == here.draft_tokens
        pairs.append(("draft tokens", _told(there.draft_tokens), _told(here.draft_tokens), same))
    return [Difference(what=what, before=old, after=new) for what, old, new, same in pairs if not same]


def distance(here: Circumstances, there: PublishedFigure) -> float:
    """How far a row is from a cell; it orders rows, and means nothing else."""
    sizes = size_b(here.model), size_b(there.model)
    parts = [
        0.0 if _same_name(here.model, there.model) else 0.5 + _octaves(*sizes),
        _octaves(here.batch, there.batch),
        0.0 if here.draft_tokens is None else _step(here.draft_tokens, there.draft_tokens, 0.5),
        _step(here.temperature, there.temperature, 2.0),
        *(
            0.0 if _same_name(mine, its) else 1.0
            for mine, its in (
                (here.engine, there.engine),
                (here.dataset, there.dataset),
                (here.hardware, there.hardware),
            )
        ),
    ]
    return sum(parts)


def size_b(model: str) -> float | None:
    """Billions of parameters by a model's name: `Llama-3.1-8B` 8, `SmolLM2-135M` 0.135; None where it tells none."""
    found = _SIZE.search(model.replace("-", " ").replace("_", " ").replace("/", " "))
    return float(found[1]) * _BILLION[found[2].lower()] if found else None


def _of_cell(cell: Cell, here: Circumstances, tables: Sequence[Table]) -> list[BesidePublished]:
    found = []
    for table in tables:
        for name in FIGURES:
            figure = _measured(cell, name)
            rows = [row for row in table.figures if (row.figure, row.method) == (name, here.method)]
            if figure is None or figure.value is None or not rows:
                continue
            nearest = min(rows, key=lambda row: distance(here, row))
            found.append(_beside(cell, figure, table, nearest, here))
    return found


def _beside(cell: Cell, figure: Figure, table: Table, nearest: PublishedFigure, here: Circumstances) -> BesidePublished:
    assert figure.value is not None
    return BesidePublished(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        measured=figure,
        table=table.name,
        published=nearest,
        ratio=figure.value / nearest.value,
        differences=differences(here, nearest),
    )


def _measured(cell: Cell, name: str) -> Figure | None:
    """Ours. From too few repeats a comparison has no interval that holds what runs do."""
    if name not in ("speedup", "tpot_speedup"):
        return cell.figures.get(FIGURES[name])
    figure = cell.speedup if name == "speedup" else cell.tpot_speedup
    return figure.model_copy(update={"interval": None}) if figure and cell.too_few_repeats else figure


def _method(plan: Plan, arm: str) -> str:
    drafter = plan.arm(arm).drafter
    return str(drafter.method) if drafter else "none"


def _same_name(one: str, other: str) -> bool:
    """Whether the shorter one's words all stand in the longer one: `GSM8K` and `openai/gsm8k`."""
    words = sorted((set(_ALIKE.split(each.lower())) - {""} for each in (one, other)), key=len)
    return NOT_KNOWN not in (one, other) and bool(words[0]) and words[0] <= words[1]


def _octaves(one: float | None, other: float | None) -> float:
    return abs(math.log2(one / other)) if one and other else _UNKNOWN


def _step(one: float | None, other: float | None, weight: float) -> float:
    return abs(one - other) * weight if one is not None and other is not None else _UNKNOWN


def _told(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:g}"
