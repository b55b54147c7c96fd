"""Ranges of overlap: every answer is in one of each predictor, and an arm's speed-up is that of its prompts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.replay import OverlapBin, OverlapFigures, ReplayReport
from specbench_client.analysis.replay.bins import EDGES, Overlaps, bins_of, places_of
from specbench_client.report.plots.overlap_picture import overlap_picture
from specbench_testing.decisions import figure

SHARES = st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=30)


@given(SHARES)
def test_every_known_answer_is_in_one_range_that_holds_it(values: list[float]) -> None:
    array = np.array(values)
    found = bins_of(Overlaps(["p"] * len(values), {"copied_share": array, "bleu4": np.full(len(values), np.nan)}))
    assert {each.by for each in found} <= {"copied_share"}
    held = np.sum([each.answers for each in found], axis=0) if found else np.zeros(len(values))
    assert held.tolist() == (~np.isnan(array)).astype(int).tolist()
    for each in found:
        assert ((array[each.answers] >= each.low) & (array[each.answers] <= each.high)).all()


@pytest.mark.parametrize(("value", "place"), [(0.0, 0), (0.2, 1), (0.79, 3), (1.0, len(EDGES) - 2)])
def test_an_edge_belongs_to_the_range_above_it_and_one_to_the_last(value: float, place: int) -> None:
    assert places_of(np.array([value])).tolist() == [place]


def test_a_prompts_overlap_is_the_mean_of_its_answers_that_tell_one() -> None:
    values = np.array([0.2, 0.6, np.nan, np.nan])
    found = Overlaps(["a", "a", "a", "b"], {"copied_share": values, "bleu4": values})
    assert found.of_prompts("bleu4") == {"a": pytest.approx(0.4)}


def test_a_range_of_a_few_answers_has_no_colour_though_it_has_its_row() -> None:
    bins = [
        OverlapBin(by="bleu4", low=low, high=low + 0.2, answers=answers, speedups={"ngram": figure(gain)})
        for low, answers, gain in ((0.0, 60, 0.8), (0.8, 4, 2.6))
    ]
    nothing = figure(None)
    report = ReplayReport(
        source="s",
        token_ids="the file's",
        answers=64,
        prompt_tokens=1,
        output_tokens=1,
        overlap=OverlapFigures(copied_share=nothing, bleu4=nothing),
        by_overlap=bins,
        settings=[],
        limits=[],
    )
    ((_, drawn),) = overlap_picture(report).drawn
    draw = drawn.panels[0].draw
    assert isinstance(draw, partial)
    data = draw.keywords["data"]
    assert data.rows == ("0.0–0.2 (60)", "0.8–1.0 (4)")
    assert data.values == ((0.8,), (None,)), "four answers would have the fullest colour of all"
