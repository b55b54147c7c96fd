"""Tables and lines of the what-if reports: oracle and n-gram replay."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.what_if import (
    DraftCharge,
    DraftPolicy,
    NgramFigures,
    NgramReport,
    NgramSetting,
    OracleReport,
    OracleRow,
    OverlapBin,
    OverlapFigures,
)
from specbench_client.report.text.text_table import SIMULATED, TextTable, figure_text, number, percent

_CHARGES = {DraftCharge.WINNER: "the winner pays", DraftCharge.BOTH: "both pay"}


def oracle_tables(report: OracleReport) -> list[TextTable]:
    """Return policies; with a step cost, headroom."""
    return [
        _policies(report),
        *([_rooms(report)] if report.rooms else []),
    ]


def oracle_lines(report: OracleReport) -> list[str]:
    """Return the lines below the tables."""
    lines = [SIMULATED] if report.simulated else []
    lines += [f"left out: {count:,} x {reason}" for reason, count in report.left_out.items()]
    if report.covered:
        lines.append(
            f"covered by both drafters: {percent(report.covered.value)} of the tokens; compared: {report.covered_by}"
        )
    lines += [
        f"{name}: {percent(censored.value)} of the steps had every draft accepted, and the oracle could have had more"
        " there"
        for name, censored in report.censored.items()
    ]
    return [*lines, *(f"limit: {each}" for each in report.limits)]


def _policies(report: OracleReport) -> TextTable:
    batches = list(report.rows[0].speedups) if report.rows else []
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    title = f"{report.source}: {report.answers:,} answers, {report.tokens:,} tokens{cost}"
    columns = ["policy", "drafter", "AL [95 %]", "AL, mean of requests", *(f"B={batch}" for batch in batches)]
    return TextTable(title, columns, [_row(row, batches) for row in report.rows], words=("policy", "drafter"))


def _row(row: OracleRow, batches: Sequence[str]) -> list[str]:
    lengths = [figure_text(row.acceptance_length), number(row.acceptance_length_mean.value)]
    return [policy_name(row), row.drafter, *lengths, *(number(row.speedups[batch].value) for batch in batches)]


def policy_name(row: OracleRow) -> str:
    """Return how the policy chooses draft lengths, for tables and legends."""
    if row.policy is DraftPolicy.FIXED:
        return f"fixed k={row.drafts}"
    return "oracle" if row.charge is None else f"oracle-combine, {_CHARGES[row.charge]}"


def _rooms(report: OracleReport) -> TextTable:
    columns = ["batch", "best fixed k", "its speed-up [95 %]", "headroom [95 %]", "complementarity [95 %]"]
    rows = [
        [
            str(room.batch),
            str(room.best_drafts) if room.best_drafts else "none: no drafts",
            figure_text(room.best_fixed),
            figure_text(room.headroom),
            figure_text(room.complementarity),
        ]
        for room in report.rooms
    ]
    return TextTable(
        "Headroom: oracle - best fixed k; combined oracle - better oracle",
        columns,
        rows,
        words=("batch",),
    )


_ALL = "all"
PREDICTORS = {"copied_share": "output 4-grams in the prompt", "bleu4": "BLEU-4(prompt, output)"}
"""Overlap measure → its name in tables."""


def ngram_tables(report: NgramReport) -> list[TextTable]:
    """Return settings over all answers, each category, overlap, and the value of drafting by overlap."""
    return [
        _settings(report),
        *([_categories(report)] if report.overlap_by_category else []),
        _overlap(report),
        *([_bins(report)] if report.by_overlap else []),
    ]


def ngram_lines(report: NgramReport) -> list[str]:
    """Return the lines below the tables."""
    left_out = [f"left out: {count:,} x {reason}" for reason, count in report.left_out.items()]
    marked = [SIMULATED] if report.simulated else []
    return [*marked, f"token ids: {report.token_ids}", *left_out, *(f"limit: {each}" for each in report.limits)]


def _settings(report: NgramReport) -> TextTable:
    batches = list(report.settings[0].overall.speedups)
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    title = f"{report.source}: {report.answers:,} answers, {report.output_tokens:,} tokens, n-gram replayed{cost}"
    columns = ["k", "min-max n", "AL [95 %]", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [[*_knobs(each), *_figures(each.overall, batches)] for each in report.settings]
    return TextTable(title, [*columns, *(f"B={batch}" for batch in batches)], rows, words=())


def _categories(report: NgramReport) -> TextTable:
    batches = list(report.settings[0].overall.speedups)
    columns = ["category", "k", "min-max n", "AL [95 %]", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [
        [name, *_knobs(each), *_figures(each.categories[name], batches)]
        for name in report.overlap_by_category
        for each in report.settings
    ]
    return TextTable("By category", [*columns, *(f"B={batch}" for batch in batches)], rows, words=("category",))


def _overlap(report: NgramReport) -> TextTable:
    columns = ["category", "output 4-grams in the prompt [95 %]", "BLEU-4(prompt, output) [95 %]"]
    rows = [_copied(name, each) for name, each in report.overlap_by_category.items()]
    return TextTable(
        "Overlap of outputs with their prompts", columns, [*rows, _copied(_ALL, report.overlap)], words=("category",)
    )


def _bins(report: NgramReport) -> TextTable:
    arms = list(report.by_overlap[0].speedups)
    knobs = list(report.by_overlap[0].acceptance_lengths)
    columns = ["of", "overlap", "answers", *(f"AL {each}" for each in knobs), *(f"speed-up {each}" for each in arms)]
    rows = [
        [
            PREDICTORS[each.by],
            range_of(each),
            f"{each.answers:,}",
            *(figure_text(each.acceptance_lengths[name]) for name in knobs),
            *(figure_text(each.speedups[name]) for name in arms),
        ]
        for each in report.by_overlap
    ]
    measured = "; speed-ups as measured" if arms else ""
    return TextTable(f"By overlap: n-gram replayed{measured}, 95 %", columns, rows, words=columns[:2])


def range_of(each: OverlapBin) -> str:
    """`0.2–0.4`."""
    return f"{each.low:.1f}–{each.high:.1f}"


def _copied(name: str, overlap: OverlapFigures) -> list[str]:
    return [name, figure_text(overlap.copied_share), figure_text(overlap.bleu4)]


def _knobs(setting: NgramSetting) -> list[str]:
    return [str(setting.drafts), f"{setting.lookup_min}-{setting.lookup_max}"]


def _figures(figures: NgramFigures, batches: Sequence[str]) -> list[str]:
    shares = [percent(figures.drafted_steps.value), percent(figures.acceptance_rate.value)]
    return [
        figure_text(figures.acceptance_length),
        number(figures.acceptance_length_mean.value),
        *shares,
        *(number(figures.speedups[batch].value) for batch in batches),
    ]
