"""What a run answers beyond its cells, as sheets of the page: each topic where its result says anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from specbench_api.outcome.recommendation import Recommendation
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.report import crossover, decision, holds, lossless, prediction, stepcost
from specbench_client.report.sheets import Sheet

_CROSSOVERS = ("Arm", "Workload", "Over", "Answer", "Lost from first to last load", "Left out")
_LOSSLESS = ("Arm", "Workload", "Load", "Verdict", "Differ", "Control", "Excess", "First difference: arm / control")


@dataclass(frozen=True)
class Topic:
    """One heading of the page: what its sheets say, and below them what must be read with it. `page`: of the docs."""

    name: str
    title: str
    page: str
    sheets: Sequence[Sheet]
    lines: Sequence[str] = ()


def topics_of(plan: Plan, summary: RunSummary) -> list[Topic]:
    """The topics of which the run tells anything, in the order of the page."""
    told = [
        _decision(summary.recommendation),
        _crossover(summary),
        _prediction(summary),
        _lossless(summary),
        Topic("holds", holds.TITLE, "docs/report.md", [holds.holds_sheet(plan, summary)]),
    ]
    return [topic for topic in told if topic.sheets]


def _decision(told: Recommendation | None) -> Topic:
    name, title, page = "decision", "What to do", "docs/decide.md"
    if told is None:
        return Topic(name, title, page, ())
    rules = decision.rules_sheet(decision.applicable_rows(told))
    sheets = [
        decision.answers_sheet(told),
        decision.sustained_sheet(told),
        replace(rules, title="Rules of thumb beside what was measured"),
    ]
    return Topic(name, title, page, _told(sheets), told.limits)


def _crossover(summary: RunSummary) -> Topic:
    loads = [astuple(row) for row in crossover.crossover_rows(summary)]
    lengths = [astuple(row) for row in crossover.break_even_rows(summary)]
    titles = ("Arm", "Workload", "Load", "AL needed [95 %]", "AL measured [95 %]", "Measured / needed [95 %]")
    sheets = [
        Sheet("Where the speed-up falls to 1", _CROSSOVERS, loads, words=_CROSSOVERS),
        Sheet("Acceptance length that breaks even in decoding", titles, lengths, words=titles[:2]),
    ]
    return Topic("crossover", "Up to which load it pays", "docs/crossover.md", _told(sheets))


def _prediction(summary: RunSummary) -> Topic:
    factors = prediction.factors_sheet(summary.cells)
    costs = [
        sheet
        for cost in summary.step_costs
        for sheet in (
            stepcost.terms_sheet(f"Step times of {', '.join(cost.arms)}: {stepcost.profile_line(cost)}", cost),
            stepcost.split_sheet(cost),
        )
    ]
    lines = [prediction.FACTORS_SAY, *prediction.formula_lines(summary.cells)]
    return Topic("prediction", "Why it is not more", "docs/prediction.md", _told([factors, *costs]), lines)


def _lossless(summary: RunSummary) -> Topic:
    rows = [astuple(row)[: len(_LOSSLESS)] for row in lossless.lossless_rows(summary)]
    sheets = [Sheet("Beside the baseline's own repeats", _LOSSLESS, rows, words=_LOSSLESS[:4])]
    lines = lossless.losslessness_lines(summary)
    return Topic("lossless", "Are the answers the baseline's?", "docs/losslessness.md", _told(sheets), lines)


def _told(sheets: Sequence[Sheet]) -> list[Sheet]:
    return [sheet for sheet in sheets if sheet.rows]
