"""The figures of the report: what is drawn from the numbers, what is left out, and how it is marked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.spec.load import Level
from specbench_client.documents.curves import ArmCrossover, Crossover, CrossoverInterval, CrossoverKind
from specbench_client.documents.figure import Figure, FigureInterval, StatusFigure
from specbench_client.documents.summary import ArmEnvironment, Cell, RunSummary, Trend
from specbench_client.report.html import render_html
from specbench_client.report.plots import charts
from specbench_client.report.plots.charts import FIGURES, draw_figures
from specbench_client.report.plots.style import (
    HOLLOW,
    LIGHT,
    NAME_MAX,
    PAPER,
    Drawing,
    arm_looks,
    bounds,
    finished,
    new_panels,
    picture,
    shortened,
    svg,
)
from specbench_client.report.text.text_table import mark_simulated
from specbench_client.visible_text import visible
from specbench_testing.present import present
from specbench_testing.summary_variants import invalid, many_cells, with_cells, without, without_baseline
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
SIZE_MAX_BYTES = 2_200_000
"""Limit in docs/reference/report.md for a page with 20 drafters at 8 loads in 11 categories."""


def test_each_arm_has_its_own_look() -> None:
    looks = arm_looks(["none", *(f"arm-{index}" for index in range(24))])
    assert len({(each["color"], each["marker"], each["linestyle"]) for each in looks.values()}) == 25
    assert len({looks[f"arm-{index}"]["color"] for index in range(len(LIGHT))}) == len(LIGHT)
    assert len({looks[f"arm-{index}"]["marker"] for index in range(8)}) == 8


@given(st.text(max_size=80))
def test_shortened_name_keeps_both_ends(name: str) -> None:
    short, name = shortened(name), visible(name)
    assert len(short) <= NAME_MAX
    assert short == name or (name.startswith(short.partition("…")[0]) and name.endswith(short.rpartition("…")[2]))


@cache
def plain() -> RunSummary:
    return run_of_world(WORLD)


def drawn(draw: Callable[[RunSummary], Drawing | None], summary: RunSummary) -> Drawing:
    """Return a figure that must have data."""
    return present(draw(summary))


def panels(drawing: Drawing) -> list[Axes]:
    return [each for each in drawing.canvas.axes if each.get_visible()]


def titles(drawing: Drawing) -> list[str]:
    return [each.get_title(loc="left") for each in panels(drawing)]


def values(axes: Axes, name: str, along: str = "y") -> list[float]:
    (line,) = [
        each.lines[0]
        for each in axes.containers
        if isinstance(each, ErrorbarContainer) and str(each.get_label()) == name
    ]
    return [float(each) for each in np.asarray(line.get_ydata() if along == "y" else line.get_xdata())]


def reach(axes: Axes, name: str) -> list[tuple[float, float]]:
    """Return lower and upper end of each interval that is drawn."""
    (container,) = [each for each in axes.containers if str(each.get_label()) == name]
    assert isinstance(container, ErrorbarContainer)
    *_, (bars, *_) = container.lines
    segments = [np.asarray(each)[:, 1] for each in bars.get_segments() if len(each)]
    return [(float(min(each)), float(max(each))) for each in segments if np.isfinite(each).all()]


def hollow(axes: Axes) -> int:
    marks = [each for each in axes.lines if to_hex(each.get_markerfacecolor()) == PAPER]
    return sum(np.asarray(each.get_xdata()).size for each in marks)


def of_arm(summary: RunSummary, arm: str) -> list[Cell]:
    return [cell for cell in summary.cells if cell.arm == arm]


def figure(value: float | None, low: float = math.nan, high: float = math.nan) -> Figure:
    """Return a figure, with an interval if bounds are given."""
    held = None if math.isnan(low) else FigureInterval(low=low, high=high, method="t")
    return Figure(value=value, unit="ratio", definition="d", n=3, interval=held, source="client")


@pytest.mark.parametrize("missing", [None, figure(None), figure(math.nan), figure(math.inf)])
def test_missing_or_non_finite_figure_leaves_a_gap(missing: Figure | None) -> None:
    found = bounds([figure(2.5, 1.0, 3.0), missing, figure(4.0)])
    assert np.array_equal(found[:, 0], [2.5, 1.0, 3.0])
    assert np.isnan(found[:, 1]).all()
    assert np.array_equal(np.isnan(found[:, 2]), [False, True, True])


def test_speedup_shows_values_and_intervals_of_the_summary() -> None:
    (axes,) = panels(drawn(charts.speedup, plain()))
    assert [each.get_text() for each in axes.get_xticklabels()] == ["1", "2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("concurrency", "speed-up (1 = baseline)")
    for arm in ("ngram", "suffix"):
        found = [cell.speedup for cell in of_arm(plain(), arm) if cell.speedup]
        assert values(axes, arm) == [each.value for each in found]
        assert reach(axes, arm) == [
            pytest.approx((each.interval.low, each.interval.high)) for each in found if each.interval
        ]
    assert hollow(axes) == 0
    low, high = axes.get_ylim()
    assert low < 1 < high


def test_invalid_cells_are_hollow() -> None:
    (axes,) = panels(drawn(charts.speedup, invalid(plain())))
    assert hollow(axes) == 4


def crossing(at: float | None, *ends: float | None) -> ArmCrossover:
    interval = CrossoverInterval(low=ends[0], high=ends[1], method="m") if ends else None
    kind = CrossoverKind.NOT_REACHED if at is None else CrossoverKind.REACHED
    found = Crossover(axis="concurrency", kind=kind, at=figure(at), interval=interval, message="m")
    return ArmCrossover(arm="drafter-0", workload=WORLD.plan.workloads[0].name, crossover=found)


@pytest.mark.parametrize(
    ("found", "at", "bar"),
    [
        (crossing(2.0, 1.0, 4.0), 1.0, [0.0, 2.0]),
        (crossing(2**0.5, 1.0, None), 0.5, [0.0, 2.5]),
        (crossing(4.0, None, 4.0), 2.0, [-0.5, 2.0]),
        (crossing(1.0), 0.0, [0.0, 0.0]),
        (crossing(None, 1.0, None), None, None),
    ],
)
def test_load_at_which_a_speedup_falls_to_1_is_marked(
    found: ArmCrossover, at: float | None, bar: list[float] | None
) -> None:
    summary = many_cells(plain(), arms=2, loads=3)
    drawing = drawn(charts.speedup, summary.model_copy(update={"crossovers": [found]}))
    on_the_line = [each for each in panels(drawing)[0].lines if set(np.asarray(each.get_ydata())) == {1.0}]
    places = [[float(x) for x in np.asarray(each.get_xdata())] for each in on_the_line[1:]]
    assert places == ([] if at is None else [pytest.approx(bar), pytest.approx([at])])
    assert ("where a speed-up falls to 1" in drawing.caption) == (at is not None)


def test_throughput_is_drawn_against_the_speed_of_a_user() -> None:
    (axes,) = panels(drawn(charts.throughput, plain()))
    assert "of the engine" in axes.get_ylabel()
    for label, arm in (("baseline", "none"), ("ngram", "ngram")):
        cells = of_arm(plain(), arm)
        assert values(axes, label, "x") == [cell.figures[StatusFigure.USER_TPS].value for cell in cells]
        assert values(axes, label) == [cell.figures["output_tps"].value for cell in cells]
    per_gpu = [
        cell.model_copy(update={"figures": {**cell.figures, "output_tps_per_gpu": figure(7.0)}})
        for cell in plain().cells
    ]
    (axes,) = panels(drawn(charts.throughput, with_cells(plain(), per_gpu)))
    assert "of a GPU" in axes.get_ylabel()
    assert values(axes, "ngram") == [7.0, 7.0]


def test_joint_acceptance_is_the_product_of_the_conditional() -> None:
    drawing = drawn(charts.acceptance_by_position, plain())
    assert [title.rpartition(", ")[2] for title in titles(drawing)] == ["at concurrency 1"] * 2
    conditional, joint = panels(drawing)
    assert [each.get_text() for each in conditional.get_xticklabels()] == ["1", "2", "3"]
    for arm in ("ngram", "suffix"):
        assert values(joint, arm) == pytest.approx(list(np.cumprod(values(conditional, arm))))


def test_acceptance_has_a_row_per_category_and_one_for_all() -> None:
    (axes,) = panels(drawn(charts.acceptance_by_category, plain()))
    assert [each.get_text() for each in axes.get_yticklabels()] == ["chat", "code", "all"]
    cell = of_arm(plain(), "ngram")[0]
    found = [cell.by_category["chat"], cell.by_category["code"], cell.figures]
    assert values(axes, "ngram", "x") == [each[StatusFigure.ACCEPTANCE_LENGTH].value for each in found]
    assert [round(each) for each in values(axes, "ngram")] == [0, 1, 2]


def test_latency_has_a_panel_for_each_figure_and_percentile() -> None:
    """A 99th percentile of too few requests is missing, and has no panel."""
    assert titles(drawn(charts.latency, plain())) == ["TTFT p50", "TPOT p50", "E2E p50"]
    many = run_of_world(replace(WORLD, prompts=40))
    drawing = drawn(charts.latency, many)
    assert titles(drawing) == [f"{name} {percent}" for name in ("TTFT", "TPOT", "E2E") for percent in ("p50", "p99")]
    for axes, name in zip(panels(drawing), ("ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50"), strict=False):
        assert values(axes, "baseline") == [cell.figures[name].value for cell in of_arm(many, "none")]
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > axes.dataLim.ymax
        assert axes.get_ylabel() == "ms"
    unstreamed = without(many, "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "tpot_ms_p99")
    assert titles(drawn(charts.latency, unstreamed)) == ["E2E p50", "E2E p99"]


def environment(arm: str, tokens: int | None, weights: int | None = None, lost: float | None = None) -> ArmEnvironment:
    facts = {FactName.KV_CACHE_TOKENS: tokens, FactName.DRAFTER_WEIGHTS_BYTES: weights}
    found = {name: Fact.of(value, "engine", "not reported") for name, value in facts.items()}
    return ArmEnvironment(arm=arm, launches=["0-0"], facts=found, kv_cache_lost=figure(lost) if lost else None)


def test_memory_has_a_bar_for_each_engine_and_cost_a_line_for_each_arm() -> None:
    engines = [environment("none", 1000), environment("ngram", 800, 3 << 29, 0.2), environment("suffix", None)]
    drawing = drawn(charts.memory_and_cost, plain().model_copy(update={"arm_environments": engines}))
    memory, cost = panels(drawing)
    assert [each.get_width() for each in memory.patches] == [1000, 800]  # type: ignore[attr-defined]
    assert [each.get_text() for each in memory.texts] == ["1,000", "800 (-20.0%), drafter 1.50 GiB"]
    assert [each.get_text() for each in memory.get_yticklabels()] == ["baseline", "ngram"]
    saved = [cell.end_to_end.cost_saved for cell in of_arm(plain(), "ngram") if cell.end_to_end]
    assert values(cost, "ngram") == [1 - each.value for each in saved if each.value is not None]
    assert reach(cost, "ngram") == [
        pytest.approx((1 - each.interval.high, 1 - each.interval.low)) for each in saved if each.interval
    ]
    assert titles(drawn(charts.memory_and_cost, plain())) == [titles(drawing)[1]]
    alone = without_baseline(plain()).model_copy(update={"arm_environments": engines})
    cells = [cell.model_copy(update={"end_to_end": None}) for cell in alone.cells]
    assert titles(drawn(charts.memory_and_cost, with_cells(alone, cells))) == [titles(drawing)[0]]


def test_soak_test_shows_the_fitted_line_with_the_interval_of_its_change() -> None:
    change = figure(-0.5, -0.6, -0.4)
    trend = Trend(name=StatusFigure.ACCEPTANCE_LENGTH, start=2.0, end=1.0, change=change, hours=0.5)
    cell = of_arm(plain(), "ngram")[0].model_copy(update={"trends": [trend]})
    (axes,) = panels(drawn(charts.acceptance_over_time, with_cells(plain(), [cell])))
    assert (values(axes, "ngram", "x"), values(axes, "ngram")) == ([0.0, 30.0], [2.0, 1.0])
    assert reach(axes, "ngram") == [pytest.approx((0.8, 1.2))]


def test_only_figures_with_data_are_drawn() -> None:
    every, (soak,) = list(FIGURES)[:-1], list(FIGURES)[-1:]
    assert list(draw_figures(plain())) == every
    assert draw_figures(plain(), [soak]) == {}
    assert draw_figures(run_of_world(WORLD, Corruptions(measured=lambda _: False))) == {}
    nothing_compared = [cell.model_copy(update={"end_to_end": None}) for cell in without_baseline(plain()).cells]
    assert [title for title in every if title not in draw_figures(with_cells(plain(), nothing_compared))] == [
        charts.SPEEDUP,
        "Memory and cost",
    ]
    unknown = without(plain(), *(name for cell in plain().cells for name in cell.figures if "accept" in name))
    assert not any("Acceptance" in title for title in draw_figures(unknown))


def test_each_workload_has_its_own_panel() -> None:
    two = [cell.model_copy(update={"workload": name}) for name in ("one", "two") for cell in plain().cells]
    summary = with_cells(plain(), two)
    assert titles(drawn(charts.speedup, summary)) == ["one", "two"]
    assert titles(drawn(charts.acceptance_by_category, summary)) == ["one, at concurrency 1", "two, at concurrency 1"]
    assert titles(drawn(charts.latency, summary))[:2] == ["TTFT p50, one", "TTFT p50, two"]


def test_open_loop_has_the_rate_as_axis() -> None:
    rates = {1: Level(rate=0.5), 2: Level(rate=4)}
    cells = [cell.model_copy(update={"level": rates[cell.level.concurrency or 0]}) for cell in plain().cells]
    (axes,) = panels(drawn(charts.speedup, with_cells(plain(), cells)))
    assert axes.get_xlabel() == "conversations a second"
    assert [each.get_text() for each in axes.get_xticklabels()] == ["0.5/s", "4/s"]


def test_caption_has_definition_sampling_units_and_intervals() -> None:
    assert all(drawing.caption.endswith(HOLLOW) for drawing in draw_figures(plain()).values())
    canvas, (axes,) = new_panels([""])
    axes.plot([1], label="one")
    details = figure(2.0, 1.0, 3.0).model_copy(update={"definition": "a (b; c); d"})
    assert finished(canvas, [details, None, figure(1.0)], "Note.").caption == "a (b; c). n 3. Intervals: 95%, t. Note."


def test_simulated_results_are_marked() -> None:
    summary = plain().model_copy(update={"simulated": True})
    assert all(title.endswith(mark_simulated("", simulated=True)) for title in draw_figures(summary))
    assert not any(title.endswith(mark_simulated("", simulated=True)) for title in draw_figures(plain()))


def test_names_are_neither_formulas_nor_markup() -> None:
    hostile = many_cells(plain(), arms=1, loads=2, name=lambda _: "$a_b$ <b>&\u202e")
    title = 'speed "<b>"'
    text = svg(title, drawn(charts.speedup, hostile))
    assert r"$a_b$ &lt;b&gt;&amp;\u202e" in text
    assert "<b>" not in text
    assert 'aria-label="speed &quot;&lt;b&gt;&quot;: ' in text
    assert "\u202e" not in text


def test_svg_has_a_description_and_only_the_colours_of_the_page() -> None:
    text = svg(charts.SPEEDUP, drawn(charts.speedup, plain()))
    first, last = (cell.speedup.value for cell in of_arm(plain(), "ngram") if cell.speedup)
    assert text.startswith('<svg role="img" aria-label="')
    assert f"ngram {first:.4g} to {last:.4g}" in text
    assert re.findall("#[0-9a-f]{6}", text) == []


@pytest.mark.parametrize("made", [plain, lambda: invalid(plain())])
def test_each_mark_of_the_speedups_has_its_value_for_the_page(made: Callable[[], RunSummary]) -> None:
    text, found = svg(charts.SPEEDUP, drawn(charts.speedup, made())), list[tuple[str, str]]()
    for cell in made().cells:
        if cell.speedup:
            doubt = "" if cell.valid else ", invalid"
            found.append((cell.arm, f"{cell.arm} at {cell.level.words}: {cell.speedup.factor}{doubt}"))
    assert sorted(re.findall(r'<g data-arm="([^"]*)"><title>([^<]*)</title>', text)) == sorted(found)


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_picture_is_the_same_each_time_it_is_written(kind: str, start: bytes) -> None:
    drawing = drawn(charts.speedup, plain())
    data = picture("title", drawing, kind)
    assert data.startswith(start)
    assert picture("title", drawing, kind) == data


@pytest.mark.process
def test_large_run_gives_a_page_below_the_size_limit() -> None:
    world = SyntheticRun(prompts=22, categories=tuple(f"category-{index}" for index in range(11)))
    summary = many_cells(
        run_of_world(world, Corruptions(simulated=True)), arms=20, loads=8, name="a-drafter-with-a-long-name-{}".format
    )
    text = render_html(world.plan, summary)
    assert len(text.encode()) < SIZE_MAX_BYTES
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
