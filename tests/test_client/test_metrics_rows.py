"""Rows that are laid down column by column answer as the data frame does that they were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.metrics import blocks as blocks_module
from specbench_client.metrics.blocks import Block, Words, laid_down, with_columns
from specbench_client.metrics.digests import chained, digests, names
from specbench_client.metrics.frame import any_told, by_point, steady, tally, tidied, tidy, walks
from specbench_client.metrics.prompts import by_prompt
from specbench_client.metrics.rows import Rows, among, at, pieces, read
from specbench_client.packed import Mask
from specbench_client.shelf import MemoryShelf, Shelves
from specbench_client.store.shelf import DiskShelf
from specbench_testing.records import World, frame_of, record

BLOCK_ROWS = 7
"""So that a point has several blocks."""
WORLD = World(prompts=12, concurrency=(3,), repeats=2)
POINTS = [point.hash for point in WORLD.plan.points if point.arm == "ngram"]
ARRAYS = ["edge_ns", "edge_tokens"]


def records(point: str) -> pd.DataFrame:
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    failed = frame_of([record(error_class="timeout", output_sha256=None, category=None, chunk_ns=None)])
    return pd.concat([frame.iloc[:9], failed.assign(phase="steady"), frame.iloc[9:]], ignore_index=True)


def laid(shelves: Shelves) -> Rows:
    """Both points, cut into parts of five records."""
    shelf, words, blocks = shelves(), dict[str, Words](), list[Block]()
    for point in POINTS:
        frame = records(point)
        parts = [frame.iloc[begun : begun + 5] for begun in range(0, len(frame), 5)]
        blocks += laid_down(tidied(parts, point), point, shelf, words)
    return Rows(blocks)


def whole() -> pd.DataFrame:
    return pd.concat([tidy([records(point)], point) for point in POINTS], ignore_index=True)


@pytest.fixture(params=[MemoryShelf, DiskShelf])
def shelves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shelves:
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", BLOCK_ROWS)
    made: Shelves = request.param
    return made


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(found.columns) == list(expected.columns)
    plain = [name for name in expected if name not in ARRAYS]
    pd.testing.assert_frame_equal(found[plain], expected[plain].reset_index(drop=True))
    for name in set(ARRAYS) & set(expected):
        for mine, theirs in zip(found[name], expected[name], strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or mine.tolist() == theirs.tolist()


def test_every_column_comes_back_with_its_type_and_what_is_missing(shelves: Shelves) -> None:
    rows, expected = laid(shelves), whole()
    assert len(rows.blocks) > len(POINTS)
    assert len(rows) == len(expected)
    assert_same(read(rows, expected.columns), expected)
    assert "edge_ns" in rows
    assert "point" in rows
    assert "request_id" not in rows


@pytest.mark.parametrize(
    "mine",
    [
        lambda rows: np.ones(len(rows), dtype=np.bool_),
        lambda rows: np.zeros(len(rows), dtype=np.bool_),
        lambda rows: np.arange(len(rows)) % 3 == 1,
        lambda rows: np.arange(len(rows)) < 4,
        lambda rows: (rows["point"] == POINTS[1]).to_numpy(np.bool_),
    ],
    ids=["all", "none", "every third", "of one block", "of one point"],
)
def test_chosen_rows_are_those_of_the_frame(shelves: Shelves, mine: Callable[[pd.DataFrame], Mask]) -> None:
    rows, expected = laid(shelves), whole()
    chosen = among(rows, mine(expected))
    assert_same(read(chosen, expected.columns), among(expected, mine(expected)))
    twice = np.arange(len(chosen)) % 2 == 0
    assert_same(read(among(chosen, twice), expected.columns), among(among(expected, mine(expected)), twice))
    assert sum(len(piece) for piece in pieces(chosen)) == len(chosen)
    assert [len(each) for each in by_point(chosen, ["tokens"])] == [
        len(each) for each in by_point(among(expected, mine(expected)), ["tokens"])
    ]


def test_what_figures_ask_of_a_frame_is_the_same(shelves: Shelves) -> None:
    rows, expected = laid(shelves), whole()
    assert_same(read(steady(rows), ["tokens", "phase"]), steady(expected)[["tokens", "phase"]])
    for look in (lambda each: tally(each, "accepted_of_steps"), walks):
        sums = [look(piece).sums(look(piece).fields[1]) for piece in pieces(rows)]
        np.testing.assert_array_equal(np.concatenate(sums), look(expected).sums(look(expected).fields[1]))
    assert any_told(rows, "walk")
    assert not any_told(rows, "text_bytes")


def test_a_point_without_records_has_rows_of_every_column_and_none_of_them(shelves: Shelves) -> None:
    rows = Rows(laid_down(tidied([], "h"), "h", shelves(), {}))
    assert len(rows) == 0
    assert read(rows, tidy([]).columns).dtypes.to_dict() == tidy([]).dtypes.to_dict()
    assert list(by_point(rows, ["tokens"])) == []
    assert [len(piece) for piece in pieces(rows)] == [0]


def test_a_column_may_be_laid_down_anew(shelves: Shelves) -> None:
    rows, shelf, words = laid(shelves), shelves(), dict[str, Words]()
    first = rows.blocks[0]
    told = pd.DataFrame({"steps": np.full(first.size, 3.0), "acceptance_source": [None] * first.size}, dtype=object)
    anew = Rows([with_columns(first, told.astype({"steps": np.float64}), shelf, words)])
    assert set(anew["steps"]) == {3.0}
    assert set(anew["acceptance_source"]) == {None}
    assert anew["tokens"].tolist() == rows["tokens"].tolist()[: first.size]


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30), st.integers(1, 9))
def test_a_few_prompts_at_a_time_are_all_rows_and_no_prompt_is_parted(
    mine: list[int], theirs: list[int], most: int
) -> None:
    sides = [pd.DataFrame({"prompt_id": [f"p{each}" for each in side]}, dtype=object) for side in (mine, theirs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specbench_client.metrics.prompts.BUCKET_ROWS", most)
        found = list(by_prompt(sides))
    prompts = [
        {name for side, places in zip(sides, each, strict=True) for name in at(side, places)["prompt_id"]}
        for each in found
    ]
    for number, side in enumerate((mine, theirs)):
        assert sorted(np.concatenate([each[number] for each in found]).tolist()) == list(range(len(side)))
    together = [name for each in prompts for name in sorted(each)]
    assert together == sorted(set(together))
    assert all(len(each) == 1 or sum(map(len, places)) <= most for each, places in zip(prompts, found, strict=True))


def test_digests_tell_texts_apart_and_keep_what_is_missing() -> None:
    told = digests(["a", "b", None, "a", ""])
    assert told[0] == told[3] != told[1]
    assert np.isnan(told).tolist() == [False, False, True, False, False]
    assert (told[~np.isnan(told)] == np.floor(told[~np.isnan(told)])).all()
    assert np.nanmax(told) < 2**53
    assert len(set(names(f"p{number}#0" for number in range(10_000)))) == 10_000


def test_a_history_is_the_replies_in_their_order() -> None:
    none, one, two = np.zeros(1), digests(["one"]), digests(["two"])
    first = chained(none, one)
    assert chained(first, two) == chained(chained(none, one), two)
    assert len({float(each[0]) for each in (none, first, chained(none, two), chained(first, two))}) == 4
    assert chained(first, two) != chained(chained(none, two), one)
    assert np.isnan(chained(first, np.array([np.nan])))
    assert np.isnan(chained(np.array([np.nan]), one))
