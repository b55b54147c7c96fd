"""examples/prompts.jsonl, the prompt set of the demo and the README: format, size and diversity."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


def turns(row: dict[str, Any]) -> list[str]:
    return list(row["turns"]) if "turns" in row else [row["prompt"]]


def words(row: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(turns(row)).lower()))


def pairs_of_a_category() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((one, two) for one, two in itertools.combinations(rows(), 2) if one["category"] == two["category"])


def test_rows_have_an_id_a_category_and_either_a_prompt_or_turns() -> None:
    for row in rows():
        assert set(row) in ({"id", "category", "prompt"}, {"id", "category", "turns"}), row["id"]
        assert all(isinstance(turn, str) and turn == turn.strip() and turn for turn in turns(row)), row["id"]
        assert re.fullmatch(rf"{row['category']}-[1-9]\d*", row["id"])


def test_ids_are_unique() -> None:
    assert [row_id for row_id, times in Counter(row["id"] for row in rows()).items() if times > 1] == []


def test_there_are_at_least_eight_categories_of_equal_size() -> None:
    sizes = Counter(row["category"] for row in rows())
    assert len(sizes) >= 8
    assert set(sizes.values()) == {6}


def test_some_rows_are_conversations() -> None:
    assert sum(len(turns(row)) == 2 for row in rows()) >= 5


def test_no_two_prompts_of_a_category_are_nearly_the_same() -> None:
    for one, two in pairs_of_a_category():
        similarity = len(words(one) & words(two)) / len(words(one) | words(two))
        assert similarity < 0.6, (one["id"], two["id"])


def test_prompts_are_between_60_and_2500_characters_long() -> None:
    for row in rows():
        assert 60 <= sum(map(len, turns(row))) <= 2500, row["id"]
        assert len(words(row)) >= 15, row["id"]
