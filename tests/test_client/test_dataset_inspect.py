"""`specbench dataset inspect`: duplicates, overlap, and a file with every kind of error."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.dataset.inspection import (
    LEAST_JACCARD,
    copied_share,
    distribution,
    exact_groups,
    near_groups,
)
from specbench_testing.present import present

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"


def words(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [f"w{generator.randrange(10_000)}" for _ in range(count)]


def shingles(text: str) -> set[tuple[str, ...]]:
    tokens = text.split()
    return {tuple(tokens[start : start + 5]) for start in range(max(1, len(tokens) - 4))}


def test_case_whitespace_and_width_do_not_distinguish_prompts() -> None:
    assert exact_groups(["Is  it\nso?", "is it so?", "ｉｓ it so?", "is it so"]) == [[0, 1, 2]]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(0, 1000))
@settings(deadline=None)
def test_near_duplicates_match_a_comparison_of_all_pairs(edits: list[int], seed: int) -> None:
    """The texts are three originals with copies that differ in some words."""
    texts = []
    for number, changed in enumerate(edits):
        text = words(seed + number % 3, 60)
        for place in range(changed):
            text[place * 20 + 1] = f"changed{number}"
        texts.append(" ".join(text))
    found = {place: group for group in near_groups(texts) for place in group}
    for first in range(len(texts)):
        for second in range(first):
            one, other = shingles(texts[first]), shingles(texts[second])
            if len(one & other) / len(one | other) >= LEAST_JACCARD:
                assert found[first] is found[second]
            if first % 3 != second % 3:
                assert found.get(first) is None or found[first] is not found.get(second)


def test_short_prompts_are_near_duplicates_only_with_equal_words() -> None:
    assert near_groups(["what is pi", "what is pi?", "what is e", "", "!!"]) == [[0, 1]]


def test_missing_token_table_is_rejected_or_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert inspect(tmp_path) == Exit.BAD_INPUT
    out = " ".join(capsys.readouterr().out.split())
    words = ("6 rows, 3 prompts, 4 turns", "placeholders: 1 (news 1)", "no o200k tokens: tiktoken's table")
    assert [each for each in words if each not in out] == []
    assert inspect(tmp_path, "--table", str(tmp_path / "none"), "--outputs", "source", "-o", "json") == 2
    assert "give the file o200k_base.tiktoken" in capsys.readouterr().err
    assert inspect(tmp_path, "--outputs", "source", "-o", "json") == Exit.BAD_INPUT
    assert "copiedShare" not in json.loads(capsys.readouterr().out)["overall"]


def test_distribution_of_values() -> None:
    found = present(distribution([1, 2, 3, 4]))
    assert (found.least, found.p50, found.most, found.mean, found.n) == (1, 2.5, 4, 2.5, 4)
    assert distribution([]) is None


def test_copied_share_counts_four_grams_of_the_prompt() -> None:
    prompt = "the quick brown fox jumps over the lazy dog"
    outputs = (prompt, "the quick brown fox sleeps", "nothing of that is here", "too short")
    assert [copied_share(prompt, each) for each in outputs] == [1.0, 0.5, 0.0, None]


ROWS: list[dict[str, object]] = [
    {
        "id": "a",
        "category": "qa",
        "prompt": "what is the answer to all of it",
        "output": "the answer to all of it is 42",
    },
    {"id": "a", "category": "qa", "prompt": "What is the  answer to all of it"},
    {"id": "b", "category": "chat", "turns": ["добрый день", "как дела"], "source": "own"},
    {"id": "c", "category": "chat", "turns": [f"{PLACEHOLDER}\n\n{{article}}"], "source": "news"},
    {"id": "d", "category": "chat", "prompt": ""},
    {"id": "e", "category": "chat"},
]


def inspect(tmp_path: Path, *further: str) -> int:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return exit_code(["dataset", "inspect", str(file), *further])


def test_all_problems_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", np.ones((3, 2)))
    assert inspect(tmp_path, "-o", "json", "--embeddings", str(tmp_path / "v.npy")) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert "a run would reject it: 2 of 6 rows are not valid prompts; ids used twice: a: correct" in printed.err
    report = json.loads(printed.out)
    assert (report["rows"], report["prompts"], report["turns"], report["multiTurn"]) == (6, 3, 4, 1)
    assert report["placeholders"] == {"rows": 1, "byCategory": {"chat": 1}, "bySource": {"news": 1}, "first": ["c"]}
    assert report["unusable"]["rows"] == 2
    assert "line 5: prompt is empty" in report["unusable"]["first"][0]
    assert report["duplicateIds"] == ["a"]
    assert report["exactDuplicates"] == {"groupsInAll": 1, "extra": 1, "groups": [["a", "a"]]}
    assert report["embeddings"] == str(tmp_path / "v.npy")
    chat, qa = report["categories"]
    assert "similarity" not in chat
    assert qa["similarity"] == pytest.approx(1)
    assert qa["copiedShare"]["n"] == 1
    assert 0 < qa["copiedShare"]["p50"] < 1


def test_remedy_of_a_file_without_prompts_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"id": id_, "text": "hello"}) + "\n" for id_ in (1, 2)))
    assert exit_code(["dataset", "inspect", str(file)]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out.count("not a valid prompt:") == 2
    assert printed.out.count("rename the column that contains the prompt's text to `prompt`") == 1
    assert "2 of 2 rows are not valid prompts" in printed.err


def test_rows_that_the_source_leaves_out_do_not_reject_the_file(tmp_path: Path) -> None:
    human, gpt = {"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}
    file = tmp_path / "in.jsonl"
    file.write_text(
        "".join(json.dumps({"id": str(len(said)), "conversations": said}) + "\n" for said in ([human, gpt], [gpt]))
    )
    arguments = ["dataset", "inspect", str(file), "--source", "sharegpt"]
    assert exit_code(arguments) == Exit.OK
