"""What a run's figures hold for: what to look at before they are carried elsewhere, with what it was here.

The first six are the literature's checklist (workload, batch, output length, acceptance, memory, framework), the others
what its authors say does not carry over: language, sampling, model, number format, hardware. What nobody told is a
dash, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.workload import Workload
from specbench_client.report.columns import DASH, number
from specbench_client.report.coverage import told
from specbench_client.report.seen import seen_rows
from specbench_client.report.sheets import Sheet

TITLE = "What these figures hold for"
COLUMNS = ("Look at", "In this run", "Elsewhere")
_LENGTH, _ACCEPTED = "output_tokens_mean", "acceptance_length_emitted_pooled"


def holds_sheet(plan: Plan, summary: RunSummary) -> Sheet:
    """The list, a row each."""
    return Sheet(TITLE, COLUMNS, _rows(plan, summary), words=COLUMNS)


def holds_line(plan: Plan, summary: RunSummary) -> str:
    """The same in one line, for a terminal; what nobody told is left out."""
    format_ = _formats(summary)
    model = f"{plan.target.name} ({format_})" if format_ != DASH else f"{plan.target.name} (quantisation not told)"
    where = [model, _engine(plan, summary), _machines(summary), _loads(plan)]
    known = ", ".join(part for part in where if part != DASH)
    return f"for these prompts and their language, {known}; what differs elsewhere is listed in the report"


def _rows(plan: Plan, summary: RunSummary) -> list[Sequence[str]]:
    return [
        ("Workload", _prompts(plan, summary), "other prompts are accepted otherwise, code more than role play"),
        ("Batch", _loads(plan), "the gain falls as more requests share a step; of other loads nothing is known"),
        (
            "Output length",
            _lengths(plan, summary),
            "in short answers the first token's time, which gains nothing, weighs",
        ),
        ("Acceptance", _accepted(summary), "it goes with the prompts, and its worth with the cost of a step there"),
        (
            "Memory",
            _memory(summary),
            "where the KV cache is full, what the drafter takes of it costs requests at a time",
        ),
        ("Engine", _engine(plan, summary), "other versions and kernels have other costs of a step"),
        ("Language", _languages(plan), "drafters are trained on some languages more than on others"),
        ("Sampling", _sampling(plan), "the higher the temperature, the less is accepted"),
        ("Model", f"{plan.target.name}, revision {plan.target.revision}", "a drafter fits the target it was made for"),
        (
            "Quantisation",
            _formats(summary),
            "it makes the target's step cheaper, and so the drafter's dearer beside it",
        ),
        ("Hardware", _machines(summary), "how much a wider step costs is the machine's: bandwidth against computing"),
    ]


def _prompts(plan: Plan, summary: RunSummary) -> str:
    used = {name: f", {each.used:,} prompts" for name, each in summary.coverage.items()}
    return _joined(f"{_named(each, plan)}{told(each.dataset)}{used.get(each.name, '')}" for each in plan.workloads)


def _named(workload: Workload, plan: Plan) -> str:
    return f"{workload.name}: " if len(plan.workloads) > 1 else ""


def _loads(plan: Plan) -> str:
    levels = plan.load.levels
    return ", ".join([levels[0].words, *(level.label for level in levels[1:])])


def _lengths(plan: Plan, summary: RunSummary) -> str:
    found = []
    for workload in plan.workloads:
        means = _values([cell for cell in summary.cells if cell.workload == workload.name], _LENGTH)
        mean = f"{_range(means, 0)} tokens in the mean, " if means else ""
        found.append(f"{_named(workload, plan)}{mean}at most {workload.output.max_tokens:,}")
    return _joined(found)


def _accepted(summary: RunSummary) -> str:
    arms = dict.fromkeys(cell.arm for cell in summary.cells if cell.arm != BASELINE_NAME)
    lengths = {arm: _values([cell for cell in summary.cells if cell.arm == arm], _ACCEPTED) for arm in arms}
    return _joined(f"{arm} {_range(values, 2)} tokens a step" for arm, values in lengths.items() if values)


def _memory(summary: RunSummary) -> str:
    rows = [row for row in seen_rows(summary) if row.arm != BASELINE_NAME]
    lost = [f"{row.arm} takes {row.kv_cache_lost} of the KV cache" for row in rows if row.kv_cache_lost != DASH]
    weights = [f"{row.arm} has {row.drafter_weights}" for row in rows if row.drafter_weights != DASH]
    return _joined([*lost, *weights])


def _engine(plan: Plan, summary: RunSummary) -> str:
    versions = _joined(row.engine for row in seen_rows(summary) if row.engine != DASH)
    version = versions if versions != DASH else plan.engine.version or ""
    return f"{plan.engine.kind} {version}".strip()


def _languages(plan: Plan) -> str:
    asked = [", ".join(each.dataset.languages or []) for each in plan.workloads]
    return _joined(each for each in asked if each)


def _sampling(plan: Plan) -> str:
    return _joined(f"{_named(each, plan)}temperature {each.sampling.temperature:g}" for each in plan.workloads)


def _formats(summary: RunSummary) -> str:
    return _joined(row.dtype for row in seen_rows(summary) if row.dtype != DASH)


def _machines(summary: RunSummary) -> str:
    return _joined(row.machine for row in seen_rows(summary) if row.machine != DASH)


def _values(cells: Sequence[Cell], name: str) -> list[float]:
    figures = [cell.figures.get(name) for cell in cells]
    return [figure.value for figure in figures if figure is not None and figure.value is not None]


def _range(values: Sequence[float], digits: int) -> str:
    low, high = number(min(values), digits), number(max(values), digits)
    return low if low == high else f"{low} to {high}"


def _joined(parts: Iterable[str]) -> str:
    """Each once, in order; a dash where there is none."""
    return "; ".join(dict.fromkeys(parts)) or DASH
