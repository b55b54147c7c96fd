"""Positions of an answer's steps, checked by hand and for any list of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specbench_client.metrics.chunks_and_steps import (
    ANSWER,
    CONTEXTS,
    POSITIONS,
    REASONING,
    UNKNOWN,
    encode_classes,
    expand_classes,
)
from specbench_testing.synthetic_records import NS_PER_MS, frame_of, record, tidy_frames

Walk = NDArray[np.int32]
"""Shape (5, entries): class of position, class of context, part, number of steps, and tokens that they emitted."""
STEPS = st.lists(st.integers(0, 5), max_size=200)


def walks(*answers: dict[str, Any]) -> list[Walk | None]:
    records = [record(**{"acceptance_source": "per_step", **answer}) for answer in answers]
    kept = tidy_frames([frame_of(records)]).lists("walk").arrays()
    return [None if each is None else expanded(each.T.astype(np.int32)) for each in kept]


def expanded(kept: NDArray[np.int32]) -> Walk:
    return np.stack([*expand_classes(kept[0]), *kept[1:]]).astype(np.int32)


def answer(accepted: list[int], **edits: Any) -> dict[str, Any]:
    tokens = 1 + sum(accepted) + len(accepted)
    fields = {"output_tokens": tokens, "steps": len(accepted), "step_accepted": accepted, "input_tokens": 250}
    return {**fields, "chunk_tokens": None, **edits}


def expected(accepted: list[int], inputs: int, thoughts: int) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return the same sums, computed step by step."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    position = 1
    for drafts in accepted:
        places = (
            max(code for code, low in enumerate(POSITIONS) if low <= position),
            max(code for code, low in enumerate(CONTEXTS) if low <= inputs + position),
            REASONING if position < thoughts else ANSWER,
        )
        steps, tokens = found.get(places, (0, 0))
        found[places] = (steps + 1, tokens + drafts + 1)
        position += drafts + 1
    return found


def test_short_walk_matches_a_calculation_by_hand() -> None:
    (walk,) = walks(answer([9, 0, 5, 0], reasoning_tokens=12))
    assert walk is not None
    assert walk.T.tolist() == [
        [0, 0, REASONING, 1, 10],  # at 1
        [0, 1, REASONING, 1, 1],  # at 11: 250 + 11 tokens precede it
        [0, 1, ANSWER, 1, 6],  # at 12
        [1, 1, ANSWER, 1, 1],  # at 18
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 600), st.integers(0, 300)), min_size=1, max_size=4))
def test_locating_all_rows_at_once_equals_locating_each_row(rows: list[tuple[list[int], int, int]]) -> None:
    located = walks(
        *(answer(steps, input_tokens=inputs, reasoning_tokens=thoughts) for steps, inputs, thoughts in rows)
    )
    for walk, (steps, inputs, thoughts) in zip(located, rows, strict=True):
        assert walk is not None
        sums = {tuple(places): (count, tokens) for *places, count, tokens in walk.T.tolist()}
        assert sums == expected(steps, inputs, thoughts)


def test_steps_without_drafts_are_located_by_chunks() -> None:
    chunks = {"chunk_tokens": [1, 3, 1, 2], "chunk_ns": [NS_PER_MS * at for at in (50, 60, 70, 80)]}
    undrafted = {"output_tokens": 7, "steps": 3, "step_accepted": [2, 1]}
    placed, merged, prefilled_with_a_step = walks(
        answer([], **undrafted, **chunks),
        answer([], **undrafted, **{**chunks, "chunk_tokens": [1, 4, 2], "chunk_ns": chunks["chunk_ns"][:3]}),
        answer([], **undrafted, **{**chunks, "chunk_tokens": [3, 1, 1, 2]}),
    )
    assert placed is not None
    assert placed[3:].sum(axis=1).tolist() == [3, 6]
    assert (merged, prefilled_with_a_step) == (None, None)


@pytest.mark.parametrize(
    "edits",
    [
        {"steps": None},
        {"output_tokens": None, "output_tokens_client": None},
        {"output_tokens": 9},
        {"step_accepted": [1, 1, 1, 1]},
        {"step_accepted": None},
        {"acceptance_source": None},
        {"phase": "ramp"},
        {"error_class": "reset"},
    ],
    ids=str,
)
def test_walk_that_does_not_end_at_the_last_token_is_rejected(edits: dict[str, Any]) -> None:
    whole, other = walks(answer([2, 0, 1]), answer([2, 0, 1], **edits))
    assert whole is not None
    assert other is None


def test_unknown_context_and_part_are_marked() -> None:
    (walk,) = walks(answer([2, 0, 1], input_tokens=None, reasoning_tokens=None))
    assert walk is not None
    assert walk.T.tolist() == [[0, UNKNOWN, UNKNOWN, 3, 6]]


def test_answer_of_one_token_has_an_empty_walk() -> None:
    (walk,) = walks(answer([]))
    assert walk is not None
    assert walk.shape == (5, 0)


def test_length_of_a_walk_is_bounded_by_the_number_of_classes() -> None:
    (walk,) = walks(answer([0] * 100_000))
    assert walk is not None
    assert walk.shape[1] <= len(POSITIONS) + len(CONTEXTS)
    assert int(walk[3].sum()) == 100_000
    assert np.all(np.diff(walk[0]) >= 0)


@given(st.lists(st.tuples(*(st.integers(-1, len(each) - 1) for each in (POSITIONS, CONTEXTS)), st.integers(-1, 1))))
def test_classes_are_encoded_reversibly(places: list[tuple[int, int, int]]) -> None:
    walk = np.array([(*each, 3, 7) for each in places], dtype=np.int32).reshape(-1, 5).T
    assert expanded(np.stack([encode_classes(*walk[:3]), *walk[3:]])).tolist() == walk.tolist()
