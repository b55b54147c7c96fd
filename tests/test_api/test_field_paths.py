"""Field paths: the same syntax for `--set` and for a campaign's axes."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.spec.field_paths import found, numbered, path_of, replaced, steps_of

DATA: dict[str, Any] = {"load": {"repeats": 3}, "rows": [{"name": "a", "x": 1}, {"name": "b", "x": 2}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("load.repeats", ("load", "repeats")),
        ("rows[0].x", ("rows", "0", "x")),
        ("rows[name=b].x", ("rows", "name=b", "x")),
        ('placement.nodeSelector["nvidia.com/gpu.product"]', ("placement", "nodeSelector", "nvidia.com/gpu.product")),
    ],
)
def test_a_path_is_split_into_steps(path: str, steps: tuple[str, ...]) -> None:
    assert steps_of(path) == steps
    assert path_of(steps) == path, "and written back"


def test_two_spellings_of_a_path_have_one_canonical_form() -> None:
    assert path_of(steps_of('placement["nodeSelector"].gpu')) == path_of(steps_of("placement.nodeSelector[gpu]"))


def test_the_value_at_a_path_is_replaced_in_a_copy() -> None:
    assert replaced(DATA, steps_of("rows[name=a].x"), 9)["rows"][0] == {"name": "a", "x": 9}
    assert replaced(DATA, steps_of("new.deep.x"), 1)["new"] == {"deep": {"x": 1}}
    assert replaced(DATA, (), 1) == 1
    assert DATA["rows"][0]["x"] == 1
    assert found(DATA, steps_of("rows[1].x")) == 2


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rows[7].x", "'7' is not the index of a row; rows: 0 [(]a[)], 1 [(]b[)]"),
        ("rows[name=b].x", "2 rows have name 'b' instead of exactly one"),
        ("rows[name=z].x", "0 rows have name 'z'"),
    ],
)
def test_a_missing_or_ambiguous_row_is_reported(path: str, expected: str) -> None:
    with pytest.raises(LookupError, match=expected):
        replaced(DATA, steps_of(path), 1)
    with pytest.raises(LookupError, match=expected):
        found(DATA, steps_of(path))


@pytest.mark.parametrize("path", ["load.repeats.x", "nowhere", "rows[0].y"])
def test_a_missing_value_raises_lookup_error(path: str) -> None:
    with pytest.raises(LookupError):
        found(DATA, steps_of(path))


@pytest.mark.parametrize(
    ("path", "same"), [("rows[name=a].x", "rows[0].x"), ("load.repeats", "load.repeats"), ("gone[0].x", "gone[0].x")]
)
def test_two_paths_to_the_same_field_become_equal(path: str, same: str) -> None:
    assert numbered(DATA, steps_of(path)) == steps_of(same)
