"""Finds the nearest published row of each measured figure, and lists their differences.

Candidates have the same figure and method. The distance adds up the differences: 1 for a doubled batch or a target of
twice the size, 0.5 per draft token, 2 per unit of temperature, 1 each for an adapter and for another engine, dataset or
GPU, and 1 for what only one side states. The weights only order rows; every difference is printed next to the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.comparison import Difference
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.provenance import FactName
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.published.tables import ShippedTable
from specbench_client.documents.published import PublishedComparison, PublishedFigure, PublishedMatch

APART = (
    "A published number was measured elsewhere, with another version and on other prompts. A higher or lower value here"
    " is neither a pass nor a fail: read the differences first."
)
FIGURES = {
    "speedup": "speedup",
    "tpot_speedup": "tpot_speedup",
    "acceptance_length": str(StatusFigure.ACCEPTANCE_LENGTH),
    "acceptance_rate": str(StatusFigure.ACCEPTANCE_RATE),
    "tpot_ms_p50": "tpot_ms_p50",
}
"""Names of published figures, and of the same figures in a summary."""
NOT_KNOWN = "unknown"
_UNKNOWN = 1.0
_ALIKE = re.compile(r"[^a-z0-9]+")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([bm])(?![a-z0-9])", re.IGNORECASE)
_BILLION = {"b": 1.0, "m": 1e-3}


@dataclass(frozen=True)
class CellConditions:
    """The conditions of a measured cell, in the terms of published tables."""

    model: str
    adapter: str | None
    """LoRA adapter; published rows have none."""
    engine: str
    hardware: str
    method: str
    draft_tokens: int | None
    dataset: str
    batch: int | None
    temperature: float


def compare_published(plan: Plan, summary: RunSummary, uri: str, tables: Sequence[ShippedTable]) -> PublishedComparison:
    """Return the nearest row of each table for each figure of each valid cell."""
    rows, unmatched = list[PublishedMatch](), list[str]()
    for cell in summary.cells:
        place = f"{cell.arm} on {cell.workload} at {cell.level.label}"
        if not cell.valid:
            unmatched.append(f"{place}: {cell.why_invalid(summary.findings)}")
            continue
        found = _of_cell(cell, cell_conditions(plan, summary, cell), tables)
        rows += found
        if not found:
            method = _method(plan, cell.arm)
            unmatched.append(f"{place}: no published row of {method} has a figure that was measured in this run")
    return PublishedComparison(
        run=uri,
        simulated=summary.simulated,
        trustworthy=summary.trustworthy,
        tables=[table.listing for table in tables],
        rows=rows,
        unmatched=unmatched,
        limits=[APART, *(f"{table.name}: {table.caution}" for table in tables if table.caution)],
    )


def cell_conditions(plan: Plan, summary: RunSummary, cell: Cell) -> CellConditions:
    """Return the conditions of a cell as a published table would state them."""
    drafter, workload = plan.arm(cell.arm).drafter, plan.workload(cell.workload)
    facts = next((each.facts for each in summary.arm_environments if each.arm == cell.arm), {})
    gpu, cpu, version, count = (
        facts[name].value if name in facts else None
        for name in (FactName.GPU, FactName.CPU, FactName.ENGINE_VERSION, FactName.GPU_COUNT)
    )
    gpus = plan.placement.engine_devices or count
    hardware = f"{gpus} x {gpu}" if gpu and gpus else str(gpu or cpu or NOT_KNOWN)
    return CellConditions(
        model=plan.target.name,
        adapter=plan.target.adapter.model if plan.target.adapter else None,
        engine=" ".join(str(each) for each in (plan.engine.kind, version or plan.engine.version) if each),
        hardware=hardware,
        method=_method(plan, cell.arm),
        draft_tokens=(drafter.num_draft_tokens or drafter.num_speculative_tokens) if drafter else None,
        dataset=workload.dataset.where,
        batch=cell.level.concurrency,
        temperature=workload.sampling.temperature,
    )


def condition_differences(here: CellConditions, there: PublishedFigure) -> list[Difference]:
    """Return all differences, published → measured."""
    pairs = [
        ("model", there.model, here.model, _same_name(there.model, here.model)),
        ("adapter", "none", here.adapter or "none", here.adapter is None),
        ("hardware", there.hardware, here.hardware, _same_name(there.hardware, here.hardware)),
        ("engine", there.engine, here.engine, _same_name(there.engine, here.engine)),
        ("dataset", there.dataset, here.dataset, _same_name(there.dataset, here.dataset)),
        ("batch", _text(there.batch), _text(here.batch), there.batch == here.batch is not None),
        ("temperature", _text(there.temperature), _text(here.temperature), there.temperature == here.temperature),
    ]
    if here.draft_tokens is not None:
        same = there.draft_tokens == here.draft_tokens
        pairs.append(("draft tokens", _text(there.draft_tokens), _text(here.draft_tokens), same))
    return [Difference(name=name, before=old, after=new) for name, old, new, same in pairs if not same]


def distance(here: CellConditions, there: PublishedFigure) -> float:
    """Return the distance of a row from a cell, which serves only to order rows."""
    sizes = size_b(here.model), size_b(there.model)
    parts = [
        0.0 if _same_name(here.model, there.model) else 0.5 + _octaves(*sizes),
        1.0 if here.adapter else 0.0,
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
    """Return the billions of parameters in a model's name: `Llama-3.1-8B` 8, `SmolLM2-135M` 0.135; None without any."""
    found = _SIZE.search(model.replace("-", " ").replace("_", " ").replace("/", " "))
    return float(found[1]) * _BILLION[found[2].lower()] if found else None


def _of_cell(cell: Cell, here: CellConditions, tables: Sequence[ShippedTable]) -> list[PublishedMatch]:
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


def _beside(
    cell: Cell, figure: Figure, table: ShippedTable, nearest: PublishedFigure, here: CellConditions
) -> PublishedMatch:
    assert figure.value is not None
    return PublishedMatch(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        measured=figure,
        table=table.name,
        published=nearest,
        ratio=figure.value / nearest.value,
        differences=condition_differences(here, nearest),
    )


def _measured(cell: Cell, name: str) -> Figure | None:
    """Return the figure of a cell; a speed-up over too few repeats has no interval, as it would lack run variation."""
    if name not in ("speedup", "tpot_speedup"):
        return cell.figures.get(FIGURES[name])
    figure = cell.speedup if name == "speedup" else cell.tpot_speedup
    return figure.model_copy(update={"interval": None}) if figure and cell.too_few_repeats else figure


def _method(plan: Plan, arm: str) -> str:
    drafter = plan.arm(arm).drafter
    return str(drafter.method) if drafter else "none"


def _same_name(one: str, other: str) -> bool:
    """Return whether the longer name contains all words of the shorter one: `GSM8K` and `openai/gsm8k`."""
    words = sorted((set(_ALIKE.split(each.lower())) - {""} for each in (one, other)), key=len)
    return NOT_KNOWN not in (one, other) and bool(words[0]) and words[0] <= words[1]


def _octaves(one: float | None, other: float | None) -> float:
    return abs(math.log2(one / other)) if one and other else _UNKNOWN


def _step(one: float | None, other: float | None, weight: float) -> float:
    return abs(one - other) * weight if one is not None and other is not None else _UNKNOWN


def _text(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:g}"
