"""Rows in a column store give the same results as the data frame they were stored from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.column_buffers import ColumnStoreFactory, MemoryColumnStore
from specbench_client.metrics import rows as blocks_module
from specbench_client.metrics.pairing import iter_by_prompt
from specbench_client.metrics.rows import (
    RowBlock,
    Rows,
    TextVocabulary,
    iter_pieces,
    read_columns,
    replace_columns,
    rows_at,
    select_rows,
    store_rows,
)
from specbench_client.metrics.tidy_frame import (
    any_known,
    chain_history,
    iter_point_frames,
    iter_tidy,
    steady_rows,
    step_walks,
    tally,
    text_digests,
    text_hashes,
    tidy,
)
from specbench_client.ragged import Mask
from specbench_client.store.scratch import DiskColumnStore
from specbench_testing.synthetic_records import SyntheticRun, frame_of, record

BLOCK_ROWS = 7
"""Small, so that a point has several blocks."""
WORLD = SyntheticRun(prompts=12, concurrency=(3,), repeats=2)
POINTS = [point.hash for point in WORLD.plan.points if point.arm == "ngram"]


def records(point: str) -> pd.DataFrame:
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    failed = frame_of([record(error_class="timeout", output_sha256=None, category=None, chunk_ns=None)])
    return pd.concat([frame.iloc[:9], failed.assign(phase="steady"), frame.iloc[9:]], ignore_index=True)


def stored(new_store: ColumnStoreFactory) -> Rows:
    """Return both points, stored from parts of five records."""
    store, vocabularies, blocks = new_store(), dict[str, TextVocabulary](), list[RowBlock]()
    for point in POINTS:
        frame = records(point)
        parts = [frame.iloc[start : start + 5] for start in range(0, len(frame), 5)]
        blocks += store_rows(iter_tidy(parts, point), point, store, vocabularies)
    return Rows(blocks)


def whole() -> pd.DataFrame:
    return pd.concat([tidy([records(point)], point) for point in POINTS], ignore_index=True)


@pytest.fixture(params=[MemoryColumnStore, DiskColumnStore])
def new_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ColumnStoreFactory:
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", BLOCK_ROWS)
    made: ColumnStoreFactory = request.param
    return made


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(found.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))


def test_stored_columns_keep_their_type_and_missing_values(new_store: ColumnStoreFactory) -> None:
    rows, expected = stored(new_store), whole()
    assert len(rows.blocks) > len(POINTS)
    assert len(rows) == len(expected)
    assert_same(read_columns(rows, expected.columns), expected)
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
def test_selected_rows_equal_those_of_the_frame(
    new_store: ColumnStoreFactory, mine: Callable[[pd.DataFrame], Mask]
) -> None:
    rows, expected = stored(new_store), whole()
    chosen = select_rows(rows, mine(expected))
    assert_same(read_columns(chosen, expected.columns), select_rows(expected, mine(expected)))
    twice = np.arange(len(chosen)) % 2 == 0
    assert_same(
        read_columns(select_rows(chosen, twice), expected.columns),
        select_rows(select_rows(expected, mine(expected)), twice),
    )
    assert sum(len(piece) for piece in iter_pieces(chosen)) == len(chosen)
    assert [len(each) for each in iter_point_frames(chosen, ["tokens"])] == [
        len(each) for each in iter_point_frames(select_rows(expected, mine(expected)), ["tokens"])
    ]


def test_stored_rows_give_the_same_columns_as_the_frame(new_store: ColumnStoreFactory) -> None:
    rows, expected = stored(new_store), whole()
    assert_same(read_columns(steady_rows(rows), ["tokens", "phase"]), steady_rows(expected)[["tokens", "phase"]])
    for look in (lambda each: tally(each, "accepted_of_steps"), step_walks):
        sums = [look(piece).sums(look(piece).fields[1]) for piece in iter_pieces(rows)]
        np.testing.assert_array_equal(np.concatenate(sums), look(expected).sums(look(expected).fields[1]))
    assert any_known(rows, "walk")
    assert not any_known(rows, "text_bytes")


def test_point_without_records_has_all_columns_and_no_rows(new_store: ColumnStoreFactory) -> None:
    rows = Rows(store_rows(iter_tidy([], "h"), "h", new_store(), {}))
    assert len(rows) == 0
    assert read_columns(rows, tidy([]).columns).dtypes.to_dict() == tidy([]).dtypes.to_dict()
    assert list(iter_point_frames(rows, ["tokens"])) == []
    assert [len(piece) for piece in iter_pieces(rows)] == [0]


def test_columns_can_be_replaced(new_store: ColumnStoreFactory) -> None:
    rows, store, vocabularies = stored(new_store), new_store(), dict[str, TextVocabulary]()
    first = rows.blocks[0]
    digests = pd.DataFrame({"steps": np.full(first.size, 3.0), "acceptance_source": [None] * first.size}, dtype=object)
    replaced = Rows([replace_columns(first, digests.astype({"steps": np.float64}), store, vocabularies)])
    assert set(replaced["steps"]) == {3.0}
    assert set(replaced["acceptance_source"]) == {None}
    assert replaced["tokens"].tolist() == rows["tokens"].tolist()[: first.size]


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30), st.integers(1, 9))
def test_iteration_by_prompt_covers_all_rows_and_splits_no_prompt(
    mine: list[int], theirs: list[int], most: int
) -> None:
    sides = [pd.DataFrame({"prompt_id": [f"p{each}" for each in side]}, dtype=object) for side in (mine, theirs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specbench_client.metrics.pairing.BUCKET_ROWS", most)
        found = list(iter_by_prompt(sides))
    prompts = [
        {name for side, places in zip(sides, each, strict=True) for name in rows_at(side, places)["prompt_id"]}
        for each in found
    ]
    for number, side in enumerate((mine, theirs)):
        assert sorted(np.concatenate([each[number] for each in found]).tolist()) == list(range(len(side)))
    together = [name for each in prompts for name in sorted(each)]
    assert together == sorted(set(together))
    assert all(len(each) == 1 or sum(map(len, places)) <= most for each, places in zip(prompts, found, strict=True))


def test_digests_distinguish_texts_and_keep_missing_values() -> None:
    digests = text_digests(["a", "b", None, "a", ""])
    assert digests[0] == digests[3] != digests[1]
    assert np.isnan(digests).tolist() == [False, False, True, False, False]
    assert (digests[~np.isnan(digests)] == np.floor(digests[~np.isnan(digests)])).all()
    assert np.nanmax(digests) < 2**53
    assert len(set(text_hashes(f"p{number}#0" for number in range(10_000)))) == 10_000


def test_history_depends_on_the_order_of_replies() -> None:
    none, one, two = np.zeros(1), text_digests(["one"]), text_digests(["two"])
    first = chain_history(none, one)
    assert chain_history(first, two) == chain_history(chain_history(none, one), two)
    assert len({float(each[0]) for each in (none, first, chain_history(none, two), chain_history(first, two))}) == 4
    assert chain_history(first, two) != chain_history(chain_history(none, two), one)
    assert np.isnan(chain_history(first, np.array([np.nan])))
    assert np.isnan(chain_history(np.array([np.nan]), one))
