"""`specbench analyze ngram` from files: accepted rows, error messages, and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.documents.what_if import NgramReport

COPY, NEW = list(range(40)), list(range(100, 140))
ROWS = [
    {"id": f"c{number}", "category": "copy", "prompt_token_ids": COPY, "output_token_ids": COPY[number:]}
    for number in range(5)
] + [
    {
        "id": f"n{number}",
        "category": "new",
        "prompt_token_ids": COPY,
        "generated_token_ids": [100 + each for each in COPY],
    }
    for number in range(5)
]
Write = Callable[[list[dict[str, Any]]], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(rows: list[dict[str, Any]]) -> str:
        file = tmp_path / "answers.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(file)

    return write_rows


def ngram_report_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> NgramReport:
    assert exit_code(["analyze", "ngram", *arguments, "--output", "json"]) == Exit.OK
    return NgramReport.from_json(capsys.readouterr().out)


def test_file_with_token_ids_needs_no_tokenizer(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    report = ngram_report_of(capsys, write(ROWS), "-k", "3,10", "--min-n", "2,3", "--max-n", "3")
    assert [(each.lookup_min, each.lookup_max, each.drafts) for each in report.settings] == [
        (2, 3, 3), (2, 3, 10), (3, 3, 3), (3, 3, 10),
    ]  # fmt: skip
    assert (report.answers, report.token_ids, report.step_cost) == (10, "the file's own", None)
    figures = report.settings[0].categories
    assert figures["new"].acceptance_length.value == 1.0
    assert (figures["copy"].acceptance_length.value or 0) > 3


def test_step_cost_gives_speedups_by_batch_size(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    report = ngram_report_of(capsys, write(ROWS), "--step-cost", "published-h100", "--batch", "1,32", "-k", "3")
    speedups = report.settings[0].categories["copy"].speedups
    assert list(speedups) == ["1", "32"]
    assert (speedups["1"].value or 0) > (speedups["32"].value or 0) > 1


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_text_output_has_tables_and_limits(write: Write, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert exit_code(["analyze", "ngram", write(ROWS), "--output", form]) == Exit.OK
    printed = capsys.readouterr().out
    assert "By category" in printed
    assert "limit: exact for greedy answers" in printed
    assert "token ids: the file's own" in printed


def test_rows_without_an_output_are_counted(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    report = ngram_report_of(capsys, write([*ROWS, {"prompt_token_ids": [1]}, {"output_token_ids": [1, 2]}]))
    assert report.left_out == {"no output": 1, "no prompt": 1}


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"prompt": "a b", "output": "a b"}], [], "line 1: has texts but no token ids"),
        ([{"prompt_token_ids": [1]}], [], "no row has a prompt and an output (1 x no output)"),
        ([{"prompt_token_ids": "x", "output_token_ids": [1]}], [], "prompt_token_ids must be a list of whole numbers"),
        (
            [{"prompt_token_ids": [1.5], "output_token_ids": [1]}],
            [],
            "prompt_token_ids must be a list of whole numbers",
        ),
        ([{"prompt_token_ids": [1], "output_token_ids": [1]}], [], "no answer has a step to replay"),
        (ROWS, ["--min-n", "5", "--max-n", "4"], "--min-n 5 is longer than every --max-n"),
        (ROWS, ["-k", "0"], "'0': give whole numbers from 1"),
        (ROWS, ["--batch", "1,x"], "'1,x': give whole numbers from 1"),
        (ROWS, ["--step-cost", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (ROWS, ["--tokenizer", "nowhere.json"], "--tokenizer"),
    ],
)
def test_unusable_rows_are_rejected_with_a_remedy(
    write: Write, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], arguments: list[str], message: str
) -> None:
    assert exit_code(["analyze", "ngram", write(rows), *arguments]) == Exit.BAD_INPUT
    assert message in " ".join(capsys.readouterr().err.split())


def test_texts_are_replayed_with_a_tokenizer(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word tokenizer replaces o200k_base, whose table may not be installed."""
    monkeypatch.setattr("specbench_client.dataset.tokenizers.cached_encoding", Words)
    text = " ".join(f"w{number}" for number in range(40))
    rows: list[dict[str, Any]] = [
        {"id": "a", "prompt": text, "output": text},
        {"id": "b", "messages": [{"role": "user", "content": text}], "response": text},
    ]
    report = ngram_report_of(capsys, write(rows), "--tokenizer", "o200k_base", "-k", "5")
    assert (report.answers, report.output_tokens) == (2, 80)
    assert report.token_ids == "o200k_base, which is not the target's own"
    assert report.overlap.copied_share.value == 1.0


class Words:
    """A tokenizer with one token per word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [int(word.removeprefix("w")) for word in text.split()]


def test_cost_model_file_is_read_and_an_invalid_field_is_reported(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cost.yaml"
    text = """
        name: ours
        source: our own measurement
        target: {fixedS: 0.006, perTokenS: 0.00002}
        drafters: {ngram: {}}
    """
    file.write_text(text)
    report = ngram_report_of(capsys, write(ROWS), "--step-cost", str(file))
    assert report.step_cost is not None
    assert report.step_cost.name == "ours"
    file.write_text(text.replace("fixedS", "fixedMs"))
    assert exit_code(["analyze", "ngram", write(ROWS), "--step-cost", str(file)]) == Exit.BAD_INPUT
    assert "target.fixedMs" in capsys.readouterr().err
    file.write_text(text.replace("ngram", "eagle3"))
    assert exit_code(["analyze", "ngram", write(ROWS), "--step-cost", str(file)]) == Exit.BAD_INPUT
    assert "has no drafter 'ngram'" in capsys.readouterr().err
