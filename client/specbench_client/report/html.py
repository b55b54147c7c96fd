"""report.html: one self-contained file, readable in light and dark; a script makes the first chart interactive.

The first screen is the answer: headline, next step, speed-up by load and the table of results. Everything else is in
sections that are folded on a screen and open on paper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from specbench_api.launch.registry import LAUNCHERS
from specbench_api.plan.expansion import launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.load import Arrival, Load
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.finding import list_faults
from specbench_client.documents.summary import RunSummary
from specbench_client.report.plots.charts import SPEEDUP, draw_figures
from specbench_client.report.plots.style import DARK, GREY_DARK, GREY_LIGHT, LIGHT, Drawing, svg
from specbench_client.report.text.applicability import dataset_text
from specbench_client.report.text.breakdown import reuse_lines
from specbench_client.report.text.findings import failure_lines, group_findings, measure_again, next_step
from specbench_client.report.text.results_table import (
    INVALID_STYLE,
    arrival_text,
    cell_columns,
    table_of_cells,
    terminal_columns,
)
from specbench_client.report.text.run_report import definitions_topic, run_topics
from specbench_client.report.text.text_table import SIMULATED, number, without_empty_columns
from specbench_client.visible_text import visible

# The page.

TEMPLATE = "report.html.j2"
_TIED = "\u00a0"
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
LONG = 40
"""A table with more rows scrolls in its own box on a screen."""

_NOT_KEY = ("Acc.", "E2E ms")
"""Columns, by the first line of their title, that the table on the first screen leaves out, so that it fits next to
the chart."""

PROSE = 60
"""A longer text of a cell is set as sentences: on a telephone its column is as wide as the screen."""


def render_html(plan: Plan, summary: RunSummary) -> str:
    """Return the whole page."""
    plots = draw_figures(summary)
    lead = {title: drawing for title, drawing in plots.items() if title.startswith(SPEEDUP)}
    groups = group_findings(plan, summary.findings)
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            plan=plan,
            summary=summary,
            simulated=SIMULATED,
            results=table_of_cells("All results", cell_columns(summary), summary),
            key_results=table_of_cells(
                "Every arm at every load",
                [column for column in terminal_columns(summary) if column.title.partition("\n")[0] not in _NOT_KEY],
                summary,
            ),
            arrivals=arrival_text(summary),
            lines=[*failure_lines(summary), *reuse_lines(summary.cells)],
            faults=list_faults(summary.findings),
            topics=run_topics(plan, summary),
            definitions=definitions_topic(summary),
            groups=groups,
            findings_title=f"Findings ({len(groups)})" if groups else "Findings: none",
            next_step=next_step(plan, summary, "DIR"),
            measure_again=measure_again(plan),
            speedups=lead,
            plots={title: drawing for title, drawing in plots.items() if title not in lead},
            svg=_svg,
            arms=_arms(plan),
            dataset_text=dataset_text,
            load=load_text(plan.load),
            number=number,
            invalid=INVALID_STYLE,
            long=LONG,
            prose=PROSE,
            light=(*LIGHT, GREY_LIGHT),
            dark=(*DARK, GREY_DARK),
            palette=palette,
        )
    )


def _svg(title: str, drawing: Drawing) -> Markup:
    return Markup(svg(title, drawing))  # noqa: S704 -- escaped within


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
    found.filters["without_empty_columns"] = without_empty_columns
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
        arrival = load.arrival or Arrival()
        seed = "" if arrival.uri else f" (seed {arrival.seed})"
        how = f"open loop, {ArrivalPattern.of(load).words}{seed}, at {speed}"
    ends = "every prompt once a point"
    if load.requests is not None:
        ends = f"{load.requests} conversations a point"
    if load.requests_per_stream is not None:
        ends = f"{load.requests_per_stream} conversations a stream and point"
    if load.duration_seconds is not None:
        ends = f"conversations begin for {load.duration_seconds} s a point"
    warm_up = f"at least {load.warmup_requests} warm-up requests a launch" if load.warmup_requests else "no warm-up"
    repeats = "1 repeat" if load.repeats == 1 else f"{load.repeats} repeats"
    return f"{how}; {ends}, {repeats}, {load.order}, {warm_up}"


def _arms(plan: Plan) -> list[tuple[str, str, str]]:
    """Return name, drafter and engine arguments of each arm."""
    rows = []
    for arm in plan.arms:
        launch = LAUNCHERS[plan.engine.kind].launch(launch_order(plan, arm))
        drafter = arm.drafter
        none = "not known: the engine was already running" if plan.engine.is_external else "none"
        how = none if drafter is None else f"{drafter.method}, up to {drafter.num_speculative_tokens} tokens a step"
        rows.append((arm.name, how, " ".join((*(launch.command or ()), *launch.args))))
    return rows
