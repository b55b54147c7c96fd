"""A recommendation in rows and lines: for a terminal, for Markdown, and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import (
    Attainment,
    Candidate,
    Objective,
    Recommendation,
    RuleReading,
    RuleVerdict,
    Sustained,
)
from specbench_client.report.columns import DASH, SIMULATED, number, with_interval

Row = Sequence[str]
CANDIDATES = ("Arm", "Workload", "Load", "Value [95 %]", "Gain [95 %]", "Says", "Targets", "Req/h", "Cost/1M", "Saved")
_ASKED_FOR = ("Targets", "Cost/1M", "Saved")
"""Told only where targets or prices are given."""
RULES = ("Rule", "Says", "Measured", "Verdict", "Source")
SUSTAINED = ("Arm", "Workload", "Up to", "Shown to", "Missed at", "There")
_LEFT = (
    *("Arm", "Workload", "Says", "Targets", "Rule", "Measured", "Verdict", "Source", "There", "At", "Answer", "Why"),
    *("Figure", "Table", "Differs", "Name", "Shows", "Caution"),
)
CASES_MAX = 3


@dataclass(frozen=True)
class AnswerRow:
    """The answer at one load, or over all of them."""

    workload: str
    at: str
    answer: str
    arm: str
    why: str


ANSWERS = ("Workload", "At", "Answer", "Arm", "Why")


def answer_rows(recommendation: Recommendation) -> list[AnswerRow]:
    """For each workload the answer over all loads, then at each."""
    found = list[AnswerRow]()
    for choice in recommendation.choices:
        at = f"best: {choice.load}" if choice.load else "all loads"
        found.append(AnswerRow(choice.workload, at, choice.answer, choice.arm or DASH, choice.reason))
        found += [
            AnswerRow(each.workload, each.load, each.answer, each.arm or DASH, each.reason)
            for each in choice.at_each_load
        ]
    return found


def candidate_rows(recommendation: Recommendation) -> list[Row]:
    """Every arm at every load: the evidence."""
    return [_candidate(each, targets=bool(recommendation.targets)) for each in recommendation.candidates]


def evidence(recommendation: Recommendation) -> tuple[str, Row, list[Row]]:
    """What the values are, with their unit; then titles and rows, without columns that nobody asked to be filled."""
    rows = candidate_rows(recommendation)
    bare = {name for name in _ASKED_FOR if all(row[CANDIDATES.index(name)] == DASH for row in rows)}
    kept = [index for index, name in enumerate(CANDIDATES) if name not in bare]
    unit = next((each.value.unit for each in recommendation.candidates if each.value), "")
    unit += " a million output tokens" if recommendation.objective is Objective.COST else ""
    return (
        f"Evidence ({recommendation.objective}{f', {unit}' if unit else ''})",
        [CANDIDATES[index] for index in kept],
        [[row[index] for index in kept] for row in rows],
    )


def sustained_rows(recommendation: Recommendation) -> list[Row]:
    """Up to which load each arm meets the targets; empty without targets."""
    return [_sustained(each) for choice in recommendation.choices for each in choice.sustained]


def rule_rows(recommendation: Recommendation) -> list[Row]:
    """Rules of thumb beside what was measured: those that apply first."""
    told = sorted(recommendation.rules_of_thumb, key=lambda each: each.verdict is RuleVerdict.NOT_APPLICABLE)
    return [[each.rule, each.says, _cases(each), each.verdict, each.source] for each in told]


def applicable_rows(recommendation: Recommendation) -> list[Row]:
    """Of the rules of thumb, those that apply."""
    return [row for row in rule_rows(recommendation) if row[3] != RuleVerdict.NOT_APPLICABLE]


def decision_tables(recommendation: Recommendation) -> list[Table]:
    """For a terminal."""
    shown = [
        ("Answers", ANSWERS, [_answer(row) for row in answer_rows(recommendation)]),
        evidence(recommendation),
        ("Up to which load", SUSTAINED, sustained_rows(recommendation)),
        ("Rules of thumb beside it", RULES, applicable_rows(recommendation)),
    ]
    return [_rich(title, titles, rows) for title, titles, rows in shown if rows]


def decision_lines(recommendation: Recommendation) -> list[str]:
    """What stands below the tables."""
    prices = [f"prices: {recommendation.prices}"] if recommendation.prices else []
    others = len(recommendation.rules_of_thumb) - len(applicable_rows(recommendation))
    rules = [f"{others} more rules of thumb do not apply here: --output json or markdown tells why"] if others else []
    return [*prices, *(f"limit: {each}" for each in recommendation.limits), *rules]


def decision_markdown(recommendation: Recommendation) -> str:
    """As Markdown."""
    lines = [f"# {_plain(recommendation.sentence)}", ""]
    lines += [f"> **{SIMULATED}**", ""] if recommendation.simulated else []
    for title, titles, rows in (
        ("Answers", ANSWERS, [_answer(row) for row in answer_rows(recommendation)]),
        evidence(recommendation),
        ("Up to which load", SUSTAINED, sustained_rows(recommendation)),
        ("Rules of thumb beside it", RULES, rule_rows(recommendation)),
    ):
        lines += [f"## {title}", "", *markdown_table(titles, rows), ""] if rows else []
    prices = [f"- Prices: {_plain(recommendation.prices)}"] if recommendation.prices else []
    lines += ["## Limits", "", *prices, *(f"- {_plain(each)}" for each in recommendation.limits), ""]
    return "\n".join(lines)


def markdown_table(titles: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """A table of Markdown; numbers stand on the right."""
    rule = "|" + "|".join("---" if title in _LEFT else "---:" for title in titles) + "|"
    return ["| " + " | ".join(titles) + " |", rule, *("| " + " | ".join(map(_plain, row)) + " |" for row in rows)]


def _answer(row: AnswerRow) -> Row:
    return [row.workload, row.at, row.answer, row.arm, row.why]


def _candidate(each: Candidate, *, targets: bool) -> Row:
    says = each.excluded or ("baseline" if each.gain is None and each.standing is None else str(each.standing or DASH))
    doubts = f"; doubted: {', '.join(each.doubts)}" if each.doubts and not each.excluded else ""
    attained = each.attainment if targets or each.attainment is not Attainment.MET else DASH
    saved = each.figures.get("cost_saved")
    return [
        each.arm,
        each.workload,
        each.load,
        with_interval(each.value),
        with_interval(each.gain),
        says + doubts,
        attained,
        number(_value(each, "requests_per_hour"), 0),
        number(_value(each, "cost_per_million_output_tokens")),
        DASH if saved is None or saved.value is None else f"{saved.value:.0%}",
    ]


def _sustained(each: Sustained) -> Row:
    return [each.arm, each.workload, each.load or DASH, each.shown or DASH, each.missed_at or DASH, each.reason]


def _cases(each: RuleReading) -> str:
    if not each.cases:
        return each.reason
    told = [f"{case.arm} at {case.load}: {case.measured}" for case in each.cases[:CASES_MAX]]
    more = len(each.cases) - CASES_MAX
    return "; ".join([*told, *([f"{more} more"] if more > 0 else [])])


def _value(each: Candidate, name: str) -> float | None:
    figure: Figure | None = each.figures.get(name)
    return figure.value if figure else None


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split()) or DASH


def _rich(title: str, titles: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in titles:
        side: JustifyMethod = "left" if name in _LEFT else "right"
        table.add_column(name, justify=side, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
