"""report.html: one self-contained file, readable in light and dark, without scripts.

The first screen is the answer: headline, next step, speed-up by load and the table of results. Everything else is in
sections that are folded on a screen and open on paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from specbench_api.launch.registry import LAUNCHERS
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import list_faults
from specbench_api.outcome.recommendation import Recommendation
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Arrival, ArrivalProcess, Load
from specbench_client.report.plots.figures import SPEEDUP, draw_figures
from specbench_client.report.plots.style import DARK, GREY_DARK, GREY_LIGHT, LIGHT, Drawing, svg
from specbench_client.report.text import (
    answers,
    applicability,
    curves,
    decision,
    explanation,
    losslessness,
    step_costs,
    trends,
)
from specbench_client.report.text.applicability import arm_environment_rows
from specbench_client.report.text.cells import arrival_text, cell_columns, terminal_columns
from specbench_client.report.text.findings import group_findings, measure_again, next_step
from specbench_client.report.text.prompt_coverage import coverage_rows, dataset_text
from specbench_client.report.text.reuse import REUSE_SAYS, reuse_lines, reuse_tables
from specbench_client.report.text.text_table import SIMULATED, TextTable, compared_text, number, with_interval
from specbench_client.visible_text import visible

_CROSSOVERS = ("Arm", "Workload", "Over", "Answer", "Lost from first to last load", "Left out")
_LOSSLESS = ("Arm", "Workload", "Load", "Verdict", "Differ", "Control", "Excess", "First difference: arm / control")


@dataclass(frozen=True)
class PageTopic:
    """One section of the page: tables and the notes below them.

    `name`: its anchor; `page`: where the documentation defines its figures.
    """

    name: str
    title: str
    page: str
    tables: Sequence[TextTable]
    lines: Sequence[str] = ()


def page_topics(plan: Plan, summary: RunSummary) -> list[PageTopic]:
    """Sections about what the results mean, in the order of the page; empty ones are left out."""
    topics = [
        _decision(summary.recommendation),
        _trends(summary),
        _crossover(summary),
        PageTopic(
            "reuse",
            "Reuse of the prompt cache",
            "docs/reference/metrics.md",
            _non_empty(reuse_tables(summary.cells)),
            [REUSE_SAYS],
        ),
        _prediction(summary),
        _lossless(summary),
        PageTopic(
            "applicability",
            applicability.APPLICABILITY_TITLE,
            "docs/reference/report.md",
            [applicability.applicability_table(plan, summary)],
        ),
    ]
    return [topic for topic in topics if topic.tables]


def _trends(summary: RunSummary) -> PageTopic:
    table = trends.trends_table(summary)
    lines = list(trends.trend_lines(summary))
    return PageTopic("trends", table.title, "docs/how-to/soak.md", _non_empty([table]), lines)


def _decision(recommendation: Recommendation | None) -> PageTopic:
    name, title, page = "decision", "Recommendation by load", "docs/how-to/decide.md"
    if recommendation is None:
        return PageTopic(name, title, page, ())
    tables = [decision.answers_table(recommendation), decision.sustained_table(recommendation)]
    return PageTopic(name, title, page, _non_empty(tables), [recommendation.sentence, *recommendation.limits])


def _crossover(summary: RunSummary) -> PageTopic:
    loads = [astuple(row) for row in curves.crossover_rows(summary)]
    lengths = [astuple(row) for row in curves.break_even_rows(summary)]
    titles = ("Arm", "Workload", "Load", "AL needed [95 %]", "AL measured [95 %]", "Measured / needed [95 %]")
    tables = [
        TextTable("Where the speed-up falls to 1", _CROSSOVERS, loads, words=_CROSSOVERS),
        TextTable("Acceptance length needed to break even in decoding", titles, lengths, words=titles[:2]),
    ]
    return PageTopic("crossover", "Break-even load and acceptance length", "docs/research/curve.md", _non_empty(tables))


def _prediction(summary: RunSummary) -> PageTopic:
    factors = explanation.factors_table(summary.cells)
    costs = [
        table
        for cost in summary.step_costs
        for table in (
            step_costs.terms_table(f"Step times of {', '.join(cost.arms)}: {step_costs.profile_line(cost)}", cost),
            step_costs.split_table(cost),
        )
    ]
    tables, lines = _non_empty([factors, *costs]), [explanation.FACTORS_SAY]
    return PageTopic("prediction", "Why the speed-up is not larger", "docs/research/explain.md", tables, lines)


def _lossless(summary: RunSummary) -> PageTopic:
    rows = [astuple(row)[: len(_LOSSLESS)] for row in losslessness.lossless_rows(summary)]
    compared = TextTable("Compared with the baseline's own repeats", _LOSSLESS, rows, words=_LOSSLESS[:4])
    lines = [*losslessness.losslessness_lines(summary), *answers.answers_lines(summary)]
    return PageTopic(
        "lossless",
        "Are the answers identical to the baseline's?",
        "docs/concepts/losslessness.md",
        _non_empty([compared, answers.answers_table(summary)]),
        lines,
    )


def _non_empty(tables: Sequence[TextTable]) -> list[TextTable]:
    return [table for table in tables if table.rows]


# The page.

TEMPLATE = "report.html.j2"
_TIED = "\u00a0"
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
LONG = 40
"""A table with more rows scrolls in its own box on a screen."""

_NOT_KEY = ("Acc.", "E2E ms\np50/p99")
"""Columns that the table on the first screen leaves out, so that it fits next to the chart."""

PROSE = 60
"""A longer text of a cell is set as sentences: on a telephone its column is as wide as the screen."""


@dataclass(frozen=True)
class CategoryRow:
    """One line of the table by category."""

    arm: str
    workload: str
    load: str
    category: str
    speedup: str
    tpot_speedup: str
    acceptance_length: str
    acceptance_rate: str
    valid: bool


@dataclass(frozen=True)
class PagePlot:
    """One figure of the page. Title and caption are text of the page, where they wrap."""

    title: str
    caption: str
    svg: Markup
    is_wide: bool

    @classmethod
    def of(cls, title: str, drawing: Drawing) -> PagePlot:
        """Draw the figure."""
        return cls(title, drawing.caption, Markup(svg(title, drawing)), drawing.is_wide)  # noqa: S704 -- escaped within


@dataclass(frozen=True)
class ArmRow:
    """How one arm's engine was launched."""

    name: str
    drafter: str
    args: str


def render_html(plan: Plan, summary: RunSummary) -> str:
    """Return the whole page."""
    plots = [PagePlot.of(title, drawing) for title, drawing in draw_figures(summary).items()]
    lead = [each for each in plots if each.title.startswith(SPEEDUP)]
    groups = group_findings(plan, summary.findings)
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            plan=plan,
            summary=summary,
            simulated=SIMULATED,
            columns=cell_columns(summary),
            key_columns=[column for column in terminal_columns(summary) if column.title not in _NOT_KEY],
            arrivals=arrival_text(summary),
            reuse_lines=reuse_lines(summary.cells),
            faults=list_faults(summary.findings),
            topics=page_topics(plan, summary),
            groups=groups,
            findings_title=f"Findings ({len(groups)})" if groups else "Findings: none",
            next_step=next_step(plan, summary, groups, "DIR"),
            measure_again=measure_again(plan),
            categories=_categories(summary),
            speedups=lead,
            plots=[each for each in plots if each not in lead],
            definitions=_definitions(summary),
            arms=_arms(plan),
            coverage=coverage_rows(summary),
            dataset_text=dataset_text,
            environments=arm_environment_rows(summary),
            load=load_text(plan.load),
            number=number,
            long=LONG,
            prose=PROSE,
            light=(*LIGHT, GREY_LIGHT),
            dark=(*DARK, GREY_DARK),
            palette=palette,
        )
    )


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("specbench_client.report", "."),
        autoescape=True,
        finalize=_visible_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["breakable"] = breakable
    found.filters["coded"] = coded
    return found


def _visible_value(value: object) -> object:
    """Show invisible characters of a text; Markup is our own, and its texts were converted when it was built."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def palette(colours: Sequence[str]) -> str:
    """Return the CSS variables that the plots use: the series' colours, then the baseline's grey."""
    *series, grey = colours
    return " ".join((*(f"--series-{index}: {colour};" for index, colour in enumerate(series)), f"--grey: {grey};"))


def breakable(text: str) -> Markup:
    """Allow line breaks after a slash, before a word and within a CamelName, but never inside an interval."""
    text = visible(text)
    bare, bracket, rest = text.partition(" [")
    if bracket:
        inside, end, tail = rest.partition("]")
        text = f"{bare}{_TIED}[{inside.replace(' ', _TIED)}{end}{tail}"
    return Markup("<wbr>").join(_HUMPS.split(text.replace(" / ", f"{_TIED}/ ")))


def coded(text: str) -> Markup:
    """Mark up text between backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return Markup().join([visible(text)])
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def load_text(load: Load) -> str:
    """Return how the engine was driven, in one line."""
    levels = ", ".join(level.label for level in load.levels)
    how = f"closed loop at concurrency {levels}"
    if not load.concurrency:
        speed = levels if load.rate else "its own speed"
        how = f"open loop, {_arrivals(load.arrival or Arrival())}, at {speed}"
    ends = "every prompt once a point"
    if load.requests is not None:
        ends = f"{load.requests} conversations a point"
    if load.duration_seconds is not None:
        ends = f"conversations begin for {load.duration_seconds} s a point"
    warm_up = f"at least {load.warmup_requests} warm-up requests a launch" if load.warmup_requests else "no warm-up"
    repeats = "1 repeat" if load.repeats == 1 else f"{load.repeats} repeats"
    return f"{how}; {ends}, {repeats}, {load.order}, {warm_up}"


def _arrivals(arrival: Arrival) -> str:
    if arrival.process is ArrivalProcess.TRACE:
        return f"arrivals of the trace {arrival.uri}"
    burstiness = f" of burstiness {arrival.burstiness:g}" if arrival.process is ArrivalProcess.GAMMA else ""
    return f"{arrival.process} arrivals{burstiness} (seed {arrival.seed})"


def _categories(summary: RunSummary) -> list[CategoryRow]:
    return [
        CategoryRow(
            arm=cell.arm,
            workload=cell.workload,
            load=cell.level.label,
            category=name,
            speedup=compared_text(cell, figures.get("speedup")) + ("" if cell.valid else " invalid"),
            tpot_speedup=compared_text(cell, figures.get("tpot_speedup")),
            acceptance_length=with_interval(figures.get("acceptance_length_emitted_pooled")),
            acceptance_rate=with_interval(figures.get("acceptance_rate")),
            valid=cell.valid,
        )
        for cell in summary.cells
        if cell.arm != BASELINE_NAME
        for name, figures in cell.by_category.items()
    ]


def _definitions(summary: RunSummary) -> dict[str, Figure]:
    """One figure of each name, for its unit and the method of its interval; one with an interval if there is any."""
    found: dict[str, Figure] = {}
    for cell in summary.cells:
        compared = {"speedup": cell.speedup, "tpot_speedup": cell.tpot_speedup}
        figures = {**{name: figure for name, figure in compared.items() if figure}, **cell.figures}
        for name, figure in figures.items():
            if name not in found or (found[name].interval is None and figure.interval is not None):
                found[name] = figure
    return found


def _arms(plan: Plan) -> list[ArmRow]:
    rows = []
    for arm in plan.arms:
        launch = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm))
        drafter = arm.drafter
        none = "not known: the engine was already running" if plan.engine.is_external else "none"
        how = none if drafter is None else f"{drafter.method}, up to {drafter.num_speculative_tokens} tokens a step"
        rows.append(ArmRow(arm.name, how, " ".join((*(launch.command or ()), *launch.args))))
    return rows
