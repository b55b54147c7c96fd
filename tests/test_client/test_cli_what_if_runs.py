"""`specbench analyze ngram` over a stored run: prompts, texts and tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.termination import Exit
from specbench_api.plan.plan import Point
from specbench_api.spec.dataset import Dataset, Source
from specbench_client.cli import exit_code
from specbench_client.documents.what_if import NgramReport
from specbench_client.workload.prompts import load_prompts
from specbench_testing.local_results import OBSERVED, Edit, store_results
from specbench_testing.synthetic_records import SyntheticRun

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=4, turns=2, repeats=2, drafts=6, drafters=("long",))
PROMPT = " ".join(f"{number}" for number in range(100))


class WordTokenizer:
    """A tokenizer with one token per word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]


@pytest.fixture(autouse=True)
def _word_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_client.dataset.tokenizers.cached_encoding", WordTokenizer)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [{"id": f"p{number}", "prompt": PROMPT} for number in range(WORLD.prompts)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def with_texts(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
    """Add answers that copy their prompt; those of p1 lack the last word."""
    sizes = frame["output_tokens"] - (frame["prompt_id"] == "p1")
    return frame.assign(output_text=[" ".join(PROMPT.split()[:size]) for size in sizes])


def with_ids(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
    ids = [np.arange(size) for size in frame["output_tokens"]]
    return frame.assign(output_token_ids=pd.Series(ids, dtype=object))


def unchanged(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def store_run(tmp_path: Path, prompts: Path, edit: Edit) -> str:
    fingerprint = load_prompts(Dataset(source=Source.JSONL, uri=str(prompts)), Path()).fingerprint
    observed = OBSERVED.model_copy(update={"dataset_fingerprint": fingerprint})
    store_results(WORLD, tmp_path / "out", UID, edit=edit, observed=observed)
    return str(tmp_path / "out")


def test_texts_of_a_run_are_replayed_over_its_prompts(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = store_run(tmp_path, prompts, with_texts)
    options = ["--prompts", str(prompts), "--tokenizer", "o200k_base", "-o", "json", "-k", "3"]
    assert exit_code(["analyze", "ngram", where, *options]) == Exit.OK
    report = NgramReport.from_json(capsys.readouterr().out)
    assert report.answers == 8
    assert report.left_out == {"a later turn: its prompt contains earlier answers": 8}
    assert "8 of 8 answers have as many as the engine counted" in report.token_ids
    assert report.source.endswith("arm none")
    assert (report.settings[0].overall.acceptance_length.value or 0) > 2.5
    assert report.copied_share.value == 1.0


def test_token_ids_from_the_engine_need_no_tokenizer(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = store_run(tmp_path, prompts, with_ids)
    rows = [{"id": f"p{number}", "token_ids": list(range(100))} for number in range(WORLD.prompts)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert exit_code(["analyze", "ngram", where, "--prompts", str(prompts)]) == Exit.BAD_INPUT
    assert "these are not the prompts that were measured" in capsys.readouterr().err
    keep_again = store_run(tmp_path / "again", prompts, with_ids)
    assert exit_code(["analyze", "ngram", keep_again, "--prompts", str(prompts), "-o", "json"]) == Exit.OK
    assert NgramReport.from_json(capsys.readouterr().out).token_ids.startswith("the engine's own")


@pytest.mark.parametrize(
    ("edit", "arguments", "message"),
    [
        (unchanged, ["--tokenizer", "o200k_base"], "neither token ids nor text in the record"),
        (unchanged, ["--tokenizer", "o200k_base"], "measure again with --keep-text"),
        (with_texts, [], "add --tokenizer"),
        (with_texts, ["--arm", "ngram"], "--arm ngram: the run has none, long"),
    ],
)
def test_run_without_texts_is_rejected_with_a_remedy(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str], *, edit: Edit, arguments: list[str], message: str
) -> None:
    where = store_run(tmp_path, prompts, edit)
    assert exit_code(["analyze", "ngram", where, "--prompts", str(prompts), *arguments]) == Exit.BAD_INPUT
    assert message in " ".join(capsys.readouterr().err.split())


def test_missing_prompt_file_is_rejected_with_the_option(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = store_run(tmp_path, prompts, with_texts)
    prompts.unlink()
    monkeypatch.chdir(tmp_path)
    assert exit_code(["analyze", "ngram", where, "--tokenizer", "o200k_base"]) == Exit.BAD_INPUT
    assert "give their file with --prompts" in capsys.readouterr().err
