"""Answers compared with the baseline's: flaws and losslessness, as tables and lines."""

from __future__ import annotations

from specbench_api.api_model import in_words
from specbench_client.documents.lossless import JudgedAnswers, Losslessness
from specbench_client.documents.record import AnswerFlaw
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.text.text_table import DASH, TextTable, cell_place, figure_text, number, percent

ANSWERS_TITLE = "Flawed answers, paired with the baseline's"
_COLUMNS = (
    "Arm",
    "Workload",
    "Load",
    "Flaws",
    "Pairs",
    "Flawed",
    "Baseline's",
    "Prompts worse / better",
    "Control",
    "p",
)
_SAYS = (
    "Control: share of pairs of the baseline's own answers in two repeats of which exactly one is flawed. p: exact sign"
    " test over the prompts with more flawed answers than the baseline's (worse) or fewer (better)."
)


def answers_table(summary: RunSummary) -> TextTable:
    """Return one row for each cell with judged answers; without rows if no answer of the run was flawed."""
    judged = [(cell, cell.judged) for cell in summary.cells if cell.judged]
    flawed = any(found.flawed or found.baseline_flawed for _, found in judged)
    rows = [_row(cell, found) for cell, found in judged] if flawed else []
    return TextTable(ANSWERS_TITLE, _COLUMNS, rows, words=_COLUMNS[:4], caption=_SAYS)


def answers_lines(summary: RunSummary) -> list[str]:
    """Return what explains the table, or that no answer was flawed, and how many could not be judged."""
    judged = [cell.judged for cell in summary.cells if cell.judged]
    pairs, not_judged = sum(each.pairs for each in judged), sum(each.not_judged for each in judged)
    lines = []
    if pairs:
        lines.append(_SAYS if answers_table(summary).rows else f"Answers: {pairs:,} pairs judged, none flawed.")
    if not_judged:
        lines.append(
            f"Answers: {not_judged:,} pairs not judged, because validation against the schema took too long: simplify"
            " its patterns and alternatives (NotJudged)."
        )
    return lines


def _row(cell: Cell, found: JudgedAnswers) -> list[str]:
    by_number = sorted(found.flaws.items(), key=lambda each: (-each[1], each[0]))
    return [
        *cell_place(cell),
        ", ".join(f"{count} {in_words(AnswerFlaw(flaw))}" for flaw, count in by_number) or "none",
        f"{found.pairs:,}",
        f"{found.flawed:,}",
        f"{found.baseline_flawed:,}",
        f"{found.worse_prompts} / {found.better_prompts}",
        percent(found.control),
        f"{found.p_value:.2g}",
    ]


# Losslessness, by arm, workload and load.

LOSSLESS_COLUMNS = (
    "Arm", "Workload", "Load", "Verdict", "Differ", "Control", "Excess", "First difference: arm / control",
)  # fmt: skip


def lossless_table(summary: RunSummary) -> TextTable:
    """Return one row for each cell that was compared with the baseline."""
    rows = [_lossless(cell, cell.lossless) for cell in summary.cells if cell.lossless]
    return TextTable("Compared with the baseline's own repeats", LOSSLESS_COLUMNS, rows, words=LOSSLESS_COLUMNS[:4])


def losslessness_lines(summary: RunSummary) -> list[str]:
    """Return one line for each distinct result, with the cells that share it."""
    places: dict[str, list[str]] = {}
    for cell in summary.cells:
        if cell.lossless:
            result = f"{cell.lossless.verdict}: {cell.lossless.message}"
            places.setdefault(result, []).append(f"{cell.arm} on {cell.workload} at {cell.level.label}")
    return [f"{', '.join(where)}: {result}" for result, where in places.items()]


def _lossless(cell: Cell, found: Losslessness) -> list[str]:
    place, shares = found.first_difference, (found.divergence, found.control, found.excess)
    first = DASH
    if place:
        both = (DASH if each is None else number(each.value, 0) for each in (place.arm, place.control))
        first = f"{' / '.join(both)} {place.unit}"
    fields = [*cell_place(cell), str(found.verdict)]
    return [*fields, *(figure_text(each, percent) for each in shares), first]
