"""The repeat and the prompt of each row, and sums by both, compared with values by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.statistics import row_layout as module
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout, layout_of
from specbench_client.metrics import rows as tidy_rows
from specbench_client.metrics.rows import collect_tables
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER, iter_tidy
from specbench_testing.present import present
from specbench_testing.synthetic_records import frame_of, record, record_table
from specbench_testing.tables import table_of

NAN = float("nan")
REPEATS, PROMPTS = [3, 3, 5, 5, 5, 9], ["b", "a", "c", "b", "b", "a"]
CATEGORIES = [None, "y", "x", "x", "y", "x"]
VALUES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def layout(category: str = "category") -> RowLayout:
    """Repeats 3, 5 and 9 of the prompts a, b and c."""
    rows = {"repeat": REPEATS, "prompt_id": PROMPTS, "category": CATEGORIES, "other": "all"}
    return layout_of(table_of(pd.DataFrame(rows)), category)


def test_repeats_and_prompts_are_numbered_in_their_order() -> None:
    found = layout()
    assert found.shape == (found.repeats, found.prompts) == (3, 3)
    assert found.cell_of.tolist() == [0 * 3 + 1, 0, 3 + 2, 3 + 1, 3 + 1, 6]
    assert found.repeat_numbers.tolist() == [3, 5, 9]
    assert found.stratum_of.tolist() == [0, 0, 0], "each category has fewer than five prompts"


def test_a_prompt_has_its_first_known_category_and_categories_are_strata() -> None:
    rows = pd.DataFrame({"repeat": 0, "prompt_id": list("bbbdac"), "category": [None, "x", "y", "x", "z", None]})
    a, b, c, d = layout_of(table_of(rows)).category_of
    assert (b, c) == (d, -1)
    assert len({a, b, c}) == 3
    assert (layout("other").category_of >= 0).all()
    names = [f"{kind}{number}" for kind in "xyz" for number in range(5)]
    kinds = [None if name[0] == "z" else name[0] for name in names]
    frame = pd.DataFrame({"repeat": 0, "prompt_id": names[::-1], "category": kinds[::-1]})
    found = layout_of(table_of(frame))
    assert found.stratum_of.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert found.category_of[-5:].tolist() == [-1] * 5


def test_rows_that_are_read_in_several_pieces_have_the_same_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy_rows, "PIECE_ROWS", 1)
    records = [
        record(repeat=repeat, prompt_id=prompt, category=category)
        for repeat, prompt, category in zip(REPEATS, PROMPTS, CATEGORIES, strict=True)
    ]
    parts = [frame_of(some) for some in (records[:4], records[4:5], records[5:])]
    found, expected = layout_of(collect_tables(iter_tidy(map(record_table, parts)))), layout()
    assert found.cell_of.tolist() == expected.cell_of.tolist()
    assert found.repeat_numbers.tolist() == expected.repeat_numbers.tolist()
    codes = found.category_of.tolist()
    assert [codes.index(each) for each in codes] == [0, 1, 1], "a and b have that of their first row that has one"


@pytest.mark.parametrize("piece", [NUMBERS_TOGETHER, 2])
def test_values_are_summed_by_repeat_and_prompt(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS_TOGETHER", piece)
    assert layout().matrix(VALUES).tolist() == [[2, 1, 0], [0, 24, 4], [32, 0, 0]]


@pytest.mark.parametrize(
    ("selected", "prompts", "cells", "repeats", "numbers"),
    [
        ([1, 1, 1, 1, 1, 1], 3, [1, 0, 5, 4, 4, 6], [3, 5, 9], 3),
        ([0, 0, 1, 1, 1, 0], 2, [1, 0, 0], [5], 1),
        ([0, 1, 0, 0, 1, 1], 2, [0, 3, 4], [3, 5, 9], 3),
        ([0, 0, 0, 0, 0, 0], 0, [], [], 0),
    ],
)
def test_selected_rows_have_their_own_repeats_and_prompts(
    selected: list[int], prompts: int, cells: list[int], repeats: list[int], numbers: int
) -> None:
    whole, mask = replace(layout(), turns=np.array([1.0, -1.0, 1.0]), anytime=True), np.array(selected, np.bool_)
    found = whole.of_rows(mask)
    assert whole.prompts_of(mask) == found.prompts == prompts
    assert (found.cell_of.tolist(), found.repeat_numbers.tolist(), found.repeats) == (cells, repeats, numbers)
    assert found.category_of.size == found.stratum_of.size == prompts
    assert (present(found.turns).tolist(), found.anytime) == (
        present(whole.turns)[np.isin([3, 5, 9], repeats)].tolist(),
        True,
    )
    assert layout().of_rows(mask).turns is None


def test_servers_take_turns_by_the_number_of_the_repeat() -> None:
    turns = present(replace(layout(), repeat_numbers=np.array([3.0, 4.0, 9.0])).taking_turns().turns)
    assert turns.tolist() == [-1, 1, -1]


@pytest.mark.parametrize("sizes", [(6,), (1, 3, 2)])
def test_rows_that_lack_a_part_are_in_no_sum(sizes: tuple[int, ...]) -> None:
    over, under = VALUES.copy(), np.array([1.0, 1.0, NAN, 1.0, NAN, 1.0])
    over[5] = NAN
    sums, known, start = CellSums(layout(), 2), list[bool](), 0
    for size in sizes:
        known += sums.add([over[start : start + size], under[start : start + size]]).tolist()
        start += size
    assert known == [True, True, False, True, False, False]
    assert [each.tolist() for each in sums.matrices] == [
        [[2, 1, 0], [0, 8, 0], [0, 0, 0]],
        [[1, 1, 0], [0, 1, 0], [0, 0, 0]],
    ]
    assert sums.counts.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    among, matrices = sums.among_known()
    assert (among.repeat_numbers.tolist(), among.prompts, among.cell_of.size) == ([3, 5], 2, 0)
    assert [each.tolist() for each in matrices] == [[[2, 1], [0, 8]], [[1, 1], [0, 1]]]


def test_all_rows_with_their_parts_are_summed() -> None:
    sums = CellSums(layout(), 1)
    assert sums.add([VALUES]).all()
    assert sums.matrices[0].tolist() == layout().matrix(VALUES).tolist()
