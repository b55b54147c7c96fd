"""The report of a run: its topics, which Markdown and the page share, and the Markdown report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench_api.plan.plan import Plan
from specbench_api.spec.latency_percentiles import PERCENTILES
from specbench_client.documents.figure import Figure
from specbench_client.documents.recommendation import Recommendation
from specbench_client.documents.summary import RunSummary
from specbench_client.report.table_renderers import markdown_report
from specbench_client.report.text import answers, applicability, breakdown, curves, decision, explanation, trends
from specbench_client.report.text.findings import failure_lines, group_findings, measure_again
from specbench_client.report.text.results_table import arrival_text, categories_table, cell_columns, table_of_cells
from specbench_client.report.text.text_table import Report, TextTable, Topic

METRICS_PAGE = 'docs, "Figures and checks"'
REPORT_PAGE = 'docs, "The report"'
DEFINITION_COLUMNS = ("Figure", "Unit", "How its interval was computed in this run")
_DEFINITIONS_SAY = (
    "Figures cover the steady state: ramp, drain, warm-up and failed requests are left out. The sampling unit of an"
    " interval is the prompt, within repeats."
)


def run_topics(plan: Plan, summary: RunSummary) -> list[Topic]:
    """Return what the results mean, in the order of the report; topics without rows are left out."""
    trend, holds = trends.trends_table(summary), applicability.applicability_table(plan, summary)
    categories, prompts = categories_table(summary), applicability.coverage_table(summary)
    engines = applicability.environments_table(summary)
    topics = [
        _decision(summary.recommendation),
        _topic("trends", trend.title, 'docs, "Measure for hours"', [trend], trends.trend_lines(summary)),
        _topic(
            "crossover",
            "Break-even load and acceptance length",
            'docs, "Curves"',
            [curves.crossover_table(summary), curves.break_even_table(summary)],
        ),
        _topic(
            "reuse",
            "Reuse of the prompt cache",
            METRICS_PAGE,
            breakdown.reuse_tables(summary.cells),
        ),
        _prediction(summary),
        _topic(
            "lossless",
            "Are the answers identical to the baseline's?",
            'docs, "Losslessness"',
            [answers.lossless_table(summary), answers.answers_table(summary)],
            [*answers.losslessness_lines(summary), *answers.answers_lines(summary)],
        ),
        _topic("applicability", holds.title, REPORT_PAGE, [holds]),
        _topic("categories", categories.title, METRICS_PAGE, [categories]),
        _topic(
            "prompts",
            prompts.title,
            REPORT_PAGE,
            [prompts],
            [applicability.COVERAGE_SAYS, *applicability.source_lines(summary)],
        ),
        _topic("environments", engines.title, REPORT_PAGE, [engines], [applicability.ENVIRONMENTS_SAY]),
    ]
    return [topic for topic in topics if topic.tables]


def definitions_topic(summary: RunSummary) -> Topic:
    """Return unit and interval method of each figure; of one with an interval, if there is any."""
    found: dict[str, Figure] = {}
    for cell in summary.cells:
        compared = {"speedup": cell.speedup, "tpot_speedup": cell.tpot_speedup}
        for name, figure in {**{name: each for name, each in compared.items() if each}, **cell.figures}.items():
            if name not in found or (found[name].interval is None and figure.interval is not None):
                found[name] = figure
    rows = [[name, each.unit, each.interval.method if each.interval else "none"] for name, each in found.items()]
    table = TextTable("Definitions", DEFINITION_COLUMNS, rows, words=DEFINITION_COLUMNS)
    return Topic(table.title, [table], [_DEFINITIONS_SAY], "definitions", METRICS_PAGE)


def markdown(plan: Plan, summary: RunSummary, statistics: Sequence[str] = PERCENTILES) -> str:
    """Return headline, cells, findings and topics as Markdown. `statistics`: see `cell_columns`."""
    arrivals, targets = arrival_text(summary), summary.slo.words if summary.slo else ""
    loads = [f"Load: {arrivals}."] if arrivals else []
    loads += [f"In time: {targets}."] if targets else []
    results = table_of_cells("", cell_columns(summary, statistics), summary)
    answer = [
        Topic("", lines=[*failure_lines(summary), *breakdown.reuse_lines(summary.cells)]),
        Topic("", [results], loads),
    ]
    topics = [*answer, *_findings(plan, summary), *run_topics(plan, summary)]
    return markdown_report(Report(topics, summary.headline, summary.name, simulated=summary.simulated))


def _findings(plan: Plan, summary: RunSummary) -> list[Topic]:
    lines = [
        f"{group.check} ({group.severity}): {group.messages[0]}{group.more}."
        + (f" What to do: {group.remedy}" if group.remedy else "")
        for group in group_findings(plan, summary.findings)
    ]
    return [Topic("Findings", lines=[*lines, measure_again(plan)])] if lines else []


def _topic(name: str, title: str, page: str, tables: Iterable[TextTable], lines: Iterable[str] = ()) -> Topic:
    return Topic(title, [table for table in tables if table.rows], list(lines), name, page)


def _decision(recommendation: Recommendation | None) -> Topic:
    name, title, page = "decision", "Recommendation by load", 'docs, "Choose an arm and a load"'
    if recommendation is None:
        return Topic(title)
    tables = [decision.choices_table(recommendation), decision.sustained_table(recommendation)]
    return _topic(name, title, page, tables, [recommendation.sentence, *recommendation.limits])


def _prediction(summary: RunSummary) -> Topic:
    tables = [explanation.factors_table(summary.cells)]
    for cost in summary.step_costs:
        title = f"Step times of {', '.join(cost.arms)}: {explanation.profile_line(cost)}"
        tables += [explanation.terms_table(title, cost), explanation.split_table(cost)]
    title, page = "Why the speed-up is not larger", 'docs, "Explain a speed-up"'
    return _topic("prediction", title, page, tables, [explanation.FACTORS_SAY])
