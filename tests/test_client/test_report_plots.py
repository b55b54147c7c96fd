"""Plots: what each kind draws from numbers, what it leaves out, and that series are distinguishable."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.report.plots.bars import Bar, Bars, Part, draw_bars
from specbench_client.report.plots.canvas import NAME_MAX, SLANT_IN, Panel, shortened, slanted_height_in, svg
from specbench_client.report.plots.heatmap import (
    CELLS_MAX,
    HeatMap,
    colour_of,
    contrast,
    draw_heatmap,
    ink_on,
)
from specbench_client.report.plots.sections.acceptance import Dots, draw_dots
from specbench_client.report.plots.sections.breakdown import Box, Boxes, draw_boxes
from specbench_client.report.plots.sections.throughput import Pareto, Path, Spot, draw_pareto, frontier, labelled
from specbench_client.report.plots.series import (
    CrossingMark,
    LoadLines,
    NumberLines,
    PlotValue,
    Series,
    describe_series,
    draw_load_lines,
    draw_number_lines,
    load_position,
    plot_value,
)
from specbench_client.report.plots.styles import (
    DARK,
    GREY_DARK,
    GREY_LIGHT,
    LIGHT,
    PRINT,
    SERIES_PER_PANEL_MAX,
    arm_styles,
    series_style,
    split_into_panels,
)
from specbench_client.report.plots.what_if import oracle_against_fixed
from specbench_client.visible_text import visible

pytestmark = pytest.mark.runs

COLOUR_VISION = {
    "normal": np.eye(3),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""
SPOTS = st.lists(
    st.builds(Spot, st.just("1"), st.integers(0, 9).map(float), st.integers(0, 9).map(float), st.booleans()),
    max_size=12,
)


def axes() -> Axes:
    """Return new axes."""
    return Canvas().subplots()


def series(*values: float | None, name: str = "arm", valid: bool = True) -> Series:
    """Return one line with intervals of ±0.1."""
    readings = (None if value is None else PlotValue(value, value - 0.1, value + 0.1, valid) for value in values)
    return Series(name, series_style(0), tuple(readings))


def across(line: Line2D) -> list[float]:
    """Return the x coordinates of a line's points."""
    return [float(each) for each in np.asarray(line.get_xdata(), dtype=float)]


def up(line: Line2D) -> list[float]:
    """Return the y coordinates of a line's points."""
    return [float(each) for each in np.asarray(line.get_ydata(), dtype=float)]


def spans(target: Axes) -> list[tuple[float, float]]:
    """Return start and width of every bar."""
    return [(each.get_x(), each.get_width()) for each in target.patches if isinstance(each, Rectangle)]


def lab(colour: str, sight: str) -> np.ndarray:
    """Return the CIE L*a*b* (D65) coordinates of a colour under the given colour vision."""
    rgb = np.array(to_rgba(colour)[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(COLOUR_VISION[sight]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = to_xyz @ linear / (0.95047, 1.0, 1.08883)
    bent = [np.cbrt(each) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z)]
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


@pytest.mark.parametrize("sight", COLOUR_VISION)
@pytest.mark.parametrize("colours", [(*LIGHT, GREY_LIGHT), (*DARK, GREY_DARK)], ids=["light", "dark"])
def test_series_colours_are_distinguishable_with_colour_blindness(colours: tuple[str, ...], sight: str) -> None:
    assert min(math.dist(lab(one, sight), lab(other, sight)) for one, other in combinations(colours, 2)) >= 19


@pytest.mark.parametrize(
    ("colours", "page"), [((*LIGHT, GREY_LIGHT), "#ffffff"), ((*DARK, GREY_DARK), "#0d1117")], ids=["light", "dark"]
)
def test_series_colours_contrast_with_the_page(colours: tuple[str, ...], page: str) -> None:
    assert min(contrast(colour, page) for colour in colours) >= 3


@given(st.integers(0, 40).map(lambda count: [f"arm-{index}" for index in range(count)]))
def test_arms_are_split_evenly_and_styles_within_a_panel_differ(names: list[str]) -> None:
    groups, looks = split_into_panels(names), arm_styles(names)
    assert [name for group in groups for name in group] == names
    sizes = [len(group) for group in groups]
    assert not sizes or (max(sizes) <= SERIES_PER_PANEL_MAX and max(sizes) - min(sizes) <= 1)
    for group in groups:
        for one, other in combinations([looks[name] for name in group if name != "none"], 2):
            assert one.colour != other.colour
            assert one.marker != other.marker
            assert one.dash != other.dash
            assert one.hatch != other.hatch


def figure(value: float | None, low: float = 1.0, high: float = 3.0) -> Figure:
    """Return a figure with an interval."""
    interval = FigureInterval(low=low, high=high, method="t")
    return Figure(value=value, unit="ratio", definition="d", n=3, interval=interval, source="client")


@pytest.mark.parametrize("missing", [None, figure(None), figure(float("nan")), figure(float("inf"))])
def test_missing_or_non_finite_figure_has_no_plot_value(missing: Figure | None) -> None:
    assert plot_value(missing) is None


def test_plot_value_reaches_from_bound_to_bound() -> None:
    found = plot_value(figure(2.5))
    assert found is not None
    assert found.reach == (1.5, 0.5)
    bare = plot_value(figure(2.5), bounds=False)
    assert bare is not None
    assert bare.reach == (0.0, 0.0)
    assert PlotValue(5.0, 1.0, 3.0).reach == (4.0, 0.0)


def test_series_description_gives_first_and_last_value() -> None:
    lines = [series(1.5, None, 1.25, name="a"), series(None, 2.0, None, name="b"), series(None, None, None, name="c")]
    assert describe_series(lines, ["1", "8", "32"]) == "a 1.5 at 1 to 1.25 at 32; b 2 at 8"


@pytest.mark.parametrize(
    ("load", "place"), [(1, 0), (4, 1), (16, 2), (2, 0.5), (8, 1.5), (0.5, -0.5), (17, 2.5), (16 / 2**0.5, 1.75)]
)
def test_load_between_two_ticks_is_placed_on_a_log_scale(load: float, place: float) -> None:
    assert load_position(load, (1, 4, 16)) == pytest.approx(place)


@given(st.lists(st.floats(0.01, 1e5), min_size=2, max_size=8, unique=True).map(sorted), st.data())
def test_load_position_increases_with_the_load(loads: list[float], data: st.DataObject) -> None:
    within = st.floats(loads[0], loads[-1])
    some = sorted(data.draw(st.lists(within, min_size=2, max_size=6)))
    assert all(load_position(low, loads) <= load_position(high, loads) for low, high in pairwise(some))


def drawn_over_loads(*lines: Series, crossings: tuple[CrossingMark, ...] = ()) -> Axes:
    """Draw lines over three loads."""
    target = axes()
    data = LoadLines(("1", "4", "16"), lines, "concurrency", "speed-up", 1.0, (1.0, 4.0, 16.0), crossings)
    draw_load_lines(target, data=data, theme=PRINT)
    return target


def test_line_breaks_at_a_missing_value() -> None:
    line = drawn_over_loads(series(1.8, None, 1.2)).lines[0]
    assert np.array_equal(np.isnan(np.asarray(line.get_ydata(), dtype=float)), [False, True, False])


@pytest.mark.parametrize("valid", [True, False])
def test_invalid_values_are_hollow(*, valid: bool) -> None:
    lines = [each for each in drawn_over_loads(series(1.8, 1.5, 1.2, valid=valid)).lines if each.get_marker() == "o"]
    full, hollow = lines[0], lines[1]
    assert len(across(full)) == (3 if valid else 0)
    assert len(across(hollow)) == (0 if valid else 3)
    assert to_hex(hollow.get_markerfacecolor()) == PRINT.paper


def test_crossing_is_drawn_on_the_baseline_and_open_ends_beyond_the_loads() -> None:
    bar, mark = drawn_over_loads(series(1.8, 1.5, 0.8), crossings=(CrossingMark(series_style(0), 8.0, 4.0),)).lines[-2:]
    assert across(mark) == [1.5]
    assert up(mark) == [1.0]
    assert across(bar) == [1.0, 2.5]


@given(SPOTS)
def test_frontier_contains_the_spots_that_no_other_dominates(spots: list[Spot]) -> None:
    best = frontier(spots)
    valid = [spot for spot in spots if spot.valid]
    beaten = {
        (spot.x, spot.y)
        for spot in valid
        if any(other.x >= spot.x and other.y >= spot.y and (other.x, other.y) != (spot.x, spot.y) for other in valid)
    }
    assert {(spot.x, spot.y) for spot in best} == {(spot.x, spot.y) for spot in valid} - beaten
    assert [spot.x for spot in best] == sorted(spot.x for spot in best)


def test_overlapping_labels_are_left_out() -> None:
    first, near, far = Spot("1", 0, 0), Spot("2", 1, 1), Spot("8", 100, 100)
    assert labelled([(first, far), (near,)]) == [first, far]
    assert labelled([]) == []
    assert labelled([(first,)]) == [first]


def test_paths_without_a_valid_spot_have_no_frontier() -> None:
    target = axes()
    path = Path("arm", series_style(0), (Spot("1", 1, 2, valid=False),))
    draw_pareto(target, data=Pareto((path,), frontier(path.spots), "x", "y"), theme=PRINT)
    assert "frontier" not in target.get_legend_handles_labels()[1]


def bars(*rows: Bar) -> Axes:
    """Draw these bars."""
    target = axes()
    draw_bars(target, data=Bars(rows, "ms"), theme=PRINT)
    return target


def test_parts_of_a_bar_are_stacked() -> None:
    target = bars(
        Bar("a", (Part(10.0, series_style(0)), Part(3.0, series_style(1))), "13.0"), Bar("b", (), "not measured")
    )
    assert spans(target) == [(0.0, 10.0), (10.0, 3.0)]
    assert [each.get_text() for each in target.texts] == ["13.0", "not measured"]
    assert [label.get_text() for label in target.get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize("valid", [True, False])
def test_invalid_bar_is_hollow(*, valid: bool) -> None:
    (patch,) = bars(Bar("a", (Part(10.0, series_style(0)),), "10", valid)).patches
    assert to_hex(patch.get_facecolor()) == (LIGHT[0] if valid else PRINT.paper)


@pytest.mark.parametrize("name", ["a", "x" * NAME_MAX])
def test_text_behind_the_longest_bar_fits(name: str) -> None:
    text = "49,818 (100% prefill)"
    target = bars(Bar(name, (Part(10.0, series_style(0)),), text))
    assert 10.0 < target.get_xlim()[1] <= 10 / 0.3


def test_dot_plot_has_no_mark_for_a_missing_value() -> None:
    target = axes()
    draw_dots(target, data=Dots(("code", "chat", "all"), (series(2.0, None, 2.5),), "AL", 1.0), theme=PRINT)
    marks = [each for each in target.lines if each.get_marker() == "o" and len(across(each))]
    assert [(across(each)[0], up(each)[0]) for each in marks] == [(2.0, 0.0), (2.5, 2.0)]


@pytest.mark.parametrize(
    ("one", "other", "found"), [("#000000", "#ffffff", 21), ("#777777", "#ffffff", 4.48), ("#123456", "#123456", 1)]
)
def test_contrast_follows_wcag(one: str, other: str, found: float) -> None:
    assert contrast(one, other) == pytest.approx(found, abs=0.005)
    assert contrast(other, one) == contrast(one, other)


@given(st.floats(-1.5, 1.5))
def test_text_is_readable_on_every_heatmap_colour(share: float) -> None:
    colour = colour_of(share)
    assert contrast(ink_on(colour), colour) >= 4.5


def test_heatmap_has_a_colour_for_each_sign() -> None:
    assert colour_of(0) == "#f1f1f1"
    assert (colour_of(1), colour_of(-1)) == ("#005abe", "#c05f04")
    assert colour_of(7) == colour_of(1)


def heat(*rows: tuple[float | None, ...], middle: float = 0.0) -> Axes:
    """Draw a heat map."""
    target, columns = axes(), tuple(str(column) for column in range(len(rows[0])))
    names = tuple(f"row {row}" for row in range(len(rows)))
    draw_heatmap(target, data=HeatMap(names, columns, rows, "x", middle, "{:+.0%}"), theme=PRINT)
    return target


def test_heatmap_cell_without_a_value_has_a_dash_and_no_colour() -> None:
    target = heat((0.5, None), (-0.5, 0.0))
    assert [each.get_text() for each in target.texts] == ["+50%", "–", "-50%", "+0%"]
    assert [to_hex(each.get_facecolor()) for each in target.patches] == ["#005abe", "#000000", "#c05f04", "#f1f1f1"]
    assert to_rgba(target.patches[1].get_facecolor())[3] == 0


def test_small_difference_has_a_faint_colour() -> None:
    (patch,) = heat((0.001,)).patches
    assert contrast(to_hex(patch.get_facecolor()), colour_of(0)) < 1.1


def test_heatmap_of_many_columns_shows_its_scale_instead_of_numbers() -> None:
    target = heat(tuple(float(each) for each in range(20)))
    assert len(target.texts) == 0
    assert target.get_xlabel() == "x (no colour: 0, full: 19)"
    assert heat(tuple(float(each) for each in range(-1, 19))).get_xlabel() == "x (full colour: 0 ± 18)"


def test_heatmap_above_the_cell_limit_is_rejected() -> None:
    with pytest.raises(ValueError, match="condense"):
        heat((0.0,) * (CELLS_MAX + 1))


def test_box_spans_the_quartiles() -> None:
    target = axes()
    box = Box("arm", series_style(0), 1.0, 1.5, 2.0, 3.0, 4.5, 200)
    draw_boxes(target, data=Boxes((box,), "AL", 1.0), theme=PRINT)
    assert spans(target) == [(1.5, 1.5)]
    drawn = [across(each) for each in target.lines]
    assert [1.0, 1.5] in drawn
    assert [3.0, 4.5] in drawn
    assert [2.0, 2.0] in drawn
    assert [each.get_text() for each in target.texts] == ["n 200"]


def test_number_lines_place_values_at_their_number() -> None:
    target = axes()
    data = NumberLines((64.0, 256.0, 1024.0), (series(2.0, None, 1.5),), "position", "AL", 1.0)
    draw_number_lines(target, data=data, theme=PRINT)
    assert across(target.lines[0]) == [64.0, 256.0, 1024.0]
    assert target.get_xscale() == "log"
    assert [each.get_text() for each in target.get_xticklabels()] == ["64", "256", "1024"]


def test_oracle_lines_are_added_to_the_fixed_lengths() -> None:
    found = oracle_against_fixed([1, 32], {3: [1.8, 1.5], 1: [1.3, None]}, [2.1, 1.9], [2.4, 2.2])
    assert [each.name for each in found.series] == ["k = 1", "k = 3", "oracle", "oracle of both"]
    assert found.at == (1.0, 32.0)
    assert found.series[0].readings == (PlotValue(1.3), None)
    assert len({each.style for each in found.series}) == 4


@pytest.mark.parametrize(
    ("fixed", "oracle", "message"),
    [({k: [1.0] for k in range(7)}, [2.0], "leave some out"), ({1: [1.0, 2.0]}, [2.0], "one a batch size")],
)
def test_oracle_with_too_many_lengths_or_wrong_sizes_is_rejected(
    fixed: dict[int, list[float]], oracle: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        oracle_against_fixed([1], fixed, oracle)


@given(st.text(st.characters(exclude_characters="$"), max_size=80))
def test_shortened_name_keeps_both_ends(name: str) -> None:
    short, name = shortened(name), visible(name)
    assert len(short) <= NAME_MAX
    assert short == name or (name.startswith(short.partition("…")[0]) and name.endswith(short.rpartition("…")[2]))


def test_plot_names_are_not_parsed_as_formula_or_markup() -> None:
    data = Bars((Bar("$a_b$ <b>&", (Part(1.0, series_style(0)),), "1"),), "x")
    text = svg(Panel(lambda axes, *, theme: draw_bars(axes, data=data, theme=theme)), "name", 'says "<b>"')
    assert "$a_b$ &lt;b&gt;&amp;" in text
    assert 'aria-label="says &quot;&lt;b&gt;&quot;"' in text


def test_only_slanted_names_need_room_below_an_axis() -> None:
    assert slanted_height_in(["ngram", "eagle3"]) == 0
    assert slanted_height_in(["a-drafter-with-a-name", "another-drafter-of-a-name"]) == pytest.approx(25 * SLANT_IN)
