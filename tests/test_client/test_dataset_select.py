"""`specbench dataset select` from file to file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench_api.spec.dataset import Dataset
from specbench_client.cli import exit_code
from specbench_client.workload.prompts import load_prompts

SPEC_BENCH = Path(__file__).resolve().parents[3] / "shared" / "data" / "spec_bench_question.jsonl"


def prompts(folder: Path, rows: list[dict[str, object]]) -> str:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def read_rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


ROWS: list[dict[str, object]] = [
    {"id": "c", "category": "cats", "prompt": "cats are soft", "team": "blue"},
    {"id": "a", "category": "cats", "prompt": "cats are soft"},
    {"id": "b", "category": "cats", "prompt": "what does a lion eat", "difficulty": 3},
    {"id": "x", "category": "sums", "turns": ["add one and two", "double it"]},
    {"id": "y", "category": "sums", "messages": [{"role": "user", "content": "seven times eight"}]},
]
SELECT = ["--embeddings", "lexical", "--count", "2"]


def test_duplicates_are_not_both_selected_and_rows_keep_their_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out.jsonl"
    assert exit_code(["dataset", "select", prompts(tmp_path, ROWS), *SELECT, "--to", str(to), "--output", "json"]) == 0
    assert read_rows(to) == [ROWS[1], ROWS[2], ROWS[3], {"id": "y", "category": "sums", "prompt": "seven times eight"}]
    report = json.loads(capsys.readouterr().out)
    assert report["schemaVersion"] == "specbench.io/selection/v1"
    assert [(group["category"], group["selected"]) for group in report["groups"]] == [("cats", 2), ("sums", 2)]


def test_selection_does_not_depend_on_file_order(tmp_path: Path) -> None:
    found = []
    for rows in (ROWS, ROWS[::-1]):
        to = tmp_path / "out.jsonl"
        assert exit_code(["dataset", "select", prompts(tmp_path, rows), *SELECT, "--to", str(to)]) == 0
        found.append({str(row["id"]) for row in read_rows(to)})
    assert found[0] == found[1]


def test_category_with_too_few_prompts_is_rejected_unless_fewer_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dataset", "select", prompts(tmp_path, ROWS), "--embeddings", "lexical", "--count", "3"]
    to = tmp_path / "out.jsonl"
    assert exit_code([*command, "--to", str(to)]) == 2
    assert "too few prompts in sums 2" in capsys.readouterr().err
    assert not to.exists()
    assert exit_code([*command, "--to", str(to), "--allow-fewer"]) == 0
    assert len(read_rows(to)) == 5


def test_overall_selection_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "out.jsonl"
    assert exit_code(["dataset", "select", prompts(tmp_path, ROWS), *SELECT, "--by", "all", "--to", str(to)]) == 0
    assert len(read_rows(to)) == 2
    out = capsys.readouterr().out
    assert "mean cosine similarity over all pairs, by lexical" in out
    assert str(to) in out


def test_missing_output_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "none" / "out.jsonl"
    assert exit_code(["dataset", "select", prompts(tmp_path, ROWS), *SELECT, "--to", str(to)]) == 2
    assert "give a file in an existing, writable folder" in capsys.readouterr().err


def test_embeddings_option_is_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out.jsonl")
    assert exit_code(["dataset", "select", prompts(tmp_path, ROWS), "--count", "2", "--to", out]) == 2
    assert "Missing option '--embeddings'" in capsys.readouterr().err


def test_dataset_help_lists_select(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["dataset", "--help"]) == 0
    assert "select" in capsys.readouterr().out


@pytest.mark.draws
@pytest.mark.skipif(not SPEC_BENCH.exists(), reason="Spec-Bench's question.jsonl is not on this machine")
def test_refined_selection_beats_greedy_and_greedy_beats_random(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dataset", "select", str(SPEC_BENCH), "--embeddings", "lexical", "--count", "5", "-o", "json"]
    assert exit_code([*command, "--to", str(tmp_path / "out.jsonl")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["meanRefined"] < report["meanGreedy"] < report["meanRandom"]
    for group in report["groups"]:
        assert group["refined"] <= group["greedy"] + 1e-9
        assert group["greedy"] < group["random"]["mean"]


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
    file.write_text(json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows))
    assert exit_code(["dataset", "select", str(file), "--source", source, *SELECT, "--to", str(to)]) == 0

    def sent(source_name: str, uri: Path) -> dict[str, object]:
        rows = load_prompts(Dataset.model_validate({"source": source_name, "uri": str(uri)}), tmp_path).rows
        return {row.id: (row.category, row.turns) for row in rows}

    published, ours = sent(source, file), sent("jsonl", to)
    assert len(ours) == 2
    assert ours == {key: published[key] for key in ours}
