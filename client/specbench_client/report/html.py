"""report.html: one self-contained file, readable in light and dark, without scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from specbench_api.launch.table import LAUNCHERS
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Arrival, Load, Process
from specbench_client.report.answers import topics_of
from specbench_client.report.columns import SIMULATED, arrivals_of, columns_of, compared_text, number, with_interval
from specbench_client.report.coverage import coverage_rows, told
from specbench_client.report.findings import grouped, measure_again
from specbench_client.report.plots import Plot, svgs
from specbench_client.report.plots.ink import DARK, GREY_DARK, GREY_LIGHT, LIGHT
from specbench_client.report.plots.picture import Picture
from specbench_client.report.seen import seen_rows

TEMPLATE, PLOTS_TEMPLATE = "report.html.j2", "plots.html.j2"
_TIED = "\u00a0"
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
LONG = 40
"""Rows of a table from which on it is folded, or has a window of its own; on paper it is whole."""

PROSE = 60
"""Characters of a cell from which on it is read as sentences: on a telephone its column is as wide as the screen."""


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
class WindowRow:
    """The steady window of one point, in seconds from the point's start."""

    arm: str
    workload: str
    load: str
    point: str
    start: str
    end: str
    length: str
    share: str


@dataclass(frozen=True)
class ArmRow:
    """How one arm's engine was launched."""

    name: str
    drafter: str
    args: str


def render_html(plan: Plan, summary: RunSummary) -> str:
    """Return the whole page."""
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            plan=plan,
            summary=summary,
            simulated=SIMULATED,
            columns=columns_of(summary),
            arrivals=arrivals_of(summary),
            topics=topics_of(plan, summary),
            groups=grouped(summary.findings),
            measure_again=measure_again(plan),
            categories=_categories(summary),
            windows=_windows(summary),
            plots=_marked(svgs(summary)),
            definitions=_definitions(summary),
            arms=_arms(plan),
            coverage=coverage_rows(summary),
            told=told,
            seen=seen_rows(summary),
            load=load_text(plan.load),
            number=number,
            long=LONG,
            prose=PROSE,
            **_COLOURS,
        )
    )


def render_plots(picture: Picture) -> str:
    """Return a page of plots alone, in the report's looks."""
    simulated = SIMULATED if picture.simulated else ""
    page = _environment().get_template(PLOTS_TEMPLATE)
    return page.render(title=picture.title, plots=_marked(picture.plots), simulated=simulated, **_COLOURS)


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("specbench_client.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["breakable"] = breakable
    found.filters["coded"] = coded
    return found


def _marked(plots: Sequence[Plot]) -> list[tuple[Plot, list[Markup]]]:
    return [(plot, [Markup(svg) for svg in plot.panels]) for plot in plots]  # noqa: S704 -- escaped within


def palette(colours: Sequence[str]) -> str:
    """Return the series' colours, and the baseline's last, as the variables that the plots ask for."""
    *series, grey = colours
    return " ".join((*(f"--series-{index}: {colour};" for index, colour in enumerate(series)), f"--grey: {grey};"))


def breakable(text: str) -> Markup:
    """Let a cell break its line after a slash or before a word, also one of a CamelName, never inside an interval."""
    bare, bracket, rest = text.partition(" [")
    if bracket:
        inside, end, tail = rest.partition("]")
        text = f"{bare}{_TIED}[{inside.replace(' ', _TIED)}{end}{tail}"
    return Markup("<wbr>").join(_HUMPS.split(text.replace(" / ", f"{_TIED}/ ")))


def coded(text: str) -> Markup:
    """What stands between two backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup().join([text])
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


_COLOURS = {"light": (*LIGHT, GREY_LIGHT), "dark": (*DARK, GREY_DARK), "palette": palette}
"""What the page's style asks for."""


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
    if arrival.process is Process.TRACE:
        return f"arrivals of the trace {arrival.uri}"
    burstiness = f" of burstiness {arrival.burstiness:g}" if arrival.process is Process.GAMMA else ""
    return f"{arrival.process} arrivals{burstiness} (seed {arrival.seed})"


def _windows(summary: RunSummary) -> list[WindowRow]:
    return [
        WindowRow(
            arm=cell.arm,
            workload=cell.workload,
            load=cell.level.label,
            point=point[:12],
            start=number(window.start_ns / 1e9, 3),
            end=number(window.end_ns / 1e9, 3),
            length=number(window.length_s, 3),
            share=f"{window.share:.0%}",
        )
        for cell in summary.cells
        for point, window in zip(cell.points, cell.windows, strict=False)  # a summary of before has no windows
        if window
    ]


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
    """One figure of each name, for its unit, definition and how its interval was made; the one that tells most."""
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
        none = "none" if plan.engine.endpoint is None else "not known: the engine ran already"
        how = none if drafter is None else f"{drafter.method}, up to {drafter.num_speculative_tokens} tokens a step"
        rows.append(ArmRow(arm.name, how, " ".join((*(launch.command or ()), *launch.args))))
    return rows
