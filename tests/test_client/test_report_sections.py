"""Plot sections: which parts of a summary each plot shows, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from specbench_api.outcome.breakdown import Breakdown
from specbench_api.outcome.figure import StatusFigure
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.html import render_html
from specbench_client.report.plots.canvas import Panel, PanelGroup
from specbench_client.report.plots.page import SECTIONS, svgs
from specbench_client.report.plots.sections import acceptance, acceptance_maps, times
from specbench_client.report.plots.sections.cells import rests_on
from specbench_client.report.plots.sections.speedup import speedup, speedup_by_category
from specbench_client.report.plots.sections.throughput import pareto, throughput
from specbench_client.trust.checks.prompts import INTERVAL_FROM
from specbench_testing.summary_variants import (
    SMALL_WORLDS_LACK,
    invalid,
    many_cells,
    with_cells,
    without,
    without_baseline,
)
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
FEW = SyntheticRun(prompts=16, repeats=2)
SIZE_MAX_BYTES = 3_000_000
"""Limit in docs/reference/report.md for a page with 20 drafters at 8 loads in 11 categories."""


@cache
def plain() -> RunSummary:
    """Return the summary of an ordinary run."""
    return run_of_world(WORLD)


def draw_section(section: Callable[[RunSummary], PanelGroup | None], summary: RunSummary) -> PanelGroup:
    """Return the panels of a section that must not be empty."""
    found = section(summary)
    assert found is not None
    return found


def data_of(panel: Panel) -> Any:
    """Return the data a panel is drawn from."""
    assert isinstance(panel.draw, partial)
    return panel.draw.keywords["data"]


def test_speedup_plot_shows_the_summarys_values_and_intervals() -> None:
    (panel,) = draw_section(speedup, plain()).panels
    data = data_of(panel)
    assert (data.labels, data.level, data.x_label) == (("1", "2"), 1.0, "concurrency")
    for series in data.series:
        cells = [cell for cell in plain().cells if cell.arm == series.name]
        for cell, each in zip(cells, series.readings, strict=True):
            assert cell.speedup is not None
            assert cell.speedup.interval is not None
            bounds = (cell.speedup.interval.low, cell.speedup.interval.high)
            assert (each.value, each.low, each.high) == (cell.speedup.value, *bounds)


def test_too_few_repeats_give_a_speedup_without_an_interval() -> None:
    (panel,) = draw_section(speedup, run_of_world(FEW)).panels
    assert [each.reach for series in data_of(panel).series for _, each in series.known] == [(0.0, 0.0)]


def test_twenty_arms_are_split_over_panels() -> None:
    panels = draw_section(speedup, many_cells(plain(), arms=20, loads=3)).panels
    assert [len(data_of(panel).series) for panel in panels] == [5, 5, 5, 5]


def test_speedup_panels_share_one_scale_that_shows_every_bound() -> None:
    drawn = [data_of(panel) for panel in draw_section(speedup, many_cells(plain(), arms=20, loads=3)).panels]
    ((low, high),) = {data.y_range for data in drawn}
    values = [value for data in drawn for series in data.series for _, value in series.known]
    assert low < min(1.0, *(value.low or value.value for value in values))
    assert high > max(1.0, *(value.high or value.value for value in values))


def test_throughput_bars_show_the_difference_to_the_baseline() -> None:
    data = data_of(draw_section(throughput, plain()).panels[0])
    own = {cell.arm: cell.figures["output_tps"].value or 0.0 for cell in plain().cells if cell.level.label == "1"}
    baseline, *others = data.rows
    assert (baseline.name, baseline.text) == ("baseline", f"{own['none']:.1f}")
    for row in others:
        assert row.text.endswith(f"({own[row.name] / own['none'] - 1:+.0%})")
        assert row.length == own[row.name]


@pytest.mark.parametrize("made", [invalid, without_baseline])
def test_throughput_difference_needs_a_valid_baseline(made: Callable[[RunSummary], RunSummary]) -> None:
    for panel in draw_section(throughput, made(plain())).panels:
        assert not any("%" in row.text for row in data_of(panel).rows)


def test_arm_without_the_figure_has_no_bar() -> None:
    first, *cells = plain().cells
    bare = first.model_copy(update={"figures": {}})
    rows = data_of(draw_section(throughput, with_cells(plain(), [bare, *cells])).panels[0]).rows
    assert (rows[0].parts, rows[0].text) == ((), "missing")


def test_frontier_contains_valid_cells_only() -> None:
    assert data_of(draw_section(pareto, plain()).panels[0]).frontier
    assert data_of(draw_section(pareto, invalid(plain())).panels[0]).frontier == ()


def test_throughput_is_per_gpu_when_the_summary_has_it() -> None:
    assert data_of(draw_section(pareto, plain()).panels[0]).y_label == "output tokens a second of the engine"
    cells = [
        cell.model_copy(update={"figures": {**cell.figures, "output_tps_per_gpu": cell.figures["tpot_ms_p50"]}})
        for cell in plain().cells
    ]
    data = data_of(draw_section(pareto, with_cells(plain(), cells)).panels[0])
    assert data.y_label == "output tokens a second of a GPU"
    assert data.paths[0].spots[0].y == plain().cells[0].figures["tpot_ms_p50"].value


def test_acceptance_plot_has_a_row_per_category_and_one_for_all() -> None:
    (panel,) = draw_section(acceptance.by_category, plain()).panels
    data = data_of(panel)
    assert data.rows == ("chat", "code", "all")
    cell = next(cell for cell in plain().cells if cell.arm == "ngram")
    by_category = [cell.by_category[name]["acceptance_length_emitted_pooled"].value for name in ("chat", "code")]
    expected = [*by_category, cell.figures["acceptance_length_emitted_pooled"].value]
    assert [each.value for each in data.series[0].readings] == expected


def test_acceptance_by_position_is_conditional_and_joint() -> None:
    first, second = (data_of(panel) for panel in draw_section(acceptance.by_position, plain()).panels)
    assert first.labels == second.labels == ("1", "2", "3")
    for conditional, joint in zip(first.series, second.series, strict=True):
        product = 1.0
        for one, all_so_far in zip(conditional.readings, joint.readings, strict=True):
            product *= one.value
            assert all_so_far.value == pytest.approx(product)


def test_step_time_bar_is_the_baselines_step_plus_the_added_time() -> None:
    data = data_of(draw_section(times.step_time, plain()).panels[0])
    baseline, ngram, _ = data.rows
    assert [part.size for part in ngram.parts] == pytest.approx([baseline.length, ngram.length - baseline.length])
    assert ngram.text == f"{ngram.length:.1f} ({ngram.length - baseline.length:+.1f})"
    assert [name for name, _ in data.legend] == ["the baseline's step", "added"]


def test_step_shorter_than_the_baselines_has_no_added_part() -> None:
    summary = run_of_world(SyntheticRun(prompts=16, step_ms={"none": 10.0, "ngram": 8.0}))
    _, ngram = data_of(draw_section(times.step_time, summary).panels[0]).rows
    assert len(ngram.parts) == 1
    assert ngram.text.startswith("8.")
    assert "(-" in ngram.text


@pytest.mark.parametrize("made", [invalid, without_baseline])
def test_step_without_a_valid_baseline_is_one_part(made: Callable[[RunSummary], RunSummary]) -> None:
    rows = data_of(draw_section(times.step_time, made(plain())).panels[0]).rows
    assert all(len(row.parts) == 1 and "(" not in row.text for row in rows)


def test_request_time_bar_is_prefill_plus_decode() -> None:
    rows = data_of(draw_section(times.request_time, plain()).panels[0]).rows
    cells = [cell for cell in plain().cells if cell.level.label == "1"]
    for row, cell in zip(rows, cells, strict=True):
        first, last = (cell.figures[name].value for name in ("ttft_ms_mean", "e2e_ms_mean"))
        assert row.parts[0].size == first
        assert row.length == pytest.approx(last)


def test_unstreamed_answers_have_no_request_time_plot() -> None:
    assert times.request_time(without(plain(), "ttft_ms_mean")) is None


def test_category_map_needs_two_categories_and_shows_no_invalid_cell() -> None:
    maps = [data_of(panel) for panel in draw_section(speedup_by_category, plain()).panels]
    assert [each.rows for each in maps] == [("chat", "code")] * 2
    assert len({each.farthest for each in maps}) == 1, "adjacent maps share one colour scale"
    speedup_of_chat = plain().cells[1].by_category["chat"]["speedup"].value
    assert maps[0].values[0][0] == speedup_of_chat
    assert speedup_by_category(invalid(plain())) is None
    assert speedup_by_category(run_of_world(SyntheticRun(prompts=16, categories=("chat",)))) is None


def lengths(slices: Breakdown) -> dict[str, float]:
    """Return position label → acceptance length, for positions with enough prompts."""
    enough = [each for each in slices.by_position if each.prompts >= INTERVAL_FROM]
    found = {each.label: each.figures[StatusFigure.ACCEPTANCE_LENGTH].value for each in enough}
    return {label: value for label, value in found.items() if value is not None}


def test_two_drafters_are_compared_by_answer_length_and_position() -> None:
    summary = run_of_world(SyntheticRun(prompts=32, drafters=("ngram", "suffix")))
    (panel,) = draw_section(acceptance_maps.by_difference, summary).panels
    data, (one, other) = data_of(panel), summary.cells[1:]
    assert panel.title.startswith(f"{one.arm} − {other.arm}, ")
    assert one.breakdown is not None
    assert other.breakdown is not None
    assert data.rows[0] == acceptance_maps.EVERY
    first, second = lengths(one.breakdown), lengths(other.breakdown)
    expected = [first[label] - second[label] if label in first and label in second else None for label in data.columns]
    assert list(data.values[0]) == expected
    assert len(data.rows) > 2
    few = {each.label for each in one.breakdown.by_position if each.prompts < INTERVAL_FROM}
    assert not few & set(data.columns), "a bin of two answers would dominate the colour scale"
    assert acceptance_maps.by_difference(invalid(plain())) is None
    assert acceptance_maps.by_difference(run_of_world(SyntheticRun(prompts=16))) is None


def test_pairs_of_drafters_above_the_limit_are_counted_in_the_caption() -> None:
    found = draw_section(acceptance_maps.by_difference, many_cells(plain(), arms=5, loads=1))
    assert len(found.panels) == acceptance_maps.PAIRS_MAX
    assert "more pairs are not drawn" in found.caption


def test_plots_that_need_a_baseline_are_left_out_without_one() -> None:
    left = {section.title for section in SECTIONS if section.draw(without_baseline(plain())) is None}
    assert left == {"Speed-up over the paired baseline, by load", "Speed-up by category and load", *SMALL_WORLDS_LACK}


def test_caption_contains_definition_sampling_units_and_intervals() -> None:
    for section in SECTIONS:
        if section.title in SMALL_WORLDS_LACK:
            continue
        caption = draw_section(section.draw, plain()).caption
        assert " n " in caption or " n: " in caption, section.title
        assert len(caption.partition(".")[0]) > 20, section.title
    (figure,) = {cell.speedup for cell in plain().cells[1:2]}
    assert figure is not None
    assert figure.interval is not None
    caption_end = rests_on([figure])
    assert caption_end.startswith(figure.definition.rpartition(";")[0])
    assert f"n {figure.n}." in caption_end
    assert f"Intervals: 95%, {figure.interval.method.partition(';')[0]}." in caption_end


def test_definition_is_not_cut_at_a_semicolon_within_brackets() -> None:
    figure = plain().cells[0].figures["output_tps"].model_copy(update={"definition": "a (b; c); d", "interval": None})
    assert rests_on([figure]) == f"a (b; c). n {figure.n}. No intervals."


def test_each_workload_has_its_own_panel() -> None:
    workloads = [{"name": name, "dataset": {"source": "jsonl", "uri": f"{name}.jsonl"}} for name in ("one", "two")]
    summary = run_of_world(SyntheticRun(prompts=12, edits={"spec.workloads": workloads}))
    assert [panel.title for panel in draw_section(speedup, summary).panels] == ["one", "two"]
    assert [panel.title for panel in draw_section(throughput, summary).panels] == [
        "one, at concurrency 1",
        "two, at concurrency 1",
    ]


def test_plot_has_a_text_description() -> None:
    (plot, *_) = svgs(plain())
    (svg,) = plot.panels
    cells = [cell for cell in plain().cells if cell.arm == "ngram"]
    first, last = (cell.speedup.value for cell in cells if cell.speedup)
    assert f'role="img" aria-label="{plot.title}: ngram {first:.3g} at 1 to {last:.3g} at 2; ' in svg


@pytest.mark.process
def test_large_run_gives_a_page_below_the_size_limit() -> None:
    world = SyntheticRun(prompts=22, categories=tuple(f"category-{index}" for index in range(11)))
    summary = many_cells(
        run_of_world(world, Corruptions(simulated=True)),
        arms=20,
        loads=8,
        name="a-drafter-with-a-long-name-{}".format,
    )
    assert len(render_html(world.plan, summary).encode()) < SIZE_MAX_BYTES
