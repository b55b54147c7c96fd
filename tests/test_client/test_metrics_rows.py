"""A table gives the same results in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.metrics import rows as tables
from specbench_client.metrics.pairing import iter_by_prompt
from specbench_client.metrics.rows import Table, collect_tables, group_numbers, join_rows, join_tables, repeated_rows
from specbench_client.metrics.tidy_frame import (
    any_known,
    chain_history,
    iter_tidy,
    steady_rows,
    text_digests,
    text_hashes,
    tidy,
)
from specbench_client.numpy_columns import Mask, TextCodes
from specbench_client.store.scratch import StoredColumn
from specbench_testing.synthetic_records import SyntheticRun, frame_of, record, record_table, tidy_frames
from specbench_testing.tables import assert_same_table, filled

PIECE_ROWS = 7
"""Small, so that a point has several pieces."""
WORLD = SyntheticRun(prompts=12, concurrency=(3,), repeats=2)
POINTS = [point.hash for point in WORLD.plan.points if point.arm == "ngram"]


def records(point: str) -> pd.DataFrame:
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    failed = frame_of([record(error_class="timeout", output_sha256=None, category=None, chunk_ns=None)])
    return pd.concat([frame.iloc[:9], failed.assign(phase="steady"), frame.iloc[9:]], ignore_index=True)


def collected() -> Table:
    """Return both points, collected from parts of five records."""
    frames = [(records(point), point) for point in POINTS]
    parts = [([frame.iloc[start : start + 5] for start in range(0, len(frame), 5)], point) for frame, point in frames]
    return collect_tables(table for frames, point in parts for table in iter_tidy(map(record_table, frames), point))


def whole() -> Table:
    return join_tables([tidy_frames([records(point)], point) for point in POINTS])


@pytest.fixture(params=[PIECE_ROWS, 1_000], ids=["disk", "memory"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(tables, "PIECE_ROWS", request.param)
    found = collected()
    on_disk = {isinstance(column, StoredColumn) for column in found.columns.values()}
    assert on_disk == {request.param == PIECE_ROWS}
    return found


def test_columns_keep_their_type_and_missing_values(rows: Table) -> None:
    expected = whole()
    assert len(rows) == len(expected)
    assert_same_table(rows.table(expected.columns), expected)
    assert "edge_ns" in rows
    assert "point" in rows
    assert "chunk_ns" not in rows


@pytest.mark.parametrize(
    "mine",
    [
        lambda rows: np.ones(len(rows), dtype=np.bool_),
        lambda rows: np.zeros(len(rows), dtype=np.bool_),
        lambda rows: np.arange(len(rows)) % 3 == 1,
        lambda rows: np.arange(len(rows)) < 4,
        lambda rows: rows.codes("point").by_row == POINTS[1],
    ],
    ids=["all", "none", "every third", "the first", "of one point"],
)
def test_selected_rows_equal_those_of_the_table(rows: Table, mine: Callable[[Table], Mask]) -> None:
    expected = whole()
    chosen, same = rows.among(mine(expected)), expected.among(mine(expected))
    assert_same_table(chosen.table(expected.columns), same)
    twice = np.arange(len(chosen)) % 2 == 0
    assert_same_table(chosen.among(twice).table(expected.columns), same.among(twice))
    assert_same_table(rows.at(np.arange(len(rows))[::-1]), expected.at(np.arange(len(rows))[::-1]))
    assert_same_table(join_tables(list(chosen.pieces())), same)
    assert [len(each) for each in chosen.by_point()] == [len(each) for each in same.by_point()]


def test_pieces_give_the_same_sums_as_the_table(rows: Table) -> None:
    expected = whole()
    names = ["tokens", "phase"]
    assert_same_table(steady_rows(rows).table(names), steady_rows(expected).table(names))
    for name in ("accepted_of_steps", "walk"):
        *pieces, whole_lists = (each.lists(name) for each in (*rows.pieces(), expected))
        sums = np.concatenate([lists.sums(lists.entries[:, 1]) for lists in pieces])
        np.testing.assert_array_equal(sums, whole_lists.sums(whole_lists.entries[:, 1]))
    assert any_known(rows, "walk")
    assert not any_known(rows, "text_bytes")


def test_point_without_records_has_all_columns_and_no_rows() -> None:
    rows = collect_tables(iter_tidy([], "h"))
    assert len(rows) == 0
    assert_same_table(rows.table(tidy([]).columns), tidy([]))
    assert list(rows.by_point()) == []
    assert [len(piece) for piece in rows.pieces()] == [0]


def test_columns_can_be_replaced(rows: Table) -> None:
    chosen = rows.among(np.arange(len(rows)) % 3 == 1)
    for each in (rows, chosen):
        values = filled(Table({"steps": np.arange(len(each)) + 0.5}), acceptance_source=None)
        replaced = each.assign(**values.columns)
        assert_same_table(replaced.table(values.columns), values)
        assert_same_table(replaced.table(["tokens"]), each.table(["tokens"]))


KEYS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, np.nan])), max_size=8)


def keyed(keys: list[tuple[str, float]]) -> Table:
    return Table({"text": TextCodes.of([text for text, _ in keys]), "number": np.array([number for _, number in keys])})


@given(KEYS, KEYS)
def test_rows_are_joined_by_every_equal_key(mine: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> None:
    left, right = join_rows(keyed(mine), keyed(theirs), ["text", "number"])
    expected = [(i, j) for i, one in enumerate(mine) for j, other in enumerate(theirs) if repr(one) == repr(other)]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected


@given(KEYS)
def test_equal_rows_have_equal_numbers_and_repeat_the_first(keys: list[tuple[str, float]]) -> None:
    rows, names = keyed(keys), [repr(key) for key in keys]
    numbers = group_numbers(rows.column("text"), rows.column("number")).tolist()
    assert len(set(zip(numbers, names, strict=True))) == len(set(numbers)) == len(set(names))
    repeated = repeated_rows(rows.column("text"), rows.column("number"))
    assert repeated.tolist() == [name in names[:at] for at, name in enumerate(names)]


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30), st.integers(1, 9))
def test_iteration_by_prompt_covers_all_rows_and_splits_no_prompt(
    mine: list[int], theirs: list[int], most: int
) -> None:
    sides = [Table({"prompt_id": TextCodes.of([f"p{each}" for each in side])}) for side in (mine, theirs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specbench_client.metrics.pairing.BUCKET_ROWS", most)
        found = list(iter_by_prompt(sides))
    prompts = [
        {name for side, places in zip(sides, each, strict=True) for name in side.codes("prompt_id")[places].by_row}
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
