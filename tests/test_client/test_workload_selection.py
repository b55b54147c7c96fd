"""Prompt selection: filters, counts, mixes and lengths, and identical results on every machine."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset, Member, Source
from specbench_client.chat import ChatMessage
from specbench_client.documents.prompt_coverage import MemberCoverage
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import EncodingMissing, measure_lengths
from specbench_client.workload.prompts import Prompts, load_prompts, select_prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.selection import turns_of

SESSIONS = {"turns": 2, "turnTokens": 40, "answerTokens": 8, "sharedPrefixTokens": 16}
GOLDEN = {
    "jsonl": "1a0f491243089548307e6694674abcd861888c3b620ae6f260fb66161f4aa240",
    "count 7, seed 3": "29017732d3dc3b382c020be02318ccadd071dcb78343745922b29c57705f527f",
    "gpqa, seed 5": "50b77b9fcce27ff89c8a03c6ca0cfa13388bf854861a330d13f9b6681c4c719d",
    "mix": "d88ccb5562ea1ffc91d3fc783f72d1252a7a5b7b275c25717cac90ad3c694187",
    "sessions": "1fee528538f3237e2a8482504ef5cfbee8c9847d21aa9a675283a1b2cf2f2473",
}
"""SHA-256 of selected prompts; every machine, Python version and row order must select the same."""


class WordEncoding:
    """An encoding with one token per word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0 for _ in text.split()]


def speed(number: int, **columns: Any) -> PromptRow:
    row = {
        "question_id": f"s{number:03}",
        "category": ("low_entropy", "mixed", "high_entropy")[number % 3],
        "sub_category": ("law", "code")[number % 2],
        "difficulty": ("easy", "hard")[number // 2 % 2],
        "language": ("en", "de")[number // 4 % 2],
        "turns": ["word " * (number + 1), "more"][: 1 + number % 2],
    }
    return PromptRow(f"line {number + 1}", {**row, **columns})


ROWS = [speed(number) for number in range(24)]


def select(rows: Sequence[PromptRow] = ROWS, **declared: Any) -> Prompts:
    dataset = Dataset(**{"source": "speed-bench", "config": "throughput_1k", "uri": "x", **declared})
    return select_prompts(rows, dataset, WordEncoding)


def numbers(prompts: Prompts) -> list[int]:
    return [int(prompt.id[1:]) for prompt in prompts.rows]


def rejection_message(**declared: Any) -> str:
    with pytest.raises(BadInput) as caught:
        select(**declared)
    return str(caught.value)


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"categories": ["mixed"]}, [n for n in range(24) if n % 3 == 1]),
        ({"sub_categories": ["code"]}, [n for n in range(24) if n % 2 == 1]),
        ({"entropy": ["Low", "High"]}, [n for n in range(24) if n % 3 != 1]),
        ({"difficulty": ["hard"]}, [n for n in range(24) if n // 2 % 2]),
        ({"languages": ["de"]}, [n for n in range(24) if n // 4 % 2]),
        ({"difficulty": ["hard"], "languages": ["de"]}, [n for n in range(24) if n // 2 % 2 and n // 4 % 2]),
        ({"input_tokens": {"min": 3, "max": 5}}, [1, 2, 3, 4]),
        ({"input_tokens": {"min": 24}}, [23]),
    ],
)
def test_filter_keeps_matching_rows_in_file_order(declared: dict[str, Any], expected: list[int]) -> None:
    assert numbers(select(**declared)) == expected


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"categories": ["mixed", "z"]}, "x: no row has the category 'z'; available: low_entropy, mixed, high_entropy"),
        ({"difficulty": ["hardest"]}, "x: no row has the difficulty 'hardest'; available: easy, hard"),
        ({"sub_categories": ["lore"]}, "x: no row has the sub-category 'lore'; available: law, code"),
        ({"languages": ["fr"]}, "x: no row has the language 'fr'; available: en, de"),
        ({"input_tokens": {"min": 99}}, "x: none of the 24 rows passes the filters"),
        ({"categories": ["mixed"], "count": 9}, "count is 9, but there are only 8 prompts"),
    ],
)
def test_filter_without_a_match_is_rejected_with_the_available_values(declared: dict[str, Any], message: str) -> None:
    assert message in rejection_message(**declared)


def test_input_token_filter_needs_the_token_table() -> None:
    def missing() -> WordEncoding:
        raise EncodingMissing("the table is not here")

    with pytest.raises(BadInput, match="inputTokens cannot be applied: the table is not here"):
        select_prompts(ROWS, Dataset(source=Source.SPEED_BENCH, uri="x", input_tokens={"min": 2}), missing)


def test_rows_outside_the_token_range_are_counted() -> None:
    coverage = select(input_tokens={"min": 3, "max": 5}).coverage
    assert coverage is not None
    assert (coverage.excluded, coverage.requested) == ({"length outside inputTokens": 20}, 4)


# -- counts ------------------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 24), seed=st.none() | st.integers(0, 99))
def test_count_is_spread_evenly_over_categories_in_file_order(count: int, seed: int | None) -> None:
    found = select(count=count, seed=seed)

    assert numbers(found) == sorted(numbers(found))
    sizes = Counter(prompt.category for prompt in found.rows)
    assert sum(sizes.values()) == count
    assert max(sizes.values()) - min(sizes[name] for name in ("low_entropy", "mixed", "high_entropy")) <= 1


@given(st.permutations(range(24)), st.integers(0, 5), st.integers(1, 23))
def test_selection_does_not_depend_on_the_order_of_rows(order: list[int], seed: int, count: int) -> None:
    drawn = set(numbers(select(count=count, seed=seed)))
    assert set(numbers(select([ROWS[place] for place in order], count=count, seed=seed))) == drawn


def test_seeds_select_different_prompts() -> None:
    assert len({select(count=9, seed=seed).fingerprint for seed in range(8)}) > 6


# -- reproducibility ---------------------------------------------------------------------------------------------------


def golden(folder: Path) -> dict[str, str]:
    """Return fingerprints of dataset declarations over small files that this function writes."""
    rows = [{"id": f"q{n}", "category": "abc"[n % 3], "turns": ["ü 名 🙂", "b"][: 1 + n % 2]} for n in range(20)]
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    cells = [[f"{name} {n}" for name in names] for n in range(8)]
    (folder / "gpqa.csv").write_text("\n".join(",".join(row) for row in [names, *cells]) + "\n")
    members = [
        {"name": "a", "weight": 3, "source": "jsonl", "uri": "p.jsonl", "seed": 1, "count": 15},
        {"name": "b", "weight": 1, "source": "gpqa", "uri": "gpqa.csv"},
    ]
    declared: dict[str, dict[str, Any]] = {
        "jsonl": {"source": "jsonl", "uri": "p.jsonl"},
        "count 7, seed 3": {"source": "jsonl", "uri": "p.jsonl", "count": 7, "seed": 3},
        "gpqa, seed 5": {"source": "gpqa", "uri": "gpqa.csv", "seed": 5},
        "mix": {"source": "mix", "count": 16, "members": members},
        "sessions": {"source": "sessions", "count": 3, "seed": 9, "sessions": SESSIONS},
    }
    datasets = {name: Dataset.model_validate(one) for name, one in declared.items()}
    return {name: load_prompts(dataset, folder).fingerprint for name, dataset in datasets.items()}


def test_selected_prompts_match_the_recorded_fingerprints(tmp_path: Path) -> None:
    assert golden(tmp_path) == GOLDEN


def load_mix(tmp_path: Path, count: int | None, **rows: int) -> Prompts:
    members: list[dict[str, Any]] = []
    for name, weight in {"qa": 3, "code": 1}.items():
        lines = [{"id": f"{number}", "prompt": f"{name} {number}"} for number in range(rows.get(name, 9))]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        members.append({"name": name, "weight": weight, "source": "jsonl", "uri": f"{name}.jsonl"})
    members[0]["outputTokens"] = {"min": 20, "max": 150}
    dataset = {"source": "mix", "members": members, **({} if count is None else {"count": count})}
    return load_prompts(Dataset.model_validate(dataset), tmp_path)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 300))
def test_every_member_stays_within_one_turn_of_its_share(weights: list[int], turns: int) -> None:
    members = [
        Member.model_validate({"name": f"m{place}", "weight": weight, "source": "gsm8k"})
        for place, weight in enumerate(weights)
    ]
    member_turns = turns_of(members)
    counts = Counter(next(member_turns).name for _ in range(turns))

    shares = {member.name: member.weight / sum(weights) * turns for member in members}
    assert all(counts[name] < share + 1 for name, share in shares.items())
    assert all(counts[name] > share - len(weights) for name, share in shares.items())


def test_mix_is_interleaved_and_named_by_its_members(tmp_path: Path) -> None:
    found = load_mix(tmp_path, 8)

    assert Counter(prompt.category for prompt in found.rows) == {"qa": 6, "code": 2}
    assert [prompt.id for prompt in found.rows[:4]] == ["qa/0", "qa/1", "code/0", "qa/2"]
    coverage = found.coverage
    assert coverage is not None
    assert (coverage.rows, coverage.requested, coverage.used) == (18, 18, 8)
    assert coverage.members == {
        "qa": MemberCoverage(source="jsonl", share=0.75, output_tokens_min=20, output_tokens_max=150),
        "code": MemberCoverage(source="jsonl", share=0.25),
    }


def test_mix_without_a_count_ends_with_its_first_exhausted_member(tmp_path: Path) -> None:
    assert Counter(prompt.category for prompt in load_mix(tmp_path, None, qa=6).rows) == {"qa": 6, "code": 2}


def test_member_with_too_few_prompts_is_rejected_with_the_needed_number(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"members\[qa\]: a mix of 16 needs 12 of its prompts, but there are only 9"):
        load_mix(tmp_path, 16)


def test_mix_too_small_for_a_member_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"members\[code\]: none of its prompts fits into a mix of 2: raise its"):
        load_mix(tmp_path, 2)


def test_error_in_a_member_is_reported_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"code\.jsonl: contains no rows"):
        load_mix(tmp_path, 4, code=0)


PROMPT = Prompt("q", "qa", ((ChatMessage("system", "a b"), ChatMessage("user", "c d e")), (ChatMessage("user", "f"),)))


def test_prompt_length_counts_all_its_messages() -> None:
    assert measure_lengths([PROMPT], WordEncoding).tokens == {"q": 6}


def test_missing_token_table_gives_no_lengths_and_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)

    lengths = measure_lengths([PROMPT])

    assert lengths.tokens is None
    assert "set TIKTOKEN_CACHE_DIR" in (lengths.reason or "")


def test_damaged_token_table_is_reported_and_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    table.write_bytes(b"half a table")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    lengths = measure_lengths([PROMPT])

    assert lengths.tokens is None
    assert "its SHA-256 differs" in (lengths.reason or "")
    assert table.read_bytes() == b"half a table"
