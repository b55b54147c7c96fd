"""examples/prompts.jsonl, the prompt set of the demo and the README: format, size and diversity."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


def turns(row: dict[str, Any]) -> list[str]:
    return list(row["turns"]) if "turns" in row else [row["prompt"]]


def words(row: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(turns(row)).lower()))


def test_rows_have_an_id_a_category_and_either_a_prompt_or_turns() -> None:
    for row in rows():
        assert set(row) in ({"id", "category", "prompt"}, {"id", "category", "turns"}), row["id"]
        assert all(isinstance(turn, str) and turn == turn.strip() and turn for turn in turns(row)), row["id"]
        assert re.fullmatch(rf"{row['category']}-[1-9]\d*", row["id"])
        assert 60 <= sum(map(len, turns(row))) <= 2500, row["id"]
        assert len(words(row)) >= 15, row["id"]


def test_ids_are_unique_and_at_least_eight_categories_have_equal_sizes_and_conversations() -> None:
    sizes = Counter(row["category"] for row in rows())
    assert len(sizes) >= 8
    assert set(sizes.values()) == {6}
    assert len({row["id"] for row in rows()}) == len(rows())
    assert sum(len(turns(row)) == 2 for row in rows()) >= 5


def test_no_two_prompts_of_a_category_are_nearly_the_same() -> None:
    for one, two in itertools.combinations(rows(), 2):
        similarity = len(words(one) & words(two)) / len(words(one) | words(two))
        assert similarity < 0.6 or one["category"] != two["category"], (one["id"], two["id"])
