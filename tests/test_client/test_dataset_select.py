"""`specbench dataset select` from file to file; the diverse selection: exact sums, never worse, near the optimum."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset
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
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import load_prompts
from specbench_testing.present import present


def write_rows(file: Path, rows: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


ROWS: list[dict[str, object]] = [
    {"id": "c", "category": "cats", "prompt": "cats are soft", "team": "blue"},
    {"id": "a", "category": "cats", "prompt": "cats are soft"},
    {"id": "b", "category": "cats", "prompt": "what does a lion eat", "difficulty": 3},
    {"id": "x", "category": "sums", "turns": ["add one and two", "double it"]},
    {"id": "y", "category": "sums", "messages": [{"role": "user", "content": "seven times eight"}]},
]


VECTORS = {"c": [1.0, 0.0], "a": [1.0, 0.0], "b": [0.0, 1.0], "x": [1.0, 1.0], "y": [0.0, 1.0]}


def select(rows: list[dict[str, object]], to: Path, *options: str, count: int = 2) -> int:
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
    assert select(ROWS, to, "--output", "json") == 0
    assert read_rows(to) == [ROWS[1], ROWS[2], ROWS[3], {"id": "y", "category": "sums", "prompt": "seven times eight"}]
    report = json.loads(capsys.readouterr().out)
    assert report["schemaVersion"] == "specbench.io/selection/v1"
    assert [(group["category"], group["selected"]) for group in report["groups"]] == [("cats", 2), ("sums", 2)]


def test_selection_does_not_depend_on_file_order(tmp_path: Path) -> None:
    found = []
    for rows in (ROWS, ROWS[::-1]):
        assert select(rows, tmp_path / "out.jsonl") == 0
        found.append({str(row["id"]) for row in read_rows(tmp_path / "out.jsonl")})
    assert found[0] == found[1]
    assert select(ROWS, tmp_path / "out.jsonl", "--by", "all") == 0
    assert len(read_rows(tmp_path / "out.jsonl")) == 2


def test_category_with_too_few_prompts_is_rejected_unless_fewer_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out.jsonl"
    assert select(ROWS, to, count=3) == 2
    assert "too few prompts in sums 2" in capsys.readouterr().err
    assert not to.exists()
    assert select(ROWS, to, "--allow-fewer", count=3) == 0
    assert len(read_rows(to)) == 5


def test_missing_output_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert select(ROWS, tmp_path / "out.jsonl", "--to", str(tmp_path / "none" / "out.jsonl")) == 2
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
