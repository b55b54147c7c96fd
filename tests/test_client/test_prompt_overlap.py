"""Overlap bins: every answer is in one bin per measure, and an arm's speed-up is that of its prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.what_if.prompt_overlap import (
    BIN_EDGES,
    AnswerOverlaps,
    bin_indexes,
    overlap_bins,
)

SHARES = st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=30)


@given(SHARES)
def test_every_answer_with_an_overlap_is_in_exactly_one_bin(values: list[float]) -> None:
    array = np.array(values)
    found = overlap_bins(
        AnswerOverlaps(["p"] * len(values), {"copied_share": array, "bleu4": np.full(len(values), np.nan)})
    )
    assert {each.by for each in found} <= {"copied_share"}
    answers_per_value = np.sum([each.answers for each in found], axis=0) if found else np.zeros(len(values))
    assert answers_per_value.tolist() == (~np.isnan(array)).astype(int).tolist()
    for each in found:
        assert ((array[each.answers] >= each.low) & (array[each.answers] <= each.high)).all()


@pytest.mark.parametrize(("value", "place"), [(0.0, 0), (0.2, 1), (0.79, 3), (1.0, len(BIN_EDGES) - 2)])
def test_bin_edge_belongs_to_the_bin_above_and_1_to_the_last(value: float, place: int) -> None:
    assert bin_indexes(np.array([value])).tolist() == [place]


def test_overlap_of_a_prompt_is_the_mean_of_its_known_answers() -> None:
    values = np.array([0.2, 0.6, np.nan, np.nan])
    found = AnswerOverlaps(["a", "a", "a", "b"], {"copied_share": values, "bleu4": values})
    assert found.of_prompts("bleu4") == {"a": pytest.approx(0.4)}
