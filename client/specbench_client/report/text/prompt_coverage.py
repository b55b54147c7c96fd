"""The prompts of a run in words: their source, how many were requested, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass

from specbench_api.outcome.prompt_coverage import CategoryCoverage, PromptCoverage
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.dataset import Dataset, Selection

_ALL = "all"
_NO_CATEGORY = "(no category)"


@dataclass(frozen=True)
class CoverageRow:
    """One category of one workload, or all of them."""

    workload: str
    category: str
    requested: int
    used: int
    turns: int
    unusable: str


def coverage_rows(summary: RunSummary) -> list[CoverageRow]:
    """Return every workload as a whole, then its categories where there are several."""
    rows = list[CoverageRow]()
    for workload, coverage in summary.coverage.items():
        rows.append(CoverageRow(workload, _ALL, coverage.requested, coverage.used, coverage.turns, _reasons(coverage)))
        if len(coverage.by_category) > 1:
            rows += [_category(workload, one) for one in coverage.by_category]
    return rows


def left_out_lines(summary: RunSummary) -> list[str]:
    """Return a line for each workload with rows left out."""
    return [
        f"{workload}: {coverage.used} prompts of {coverage.requested} requested rows; left out: {_reasons(coverage)}"
        for workload, coverage in summary.coverage.items()
        if coverage.missing
    ]


def dataset_text(dataset: Dataset) -> str:
    """Return the requested data set as one line."""
    if dataset.members is None:
        return _selection(dataset)
    whole = sum(member.weight for member in dataset.members)
    parts = "; ".join(f"{member.weight / whole:.0%} {member.name}: {_selection(member)}" for member in dataset.members)
    return f"{_selection(dataset)}: {parts}"


def _selection(selection: Selection) -> str:
    chosen = {
        "": f"{selection.count} prompts" if selection.count else "",
        "only ": ", ".join(selection.categories or []),
        "sub-categories ": ", ".join(selection.sub_categories or []),
        "entropy ": ", ".join(selection.entropy or []).lower(),
        "difficulty ": ", ".join(selection.difficulty or []),
        "languages ": ", ".join(selection.languages or []),
        "seed ": "" if selection.seed is None else str(selection.seed),
        "revision ": selection.revision or "",
    }
    source = f"{selection.source} {selection.config}" if selection.config else str(selection.source)
    words = ", ".join([source, *(f"{word}{value}" for word, value in chosen.items() if value)])
    return words if selection.where == selection.source else f"{selection.where} ({words})"


def _category(workload: str, one: CategoryCoverage) -> CoverageRow:
    return CoverageRow(workload, one.category or _NO_CATEGORY, one.requested, one.used, one.turns, _reasons(one))


def _reasons(counted: PromptCoverage | CategoryCoverage) -> str:
    return "; ".join(f"{count} x {reason}" for reason, count in counted.unusable.items())
