"""The selection of prompts in a load and by `dataset select`."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset, Member, Source
from specbench_client.chat import ChatMessage
from specbench_client.cli import exit_code
from specbench_client.dataset.diversity import (
    SelectionRequest,
    Vectors,
    mean_similarity,
    random_subset_similarity,
    refine_by_swaps,
    select_diverse_group,
    select_greedily,
    unit_vectors,
)
from specbench_client.documents.prompt_coverage import MemberCoverage
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import EncodingMissing, cached_encoding, measure_lengths
from specbench_client.workload.prompts import Prompts, load_prompts, select_prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.selection import turns_of
from specbench_testing.present import present
from specbench_testing.reference_tokenizers import WordEncoding

SESSIONS = {"turns": 2, "turnTokens": 40, "answerTokens": 8, "sharedPrefixTokens": 16}
GOLDEN = {
    "jsonl": "1a0f491243089548307e6694674abcd861888c3b620ae6f260fb66161f4aa240",
    "count 7, seed 3": "29017732d3dc3b382c020be02318ccadd071dcb78343745922b29c57705f527f",
    "gpqa, seed 5": "50b77b9fcce27ff89c8a03c6ca0cfa13388bf854861a330d13f9b6681c4c719d",
    "mix": "d88ccb5562ea1ffc91d3fc783f72d1252a7a5b7b275c25717cac90ad3c694187",
    "sessions": "1fee528538f3237e2a8482504ef5cfbee8c9847d21aa9a675283a1b2cf2f2473",
}
"""SHA-256 of selected prompts; every machine, Python version and row order must select the same."""


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


def test_a_missing_token_table_is_downloaded_by_the_interpreter_that_has_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of uvx or pipx is not `python`."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(EncodingMissing, match=re.escape(f"'{sys.executable}' -c 'import tiktoken; ")):
        cached_encoding()


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


def write_rows(file: Path, rows: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


SELECT_ROWS: list[dict[str, object]] = [
    {"id": "c", "category": "cats", "prompt": "cats are soft", "team": "blue"},
    {"id": "a", "category": "cats", "prompt": "cats are soft"},
    {"id": "b", "category": "cats", "prompt": "what does a lion eat", "difficulty": 3},
    {"id": "x", "category": "sums", "turns": ["add one and two", "double it"]},
    {"id": "y", "category": "sums", "messages": [{"role": "user", "content": "seven times eight"}]},
]


VECTORS = {"c": [1.0, 0.0], "a": [1.0, 0.0], "b": [0.0, 1.0], "x": [1.0, 1.0], "y": [0.0, 1.0]}


def selected(rows: list[dict[str, object]], to: Path, *options: str, count: int = 2) -> int:
    """Run the command on these rows of `ROWS`, which have one vector for each text; return its exit code."""
    file, vectors = to.parent / "prompts.jsonl", to.parent / "vectors.parquet"
    write_rows(file, rows)
    pq.write_table(pa.table({"id": list(VECTORS), "embedding": list(VECTORS.values())}), vectors)
    given = ["--embeddings", str(vectors), "--count", str(count), "--to", str(to)]
    return exit_code(["dataset", "select", str(file), *given, *options])


def test_duplicates_are_not_both_selected_and_rows_keep_their_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out.jsonl"
    assert selected(SELECT_ROWS, to, "--output", "json") == 0
    assert read_rows(to) == [
        SELECT_ROWS[1],
        SELECT_ROWS[2],
        SELECT_ROWS[3],
        {"id": "y", "category": "sums", "prompt": "seven times eight"},
    ]
    report = json.loads(capsys.readouterr().out)
    assert report["schemaVersion"] == "specbench.io/selection/v1"
    assert [(group["category"], group["selected"]) for group in report["groups"]] == [("cats", 2), ("sums", 2)]


def test_selection_does_not_depend_on_file_order(tmp_path: Path) -> None:
    found = []
    for rows in (SELECT_ROWS, SELECT_ROWS[::-1]):
        assert selected(rows, tmp_path / "out.jsonl") == 0
        found.append({str(row["id"]) for row in read_rows(tmp_path / "out.jsonl")})
    assert found[0] == found[1]
    assert selected(SELECT_ROWS, tmp_path / "out.jsonl", "--by", "all") == 0
    assert len(read_rows(tmp_path / "out.jsonl")) == 2


def test_category_with_too_few_prompts_is_rejected_unless_fewer_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out.jsonl"
    assert selected(SELECT_ROWS, to, count=3) == 2
    assert "too few prompts in sums (2)" in capsys.readouterr().err
    assert not to.exists()
    assert selected(SELECT_ROWS, to, "--allow-fewer", count=3) == 0
    assert len(read_rows(to)) == 5


def test_missing_output_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert selected(SELECT_ROWS, tmp_path / "out.jsonl", "--to", str(tmp_path / "none" / "out.jsonl")) == 2
    assert "give a file in an existing, writable folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "name", "rows"),
    [
        (
            "sharegpt",
            "s.json",
            [
                {"id": f"s{n}", "conversations": [{"from": "human", "value": f"say {n}"}] * (2 - n % 2)}
                for n in range(6)
            ],
        ),
        ("gsm8k", "g.jsonl", [{"question": f"how many are {n}?", "answer": "many"} for n in range(4)]),
        ("humaneval", "h.jsonl", [{"task_id": f"H/{n}", "prompt": f"def f{n}():\n"} for n in range(4)]),
        ("mt-bench", "m.jsonl", [{"prompt_id": n, "category": "a", "prompt": [f"say {n}", "again"]} for n in range(4)]),
    ],
)
def test_selected_rows_of_a_published_dataset_give_the_same_prompts(
    source: str, name: str, rows: list[dict[str, object]], tmp_path: Path
) -> None:
    file, to = tmp_path / name, tmp_path / "out.jsonl"
    if name.endswith(".json"):
        file.write_text(json.dumps(rows))
    else:
        write_rows(file, rows)

    def sent(source_name: str, uri: Path) -> dict[str, object]:
        rows = load_prompts(Dataset.model_validate({"source": source_name, "uri": str(uri)}), tmp_path).rows
        return {row.id: (row.category, row.turns) for row in rows}

    published = sent(source, file)
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(len(published), 3)))
    options = ["--source", source, "--embeddings", str(tmp_path / "v.npy"), "--count", "2", "--to", str(to)]
    assert exit_code(["dataset", "select", str(file), *options]) == 0
    ours = sent("jsonl", to)
    assert len(ours) == 2
    assert ours == {key: published[key] for key in ours}


def vectors_of(seed: int, rows: int, dimensions: int = 6, clusters: int = 3) -> Vectors:
    """Return rows around a few centres, like prompts of a category."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(clusters, dimensions))
    raw = centres[generator.integers(clusters, size=rows)] + 0.7 * generator.normal(size=(rows, dimensions))
    return unit_vectors(raw.astype(np.float32), [str(row) for row in range(rows)])


def naive_sum(vectors: Vectors) -> float:
    exact = vectors.astype(np.float64)
    return sum(float(first @ second) for first, second in combinations(exact, 2))


@st.composite
def sets(draw: st.DrawFn, most: int = 40) -> tuple[Vectors, int]:
    rows = draw(st.integers(2, most))
    return vectors_of(draw(st.integers(0, 10_000)), rows), draw(st.integers(1, rows))


@given(sets())
@settings(deadline=None)
def test_mean_similarity_equals_the_mean_over_all_pairs(case: tuple[Vectors, int]) -> None:
    vectors, _ = case
    pairs = len(vectors) * (len(vectors) - 1) / 2
    assert mean_similarity(vectors) == pytest.approx(naive_sum(vectors) / pairs, abs=1e-5)


@given(sets())
@settings(deadline=None)
def test_greedy_selection_takes_the_row_least_similar_to_those_taken(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    chosen = select_greedily(vectors, count)
    assert len(set(chosen)) == count
    exact = vectors.astype(np.float64)
    for taken in range(1, count):
        loads = exact @ exact[chosen[:taken]].sum(axis=0)
        loads[chosen[:taken]] = np.inf
        assert loads[chosen[taken]] <= loads.min() + 2e-5


@given(sets())
@settings(deadline=None)
def test_swaps_never_increase_similarity_and_end_when_none_helps(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    chosen = select_greedily(vectors, count)
    members, swaps = refine_by_swaps(vectors, chosen)
    assert len(set(members)) == count
    before, after = naive_sum(vectors[chosen]), naive_sum(vectors[members])
    assert after <= before + 1e-9
    if swaps:
        assert after < before
    outside = np.setdiff1d(np.arange(len(vectors)), members)
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    loads = cosines[:, members].sum(axis=1)
    changes = loads[outside][None, :] - loads[members][:, None] + 1 - cosines[np.ix_(np.array(members), outside)]
    assert (changes >= -1e-4).all()


@given(sets(most=9))
@settings(max_examples=60, deadline=None)
def test_small_sets_are_within_the_proven_bound_of_the_optimum(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    found = naive_sum(vectors[refine_by_swaps(vectors, select_greedily(vectors, count))[0]])
    best = min(naive_sum(vectors[list(rows)]) for rows in combinations(range(len(vectors)), count))
    assert best - 1e-6 <= found <= best + min(count, len(vectors) - count) + 1e-6


def test_first_of_identical_rows_is_taken() -> None:
    axes = np.eye(4, dtype=np.float32)
    vectors = unit_vectors(np.concatenate([axes, axes, axes]), [str(row) for row in range(12)])
    assert sorted(select_greedily(vectors, 4)) == [0, 1, 2, 3]
    assert refine_by_swaps(vectors, [0, 4, 8, 1])[0] == [1, 2, 3, 8]  # 2 and 3 are taken, not their duplicates


def test_each_group_has_its_own_selection_and_random_comparison() -> None:
    vectors = vectors_of(1, 80, dimensions=16)
    for group in {"first": range(40), "second": range(40, 80)}.items():
        rows, found = select_diverse_group(vectors, group, SelectionRequest(10, seed=3, draws=50))
        assert (found.category, found.selected, set(rows) <= set(group[1])) == (group[0], len(rows), True)
        assert found.refined == pytest.approx(mean_similarity(vectors[rows]))
        assert (found.refined or 0) <= present(found.greedy) < present(found.random).low
        assert (rows, found) == select_diverse_group(vectors, group, SelectionRequest(10, seed=3, draws=50))


def test_single_prompt_has_no_similarity() -> None:
    vectors = vectors_of(1, 3)
    assert mean_similarity(vectors[:1]) is None
    assert random_subset_similarity(vectors, 1, 10, 0) is None


@pytest.mark.parametrize(("value", "word"), [(0.0, "all zeros"), (np.nan, "not finite"), (np.inf, "not finite")])
def test_vector_without_a_direction_is_rejected_with_its_prompt(value: float, word: str) -> None:
    raw = np.ones((3, 2), dtype=np.float32)
    raw[1] = value
    with pytest.raises(BadInput, match=f"'b' .*{word}"):
        unit_vectors(raw, ["a", "b", "c"])


@pytest.mark.process
@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_selection_does_not_depend_on_the_hash_seed(hash_seed: str, tmp_path: Path) -> None:
    program = (
        "import importlib.util, json, sys; from pathlib import Path;"
        f"spec = importlib.util.spec_from_file_location('drawn', {__file__!r});"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module);"
        "print(json.dumps(module.golden(Path(sys.argv[1]))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == GOLDEN
