"""Tables of an n-gram replay: every setting, by category, and the overlap of outputs with prompts."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.ngram import NgramFigures, NgramReport, NgramSetting, OverlapBin, OverlapFigures
from specbench_client.report.text.decision import rule_row, rules_table
from specbench_client.report.text.oracle import figure_text
from specbench_client.report.text.text_table import DASH, SIMULATED, TextTable, number

_ALL = "all"
PREDICTORS = {"copied_share": "output 4-grams in the prompt", "bleu4": "BLEU-4(prompt, output)"}
"""Overlap measure → its name in tables."""


def replay_tables(report: NgramReport) -> list[TextTable]:
    """Return settings over all answers, each category, overlap, and the value of drafting by overlap."""
    return [
        _settings(report),
        *([_categories(report)] if report.overlap_by_category else []),
        _overlap(report),
        *([_bins(report)] if report.by_overlap else []),
        *([rules_table([rule_row(report.rule)])] if report.rule else []),
    ]


def replay_lines(report: NgramReport) -> list[str]:
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
    shares = [figures.drafted_steps.value, figures.acceptance_rate.value]
    return [
        figure_text(figures.acceptance_length),
        number(figures.acceptance_length_mean.value),
        *(DASH if share is None else f"{share:.1%}" for share in shares),
        *(number(figures.speedups[batch].value) for batch in batches),
    ]
