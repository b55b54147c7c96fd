"""Tables and lines of the what-if reports: oracle, n-gram replay and draft-length schedules."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_client.documents.what_if import (
    DraftCharge,
    DraftLengthOption,
    DraftPolicy,
    DraftSchedule,
    DraftScheduleRange,
    EngineDraftSchedule,
    NgramFigures,
    NgramReport,
    NgramSetting,
    OracleReport,
    OracleRow,
    OverlapBin,
    OverlapFigures,
    TokensEvidence,
)
from specbench_client.report.text.decision import rules_table
from specbench_client.report.text.text_table import DASH, SIMULATED, TextTable, number

_CHARGES = {
    DraftCharge.WINNER: "the winner pays",
    DraftCharge.BOTH: "both pay",
    DraftCharge.UNCHARGED: "uncharged, as published",
}


def oracle_tables(report: OracleReport) -> list[TextTable]:
    """Return policies; with a step cost, headroom; for a run, other draft lengths."""
    return [
        _policies(report),
        *([_rooms(report)] if report.rooms else []),
        *([_what_if(report)] if report.what_if else []),
    ]


def oracle_lines(report: OracleReport) -> list[str]:
    """Return the lines below the tables."""
    lines = [SIMULATED] if report.simulated else []
    lines += [f"left out: {count:,} x {reason}" for reason, count in report.left_out.items()]
    if report.covered:
        lines.append(f"covered by both drafters: {_share(report.covered)} of the tokens; compared: {report.covered_by}")
    lines += [
        f"{name}: {_share(censored)} of the steps had every draft accepted, and the oracle could have had more there"
        for name, censored in report.censored.items()
    ]
    return [*lines, *(f"limit: {each}" for each in report.limits)]


def _policies(report: OracleReport) -> TextTable:
    batches = list(report.rows[0].speedups) if report.rows else []
    cost = f"; speed-up at batch size, by {report.step_cost.name}" if report.step_cost else ""
    rules = ", by the published rules" if report.conventions == "published" else ""
    title = f"{report.source}: {report.answers:,} answers, {report.tokens:,} tokens{rules}{cost}"
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


def _what_if(report: OracleReport) -> TextTable:
    columns = ["k", "AL by span-split [95 %]", "AL by truncation [95 %]"]
    rows = [[str(each.drafts), figure_text(each.span_split), figure_text(each.truncated)] for each in report.what_if]
    return TextTable(
        f"{report.drafters[0]} at other draft lengths, both lower bounds: verify by a run", columns, rows, words=("k",)
    )


def figure_text(figure: Figure | None) -> str:
    """Return `2.38 [2.31, 2.45]`, without brackets where there is no interval."""
    if figure is None or figure.value is None:
        return DASH
    bounds = figure.interval
    return number(figure.value) + (f" [{number(bounds.low)}, {number(bounds.high)}]" if bounds else "")


def _share(figure: Figure) -> str:
    return DASH if figure.value is None else f"{figure.value:.1%}"


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
        *([rules_table([report.rule])] if report.rule else []),
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
    shares = [figures.drafted_steps.value, figures.acceptance_rate.value]
    return [
        figure_text(figures.acceptance_length),
        number(figures.acceptance_length_mean.value),
        *(DASH if share is None else f"{share:.1%}" for share in shares),
        *(number(figures.speedups[batch].value) for batch in batches),
    ]


RANGE_TITLES = ("Batch", "Draft tokens", "Indistinguishable from", "Gain over no drafts", "Note")
OPTION_TITLES = (
    "Batch",
    "Draft tokens: tokens/s of one request, the best first (≈ indistinguishable from it, ≥ at least)",
)
UNVERIFIED = (
    "Estimated, not measured: verify it with a run. It is computed from fixed draft lengths, without the cost of"
    " switching between them."
)


def schedule_tables(schedule: DraftSchedule) -> list[TextTable]:
    """Return the ranges of the schedule, then the measured options at each batch size."""
    ranges = [_range(each, schedule) for each in schedule.ranges]
    options = [[str(batch), ", ".join(map(_option, found))] for batch, found in schedule.table.items()]
    context = "" if schedule.context_tokens is None else f", {schedule.context_tokens:,} tokens of context"
    title = f"{', '.join(schedule.arms)} on {schedule.workload}{context}"
    return [
        TextTable(title, RANGE_TITLES, ranges, words=("Batch", "Note")),
        TextTable("", OPTION_TITLES, options, words=OPTION_TITLES),
    ]


NO_CONTEXT_FORM = (
    "vLLM, SGLang and TensorRT-LLM choose draft lengths by batch size only and have no setting by context length. Each"
    " schedule below holds for its context: serve contexts that need different lengths by separate engines."
)
"""As read in vLLM 0.33.0 (config/speculative.py) and SGLang 0.5.23 (adaptive_spec_params.py), and in TensorRT-LLM's
documentation of `draft_len_schedule`."""


def context_tables(schedules: Sequence[DraftSchedule]) -> list[TextTable]:
    """Return the best length by batch size and context, for each drafter and workload that has several contexts."""
    groups: dict[tuple[str, str], list[DraftSchedule]] = {}
    for each in schedules:
        if each.context_tokens is not None:
            groups.setdefault((", ".join(each.arms), each.workload), []).append(each)
    return [_by_context(f"{arms} on {workload}", found) for (arms, workload), found in groups.items()]


def _by_context(title: str, schedules: Sequence[DraftSchedule]) -> TextTable:
    """Return a row for each measured batch size, with the lengths that are indistinguishable from the best."""
    batches = sorted({batch for each in schedules for batch in each.table})
    rows = [[str(batch), *(_best(each.table.get(batch, [])) for each in schedules)] for batch in batches]
    columns = ["Batch", *(f"{each.context_tokens:,} tokens" for each in schedules)]
    return TextTable(
        f"Draft tokens by batch and context (≈ indistinguishable): {title}", columns, rows, words=("Batch",)
    )


def _best(options: Sequence[DraftLengthOption]) -> str:
    if not options:
        return DASH
    tied = ", ".join(str(each.draft_tokens) for each in options if each.tied)
    return f"{options[0].draft_tokens}{f' ≈ {tied}' if tied else ''}"


def engine_lines(found: EngineDraftSchedule) -> list[str]:
    """Return the engine's configuration, and problems with it."""
    return [
        f"{found.engine}: {json.dumps(found.config)}",
        *([f"  {shlex.join(found.arguments)}"] if found.arguments else []),
        *(f"  not usable as is: {problem}" for problem in found.problems),
    ]


def _range(each: DraftScheduleRange, schedule: DraftSchedule) -> list[str]:
    tied = ", ".join(str(length) for length in each.tied) or DASH
    carried = f"batches below {schedule.batches[0]} were not measured and use its length" if each.carried else ""
    unknown = f"not known here: {', '.join(str(length) for length in each.unknown)}" if each.unknown else ""
    gain = DASH if each.gain is None else f"{number(each.gain)}x"
    return [
        f"{each.first} to {each.last}",
        str(each.draft_tokens),
        tied,
        gain,
        "; ".join(filter(None, (carried, unknown))),
    ]


def _option(each: DraftLengthOption) -> str:
    bound = "≥" if each.how is TokensEvidence.LOWER_BOUND else ""
    return f"{each.draft_tokens}: {bound}{each.tokens_per_s:.0f}" + (" ≈" if each.tied else "")
