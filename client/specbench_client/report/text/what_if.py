"""Tables and lines of the what-if reports: oracle and n-gram replay."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.what_if import (
    DraftPolicy,
    NgramFigures,
    NgramReport,
    NgramSetting,
    OracleReport,
    OracleRow,
    WhatIfReport,
)
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    SIMULATED,
    Report,
    TextTable,
    Topic,
    figure_text,
    number,
    percent,
    with_interval,
)


def oracle_report_text(report: OracleReport) -> Report:
    """Return policies; with a step cost, headroom."""
    tables = [_policies(report), *([_rooms(report)] if report.rooms else [])]
    own = []
    if report.censored:
        share = percent(report.censored.value)
        own.append(f"{share} of the steps had every draft accepted, and the oracle could have had more there")
    return Report([Topic("", tables, _lines(report, after=own))])


def _lines(report: WhatIfReport, before: Sequence[str] = (), after: Sequence[str] = ()) -> list[str]:
    """Return the lines below the tables. `before`, `after`: lines before and after those of what was left out."""
    left_out = [f"left out: {count:,} x {reason}" for reason, count in report.left_out.items()]
    marked = [SIMULATED] if report.simulated else []
    return [*marked, *before, *left_out, *after, *(f"limit: {each}" for each in report.limits)]


def _policies(report: OracleReport) -> TextTable:
    batches = list(report.rows[0].speedups) if report.rows else []
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    title = f"{report.source}: {report.answers:,} answers, {report.tokens:,} tokens{cost}"
    columns = ["policy", f"AL {AT_LEVEL}", "AL, mean of requests", *(f"B={batch}" for batch in batches)]
    return TextTable(title, columns, [_row(row, batches) for row in report.rows], words=("policy",))


def _row(row: OracleRow, batches: Sequence[str]) -> list[str]:
    lengths = [with_interval(row.acceptance_length), number(row.acceptance_length_mean.value)]
    policy = f"fixed k={row.drafts}" if row.policy is DraftPolicy.FIXED else "oracle"
    return [policy, *lengths, *(number(row.speedups[batch].value) for batch in batches)]


def _rooms(report: OracleReport) -> TextTable:
    columns = ["batch", "best fixed k", f"its speed-up {AT_LEVEL}", f"headroom {AT_LEVEL}"]
    rows = [
        [
            str(room.batch),
            str(room.best_drafts) if room.best_drafts else "none: no drafts",
            with_interval(room.best_fixed),
            with_interval(room.headroom),
        ]
        for room in report.rooms
    ]
    return TextTable("Headroom: oracle - best fixed k", columns, rows, words=("batch",))


def ngram_report_text(report: NgramReport) -> Report:
    """Return settings over all answers, each category, and the overlap of outputs with their prompts."""
    categories = [_categories(report)] if report.copied_share_by_category else []
    tables = [_settings(report), *categories, _overlap(report)]
    return Report([Topic("", tables, _lines(report, before=[f"token ids: {report.token_ids}"]))])


def _settings(report: NgramReport) -> TextTable:
    batches = list(report.settings[0].overall.speedups)
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    title = f"{report.source}: {report.answers:,} answers, {report.output_tokens:,} tokens, n-gram replayed{cost}"
    columns = ["k", "min-max n", f"AL {AT_LEVEL}", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [[*_knobs(each), *_figures(each.overall, batches)] for each in report.settings]
    return TextTable(title, [*columns, *(f"B={batch}" for batch in batches)], rows, words=())


def _categories(report: NgramReport) -> TextTable:
    batches = list(report.settings[0].overall.speedups)
    columns = ["category", "k", "min-max n", f"AL {AT_LEVEL}", "AL, mean of requests", "steps that drafted", "accepted"]
    rows = [
        [name, *_knobs(each), *_figures(each.categories[name], batches)]
        for name in report.copied_share_by_category
        for each in report.settings
    ]
    return TextTable("By category", [*columns, *(f"B={batch}" for batch in batches)], rows, words=("category",))


def _overlap(report: NgramReport) -> TextTable:
    columns = ["category", f"output 4-grams in the prompt {AT_LEVEL}"]
    shares = {**report.copied_share_by_category, "all": report.copied_share}
    rows = [[name, figure_text(share)] for name, share in shares.items()]
    return TextTable("Overlap of outputs with their prompts", columns, rows, words=("category",))


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
