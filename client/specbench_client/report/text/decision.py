"""Tables and lines of a recommendation, for a terminal, Markdown and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.api_model import in_words
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import (
    Attainment,
    Candidate,
    Objective,
    Recommendation,
    Sustained,
)
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.report.text.text_table import (
    DASH,
    SIMULATED,
    TextTable,
    constant_columns,
    escape_markdown,
    markdown_table,
    number,
    with_interval,
)

Row = Sequence[str]
CANDIDATES = (
    "Arm",
    "Workload",
    "Load",
    "Value [95 %]",
    "Gain [95 %]",
    "Conclusion",
    "Targets",
    "Req/h",
    "Cost/1M",
    "Saved",
)
_ASKED_FOR = ("Targets", "Cost/1M", "Saved")
"""Columns that are shown only where targets or prices are given."""
SUSTAINED = ("Arm", "Workload", "Up to", "Shown to", "Missed at", "Reason")
ANSWERS = ("Workload", "Load", "Answer", "Arm", "Why")


def candidate_rows(recommendation: Recommendation) -> list[Row]:
    """Return one row for every arm at every load: the evidence."""
    latency, targets = recommendation.objective is Objective.LATENCY, bool(recommendation.targets)
    return [_candidate(each, targets=targets, latency=latency) for each in recommendation.candidates]


def answers_table(recommendation: Recommendation) -> TextTable:
    """Return for each workload the answer over all loads, then at each load."""
    rows = list[Row]()
    for choice in recommendation.choices:
        at = f"{choice.load} (best)" if choice.load else "all loads"
        rows.append((choice.workload, at, in_words(choice.answer), choice.arm or DASH, choice.reason))
        rows += [
            (each.workload, each.load, in_words(each.answer), each.arm or DASH, each.reason)
            for each in choice.at_each_load
        ]
    return TextTable("Answers", ANSWERS, rows, words=ANSWERS)


def evidence_table(recommendation: Recommendation) -> TextTable:
    """Return every arm at every load; empty columns about targets and prices are left out."""
    rows = candidate_rows(recommendation)
    bare = {name for name in _ASKED_FOR if all(row[CANDIDATES.index(name)] == DASH for row in rows)}
    kept = [index for index, name in enumerate(CANDIDATES) if name not in bare]
    unit = next((each.value.unit for each in recommendation.candidates if each.value), "")
    unit += " a million output tokens" if recommendation.objective is Objective.COST else ""
    table = TextTable(
        f"Evidence ({in_words(recommendation.objective)}{f', {unit}' if unit else ''})",
        [CANDIDATES[index] for index in kept],
        [[row[index] for index in kept] for row in rows],
        words=("Arm", "Workload", "Conclusion", "Targets"),
    )
    # The gain decides, and with prices the cost; a narrow terminal leaves out the others.
    return replace(table, optional=[*constant_columns(table, ["Workload"]), "Req/h", "Value [95 %]", "Saved"])


def sustained_table(recommendation: Recommendation) -> TextTable:
    """Return the load up to which each arm meets the targets; no rows without targets."""
    rows = [_sustained(each) for choice in recommendation.choices for each in choice.sustained]
    return TextTable("Highest load that meets the targets", SUSTAINED, rows, words=("Arm", "Workload", "Reason"))


def decision_tables(recommendation: Recommendation) -> list[TextTable]:
    """Return all tables that have rows."""
    found = [
        answers_table(recommendation),
        evidence_table(recommendation),
        sustained_table(recommendation),
    ]
    return [table for table in found if table.rows]


def decision_lines(recommendation: Recommendation) -> list[str]:
    """Return the lines below the tables: prices and limits."""
    prices = [f"prices: {recommendation.prices}"] if recommendation.prices else []
    return [*prices, *(f"limit: {each}" for each in recommendation.limits)]


def decision_markdown(recommendation: Recommendation) -> str:
    """Return the recommendation as Markdown."""
    lines = [f"# {escape_markdown(recommendation.sentence)}", ""]
    lines += [f"> **{SIMULATED}**", ""] if recommendation.simulated else []
    for table in decision_tables(recommendation):
        lines += [f"## {escape_markdown(table.title)}", "", *markdown_table(table), ""]
    prices = [f"- Prices: {escape_markdown(recommendation.prices)}"] if recommendation.prices else []
    lines += ["## Limits", "", *prices, *(f"- {escape_markdown(each)}" for each in recommendation.limits), ""]
    return "\n".join(lines)


def _candidate(each: Candidate, *, targets: bool, latency: bool) -> Row:
    unjudged = "baseline" if each.arm == BASELINE_NAME else DASH
    conclusion = each.excluded or (in_words(each.conclusion) if each.conclusion else unjudged)
    doubts = f"; warnings: {', '.join(each.doubts)}" if each.doubts and not each.excluded else ""
    attained = in_words(each.attainment) if targets or each.attainment is not Attainment.MET else DASH
    saved = each.figures.get("cost_saved")
    paired = latency or not each.load.endswith("/s")  # throughputs of open loops are compared by repeat, not paired
    return [
        each.arm,
        each.workload,
        each.load,
        with_interval(each.value, unit="prompt" if latency else "repeat"),
        with_interval(each.gain, unit="prompt" if paired else "repeat"),
        conclusion + doubts,
        attained,
        number(_value(each, "requests_per_hour"), 0),
        number(_value(each, "cost_per_million_output_tokens")),
        DASH if saved is None or saved.value is None else f"{saved.value:.0%}",
    ]


def _sustained(each: Sustained) -> Row:
    return [each.arm, each.workload, each.load or DASH, each.shown or DASH, each.missed_at or DASH, each.reason]


def _value(each: Candidate, name: str) -> float | None:
    figure: Figure | None = each.figures.get(name)
    return figure.value if figure else None
