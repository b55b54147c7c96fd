"""Published datasets given as an own prompt file: the error names the dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.cli import exit_code
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import load_prompts
from specbench_client.workload.source_detection import shape_hint
from specbench_client.workload.sources.registry import LOADERS

GSM8K = {"question": "How many?", "answer": "3", "id": "g1"}


def test_published_dataset_is_named_in_the_error_for_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps(GSM8K) + "\n")
    hint = "these are the columns of gsm8k: name that source (source: gsm8k in a spec, --source gsm8k"
    with pytest.raises(BadInput) as caught:
        load_prompts(Dataset(source=Source.JSONL, uri=str(file)), tmp_path)
    assert hint in str(caught.value)
    assert exit_code(["dataset", "inspect", str(file)]) == 2
    assert hint in "".join(capsys.readouterr())
    assert exit_code(["dataset", "inspect", str(file), "--source", "gsm8k"]) == 0
    assert hint not in capsys.readouterr().out


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


def test_every_dataset_in_a_hint_has_a_loader() -> None:
    rows = [("question", "answer"), ("conversations",), ("code", "change_request")]
    hints = [shape_hint(Source.JSONL, dict.fromkeys(row, "x")) for row in rows]
    named = [hint.split("columns of ")[1].split(":")[0] for hint in hints]
    assert all(Source(name) in LOADERS for name in named)
