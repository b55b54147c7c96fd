"""`specbench dataset select` from file to file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.spec.dataset import Dataset
from specbench_client.cli import exit_code
from specbench_client.workload.prompts import load_prompts


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
