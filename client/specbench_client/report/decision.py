"""A recommendation in rows and lines: for a terminal, for Markdown, and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from specbench_client.report.sheets import Sheet, escaped, markdown_table

Row = Sequence[str]
CANDIDATES = ("Arm", "Workload", "Load", "Value [95 %]", "Gain [95 %]", "Says", "Targets", "Req/h", "Cost/1M", "Saved")
_ASKED_FOR = ("Targets", "Cost/1M", "Saved")
"""Told only where targets or prices are given."""
RULES = ("Rule", "Says", "Measured", "Verdict", "Source")
SUSTAINED = ("Arm", "Workload", "Up to", "Shown to", "Missed at", "There")
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


def sustained_rows(recommendation: Recommendation) -> list[Row]:
    """Up to which load each arm meets the targets; empty without targets."""
    return [_sustained(each) for choice in recommendation.choices for each in choice.sustained]


def rule_rows(recommendation: Recommendation) -> list[Row]:
    """Rules of thumb beside what was measured: those that apply first."""
    told = sorted(recommendation.rules_of_thumb, key=lambda each: each.verdict is RuleVerdict.NOT_APPLICABLE)
    return [rule_row(each) for each in told]


def rule_row(each: RuleReading) -> Row:
    """One rule beside what was measured."""
    return [each.rule, each.says, _cases(each), each.verdict, each.source]


def applicable_rows(recommendation: Recommendation) -> list[Row]:
    """Of the rules of thumb, those that apply."""
    return [row for row in rule_rows(recommendation) if row[3] != RuleVerdict.NOT_APPLICABLE]


def answers_sheet(recommendation: Recommendation) -> Sheet:
    """For each workload the answer over all loads, then at each."""
    return Sheet("Answers", ANSWERS, [_answer(row) for row in answer_rows(recommendation)], words=ANSWERS)


def evidence_sheet(recommendation: Recommendation) -> Sheet:
    """Every arm at every load, by its unit; without columns that nobody asked to be filled."""
    rows = candidate_rows(recommendation)
    bare = {name for name in _ASKED_FOR if all(row[CANDIDATES.index(name)] == DASH for row in rows)}
    kept = [index for index, name in enumerate(CANDIDATES) if name not in bare]
    unit = next((each.value.unit for each in recommendation.candidates if each.value), "")
    unit += " a million output tokens" if recommendation.objective is Objective.COST else ""
    return Sheet(
        f"Evidence ({recommendation.objective}{f', {unit}' if unit else ''})",
        [CANDIDATES[index] for index in kept],
        [[row[index] for index in kept] for row in rows],
        words=("Arm", "Workload", "Says", "Targets"),
    )


def sustained_sheet(recommendation: Recommendation) -> Sheet:
    """Up to which load each arm meets the targets."""
    return Sheet("Up to which load", SUSTAINED, sustained_rows(recommendation), words=("Arm", "Workload", "There"))


def rules_sheet(rows: Sequence[Row]) -> Sheet:
    """Rules of thumb beside what was measured."""
    return Sheet("Rules of thumb beside it", RULES, rows, words=RULES)


def decision_sheets(recommendation: Recommendation, rules: Sequence[Row]) -> list[Sheet]:
    """All that have rows, with these rules of thumb."""
    found = [
        answers_sheet(recommendation),
        evidence_sheet(recommendation),
        sustained_sheet(recommendation),
        rules_sheet(rules),
    ]
    return [sheet for sheet in found if sheet.rows]


def decision_lines(recommendation: Recommendation) -> list[str]:
    """What stands below the tables."""
    prices = [f"prices: {recommendation.prices}"] if recommendation.prices else []
    others = len(recommendation.rules_of_thumb) - len(applicable_rows(recommendation))
    rules = [f"{others} more rules of thumb do not apply here: --output json or markdown tells why"] if others else []
    kept = [*(f"upkeep: {each}" for each in recommendation.upkeep)]
    return [*prices, *kept, *(f"limit: {each}" for each in recommendation.limits), *rules]


def decision_markdown(recommendation: Recommendation) -> str:
    """As Markdown."""
    lines = [f"# {escaped(recommendation.sentence)}", ""]
    lines += [f"> **{SIMULATED}**", ""] if recommendation.simulated else []
    for sheet in decision_sheets(recommendation, rule_rows(recommendation)):
        lines += [f"## {sheet.title}", "", *markdown_table(sheet), ""]
    prices = [f"- Prices: {escaped(recommendation.prices)}"] if recommendation.prices else []
    prices += [f"- Upkeep: {escaped(each)}" for each in recommendation.upkeep]
    lines += ["## Limits", "", *prices, *(f"- {escaped(each)}" for each in recommendation.limits), ""]
    return "\n".join(lines)


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
