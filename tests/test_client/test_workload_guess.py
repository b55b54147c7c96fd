"""The dataset argument of a command, and the hint when a published dataset is given as an own prompt file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.source_detection import guess_dataset, shape_hint

OURS = json.dumps({"id": "a", "prompt": "x"}).encode()
HUMANEVAL = json.dumps({"task_id": "HumanEval/0", "prompt": "def f():", "entry_point": "f", "test": "x"}).encode()
TALK = {"id": "t1", "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]}
BATCH = {
    "custom_id": "r1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [{"role": "user", "content": "Why?"}]},
}
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], "temperature": 0.5}
MESSAGES = {"messages": [{"role": "user", "content": "Why?"}]}
SPEC_BENCH = json.dumps({"question_id": 1, "turns": ["x"]}).encode()


@pytest.mark.parametrize(
    ("name", "data", "source"),
    [
        ("p.jsonl", OURS, "jsonl"),
        ("p.jsonl.gz", gzip.compress(OURS, mtime=0), "jsonl"),
        ("q.jsonl", SPEC_BENCH, "spec-bench"),
        ("q.jsonl.gz", gzip.compress(SPEC_BENCH, mtime=0), "spec-bench"),
        ("h.jsonl.gz", gzip.compress(HUMANEVAL, mtime=0), "humaneval"),
        ("p.csv", b"id,prompt\n", "csv"),
        ("p.csv.gz", b"", "csv"),
        ("p.parquet", b"", "parquet"),
        ("broken.jsonl", b"oops", "jsonl"),
    ],
)
def test_source_is_guessed_from_the_files_content_or_suffix(
    name: str, data: bytes, source: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    uri = str(tmp_path / name)
    assert guess_dataset(uri) == {"source": source, "uri": uri}


@pytest.mark.parametrize(
    ("text", "dataset"),
    [
        ("gsm8k", {"source": "gsm8k"}),
        ("humaneval:h.jsonl.gz", {"source": "humaneval", "uri": "h.jsonl.gz"}),
        ("openai-logs:s3://b/log.jsonl", {"source": "openai-logs", "uri": "s3://b/log.jsonl"}),
        ("s3://b/p.csv", {"source": "csv", "uri": "s3://b/p.csv"}),
        ("hf://datasets/a/b/question.jsonl", {"source": "spec-bench", "uri": "hf://datasets/a/b/question.jsonl"}),
    ],
)
def test_source_may_be_named(text: str, dataset: dict[str, str]) -> None:
    assert guess_dataset(text) == dataset


@pytest.mark.parametrize("text", ["", "mix", "sessions", "jsonl", "gsm9k", "nowhere/p.jsonl"])
def test_unknown_file_or_dataset_is_rejected_with_the_available_ones(text: str) -> None:
    with pytest.raises(BadInput, match=r"No such file or directory: give a file of prompts.*gsm8k"):
        guess_dataset(text)


def test_existing_file_takes_precedence_over_a_hub_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gsm8k").write_bytes(OURS)
    assert guess_dataset("gsm8k") == {"source": "jsonl", "uri": "gsm8k"}


@pytest.mark.parametrize(
    ("row", "source"),
    [(TALK, "sharegpt"), (BATCH, "openai-logs"), (REQUEST, "openai-logs"), (MESSAGES, "jsonl")],
)
@pytest.mark.parametrize("form", ["lines.jsonl", "array.json", "array.jsonl", "indented.json"])
def test_conversations_batches_and_messages_are_recognised_and_read(
    row: dict[str, Any], source: str, form: str, tmp_path: Path
) -> None:
    file = tmp_path / form
    lines = form.startswith("lines")
    file.write_text(json.dumps(row) if lines else json.dumps([row], indent=2 if "indented" in form else None))
    dataset = guess_dataset(str(file))
    assert dataset == {"source": source, "uri": str(file)}
    (prompt,) = load_prompts(Dataset.model_validate(dataset), tmp_path).rows
    assert [message.content for message in prompt.turns[0]] == ["Why?"]


@pytest.mark.parametrize("talk", [[], [{"role": "user", "content": "Why?"}], "text"])
def test_other_conversations_are_not_sharegpt(talk: object, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"conversations": talk}))
    assert guess_dataset(str(tmp_path / "t.jsonl"))["source"] == "jsonl"


MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}


def test_mooncake_traces_are_recognised_and_others_with_their_columns_are_not(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps(MOONCAKE))
    assert guess_dataset(str(file)) == {"source": "mooncake", "uri": str(file)}
    file.write_text(json.dumps({**MOONCAKE, "chat_id": 3}))
    assert guess_dataset(str(file)) == {"source": "jsonl", "uri": str(file)}


GSM8K = {"question": "How many?", "answer": "3", "id": "g1"}


@pytest.mark.parametrize(
    ("source", "columns", "hint"),
    [
        (Source.PARQUET, {"article": "a", "highlights": "b"}, "these are the columns of cnn-dailymail: "),
        (Source.CSV, {"text": "x"}, "rename the column that contains the prompt's text to `prompt`"),
        (Source.CSV, {"id;prompt": "1;x"}, "the columns are separated by semicolons"),
        (Source.JSONL, {"id": "a", "prompt": "x", "question": "y", "answer": "z"}, ""),
        (Source.JSONL, {"id": None}, ""),
        (Source.GSM8K, {"problem": "a", "solution": "b"}, ""),
    ],
)
def test_shape_hint_is_given_only_for_own_files(source: Source, columns: Mapping[str, str], hint: str) -> None:
    found = shape_hint(source, columns)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)
