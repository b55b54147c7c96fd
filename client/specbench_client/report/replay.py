"""A replay's answer as tables of text: every setting, by category, and how much the outputs copy."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.replay import OverlapBin, OverlapFigures, ReplayFigures, ReplayReport, ReplaySetting
from specbench_client.report.columns import DASH, SIMULATED, number
from specbench_client.report.decision import rule_row, rules_sheet
from specbench_client.report.oracle import told
from specbench_client.report.sheets import Sheet

_ALL = "all"
PREDICTORS = {"copied_share": "output 4-grams in the prompt", "bleu4": "BLEU-4(prompt, output)"}
"""What bins are of, in words."""


def replay_sheets(report: ReplayReport) -> list[Sheet]:
    """Settings over all answers; each category; overlap; and what drafting is worth in each range of it."""
    return [
        _settings(report),
        *([_categories(report)] if report.overlap_by_category else []),
        _overlap(report),
        *([_bins(report)] if report.by_overlap else []),
        *([rules_sheet([rule_row(report.rule)])] if report.rule else []),
    ]


def replay_lines(report: ReplayReport) -> list[str]:
    """What stands below the tables."""
    left_out = [f"left out: {count:,} x {reason}" for reason, count in report.left_out.items()]
    marked = [SIMULATED] if report.simulated else []
    return [*marked, f"token ids: {report.token_ids}", *left_out, *(f"limit: {each}" for each in report.limits)]


def _settings(report: ReplayReport) -> Sheet:
    batches = list(report.settings[0].overall.speedups)
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    title = f"{report.source}: {report.answers:,} answers, {report.output_tokens:,} tokens, n-gram replayed{cost}"
    columns = ["k", "min-max n", "AL [95 %]", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [[*_knobs(each), *_figures(each.overall, batches)] for each in report.settings]
    return Sheet(title, [*columns, *(f"B={batch}" for batch in batches)], rows, words=())


def _categories(report: ReplayReport) -> Sheet:
    batches = list(report.settings[0].overall.speedups)
    columns = ["category", "k", "min-max n", "AL [95 %]", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [
        [name, *_knobs(each), *_figures(each.categories[name], batches)]
        for name in report.overlap_by_category
        for each in report.settings
    ]
    return Sheet("By category", [*columns, *(f"B={batch}" for batch in batches)], rows, words=("category",))


def _overlap(report: ReplayReport) -> Sheet:
    columns = ["category", "output 4-grams in the prompt [95 %]", "BLEU-4(prompt, output) [95 %]"]
    rows = [_copied(name, each) for name, each in report.overlap_by_category.items()]
    return Sheet(
        "Overlap of outputs with their prompts", columns, [*rows, _copied(_ALL, report.overlap)], words=("category",)
    )


def _bins(report: ReplayReport) -> Sheet:
    arms = list(report.by_overlap[0].speedups)
    knobs = list(report.by_overlap[0].acceptance_lengths)
    columns = ["of", "overlap", "answers", *(f"AL {each}" for each in knobs), *(f"speed-up {each}" for each in arms)]
    rows = [
        [
            PREDICTORS[each.by],
            range_of(each),
            f"{each.answers:,}",
            *(told(each.acceptance_lengths[name]) for name in knobs),
            *(told(each.speedups[name]) for name in arms),
        ]
        for each in report.by_overlap
    ]
    measured = "; speed-ups as measured" if arms else ""
    return Sheet(f"By overlap: n-gram replayed{measured}, 95 %", columns, rows, words=columns[:2])


def range_of(each: OverlapBin) -> str:
    """`0.2–0.4`."""
    return f"{each.low:.1f}–{each.high:.1f}"


def _copied(name: str, overlap: OverlapFigures) -> list[str]:
    return [name, told(overlap.copied_share), told(overlap.bleu4)]


def _knobs(setting: ReplaySetting) -> list[str]:
    return [str(setting.drafts), f"{setting.lookup_min}-{setting.lookup_max}"]


def _figures(figures: ReplayFigures, batches: Sequence[str]) -> list[str]:
    shares = [figures.drafted_steps.value, figures.acceptance_rate.value]
    return [
        told(figures.acceptance_length),
        number(figures.acceptance_length_mean.value),
        *(DASH if share is None else f"{share:.1%}" for share in shares),
        *(number(figures.speedups[batch].value) for batch in batches),
    ]
