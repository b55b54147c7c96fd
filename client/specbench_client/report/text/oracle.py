"""Tables of an oracle: every policy, the headroom at each batch size, and other draft lengths."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_client.documents.oracle import DraftCharge, DraftPolicy, OracleReport, OracleRow
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
    return [_name(row), row.drafter, *lengths, *(number(row.speedups[batch].value) for batch in batches)]


def _name(row: OracleRow) -> str:
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
