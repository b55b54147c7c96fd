"""Tables and lines of a recommendation, for a terminal, Markdown and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.api_model import in_words
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.documents.recommendation import (
    ArmChoice,
    Attainment,
    Candidate,
    Objective,
    Recommendation,
    RecommendationAnswer,
)
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    Report,
    TextTable,
    Topic,
    constant_columns,
    number,
    percent,
    with_interval,
    without_columns,
)

Row = Sequence[str]
CANDIDATES = ("Arm", "Workload", "Load", "Value", f"Gain {AT_LEVEL}", "Conclusion", "Targets", "Cost/1M", "Saved")
"""The value has no interval: that of its repeats alone is narrower than that of the gain, which also covers prompts."""
SUSTAINED = ("Arm", "Workload", "Up to", "Shown to", "Missed at", "Reason")
ANSWERS = ("Workload", "Load", "Answer", "Why")


def choices_table(recommendation: Recommendation) -> TextTable:
    """Return for each workload the answer over all loads, then at each load with another one.

    No rows without a baseline.
    """
    rows = list[Row]()
    for choice in recommendation.choices:
        at = f"{choice.load} (best)" if choice.load else "all loads"
        several = [
            (each, each.load)
            for each in choice.at_each_load
            if len(choice.at_each_load) > 1 and (each.why != choice.why or choice.load not in (None, each.load))
        ]
        rows += [(choice.workload, load, _answer(each), each.why) for each, load in [(choice, at), *several]]
    has_baseline = any(each.arm == BASELINE_NAME for each in recommendation.candidates)
    return _of_workloads(TextTable("Answers", ANSWERS, rows if has_baseline else [], words=ANSWERS))


def _of_workloads(table: TextTable) -> TextTable:
    """Return the table, without its workloads if there is only one."""
    return without_columns(table, constant_columns(table, ["Workload"]))


def _answer(choice: ArmChoice) -> str:
    pays = choice.answer is RecommendationAnswer.DRAFTER
    return f"{choice.arm} pays" if pays else in_words(choice.answer)


def evidence_table(recommendation: Recommendation) -> TextTable:
    """Return every arm at every load."""
    asked = bool(recommendation.targets)
    rows = [_candidate(each, targets=asked) for each in recommendation.candidates]
    unit = next((each.value.unit for each in recommendation.candidates if each.value), "")
    unit += " per million output tokens" if recommendation.objective is Objective.COST else ""
    table = TextTable(
        f"Evidence ({in_words(recommendation.objective)}{f', {unit}' if unit else ''})",
        CANDIDATES,
        rows,
        words=("Arm", "Workload", "Conclusion", "Targets"),
    )
    # The gain decides, and with prices the cost; a narrow terminal leaves out the others.
    return _of_workloads(replace(table, optional=["Value", "Saved"]))


def sustained_table(recommendation: Recommendation) -> TextTable:
    """Return the load up to which each arm meets the targets; no rows without targets."""
    rows = [
        [each.arm, each.workload, each.load or DASH, each.shown or DASH, each.missed_at or DASH, each.reason]
        for choice in recommendation.choices
        for each in choice.sustained
    ]
    title = "Highest load that meets the targets"
    return _of_workloads(TextTable(title, SUSTAINED, rows, words=("Arm", "Workload", "Reason")))


def decision_report(recommendation: Recommendation) -> Report:
    """Return the sentence, all tables that have rows, and below them prices and limits."""
    tables = (choices_table(recommendation), evidence_table(recommendation), sustained_table(recommendation))
    prices = [f"prices: {recommendation.prices}"] if recommendation.prices else []
    limits = Topic("Limits", lines=[*prices, *(f"limit: {each}" for each in recommendation.limits)])
    topics = [*(Topic(table.title, [table]) for table in tables if table.rows), limits]
    return Report(topics, recommendation.sentence, simulated=recommendation.simulated)


def _candidate(each: Candidate, *, targets: bool) -> Row:
    unjudged = "baseline" if each.arm == BASELINE_NAME else DASH
    conclusion = each.excluded or (in_words(each.conclusion) if each.conclusion else unjudged)
    doubts = f"; findings: {', '.join(each.doubts)}" if each.doubts and not each.excluded else ""
    attained = in_words(each.attainment) if targets or each.attainment is not Attainment.MET else DASH
    return [
        each.arm,
        each.workload,
        each.load,
        number(each.value.value if each.value else None),
        with_interval(each.gain),
        conclusion + doubts,
        attained,
        number(_value(each, "cost_per_million_output_tokens")),
        percent(_value(each, "cost_saved"), 0),
    ]


def _value(each: Candidate, name: str) -> float | None:
    figure = each.figures.get(name)
    return figure.value if figure else None
