"""`specbench analyze ngram` and `oracle`: their options and errors, and their answers on stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.plan import Arm, Point
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.engine import DialectName
from specbench_client.cli import exit_code
from specbench_client.documents.what_if import DraftPolicy, NgramReport, OracleReport
from specbench_client.errors import BadInput
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.what_if_inputs import RunLoad, read_oracle_subject
from specbench_client.workload.prompts import load_prompts
from specbench_testing.local_results import OBSERVED, Edit, store_results
from specbench_testing.resources import external_engine
from specbench_testing.synthetic_records import SyntheticRun

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
        (ROWS, ["--step-cost", "nowhere.yaml"], "nowhere.yaml: cannot be read: No such file or directory"),
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
    assert report.copied_share.value == 1.0


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


UID = "0190a000-0000-7000-8000-000000000000"
WORLD = SyntheticRun(prompts=12, repeats=2, drafts=10, drafters=("long", "other"), alpha={"long": 0.7}, tokens=(30, 60))


def trace_row(number: int, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    eagle, ngram = ([1, *(int(each) for each in rng.integers(1, 5, 30))] for _ in range(2))
    ids = {"prompt_token_ids": list(range(20)), "generated_token_ids": [*range(5, 20), *range(5, 21)]}
    return {"id": str(number), **ids, "acc_eagle": {"acc_len": eagle}, "acc_ngram": {"acc_len": ngram}, **more}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stored run of two arms; read-only."""
    folder = tmp_path_factory.mktemp("run") / "out"
    store_results(WORLD, folder, UID)
    return str(folder)


def oracle_report(capsys: pytest.CaptureFixture[str], *arguments: str) -> OracleReport:
    assert exit_code(["analyze", "oracle", *arguments, "--output", "json"]) == Exit.OK
    return OracleReport.from_json(capsys.readouterr().out)


def test_trace_with_a_step_cost_gives_policies_and_headroom(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write([trace_row(number) for number in range(8)])
    report = oracle_report(capsys, file, "--step-cost", "published-h100", "--batch", "1,64", "-k", "1,3")
    assert [(each.policy, each.drafts) for each in report.rows] == [
        (DraftPolicy.FIXED, 1), (DraftPolicy.FIXED, 3), (DraftPolicy.ORACLE, None),
    ]  # fmt: skip
    assert [each.batch for each in report.rooms] == [1, 64]
    assert report.drafter == "eagle"


def test_run_with_long_drafts_has_an_oracle_and_fixed_lengths(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = oracle_report(capsys, run, "--arm", "long")
    assert [each.drafts for each in report.rows] == [1, 2, 3, 5, 7, 10, None]
    assert report.rows[-1].acceptance_length.value == report.rows[-2].acceptance_length.value
    assert report.censored is not None
    assert report.answers == 24


def test_arm_without_recorded_steps_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The arm with the longest drafts is the default, but n-gram may have no recorded steps."""

    def drop_steps(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(step_accepted=None) if point.arm == "long" else frame

    store_results(WORLD, tmp_path / "out", UID, edit=drop_steps)
    assert oracle_report(capsys, str(tmp_path / "out")).drafter == "other"
    assert exit_code(["analyze", "oracle", str(tmp_path / "out"), "--arm", "long"]) == Exit.BAD_INPUT
    assert "no answer has all its steps recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "none"], "--arm none: the run drafts with long, other"),
        (["--workload", "w"], "--workload w: the run has "),
        (["--load", "77"], "--load 77: the run has 1"),
    ],
)
def test_missing_run_data_is_reported_with_a_remedy(
    run: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert exit_code(["analyze", "oracle", run, *arguments]) == Exit.BAD_INPUT
    assert message in " ".join(capsys.readouterr().err.split())


def test_endpoint_without_a_declared_drafter_is_rejected_as_such() -> None:
    """Its engine may draft, as with EAGLE-3 behind `specbench measure`: only its draft length is missing."""
    engine = external_engine(DialectName.VLLM)
    endpoint, baseline = {"engine": engine, "arms": [Arm(name="endpoint")]}, {"arms": [Arm(name="none")]}
    for changes, expected in ((endpoint, "the run measured an endpoint"), (baseline, "the run has the baseline alone")):
        run = RunLoad(Run(FolderStore(Path("unused")), WORLD.plan.model_copy(update=changes)), "chat", "1")
        with pytest.raises(BadInput, match=expected):
            read_oracle_subject(run)


@pytest.mark.parametrize(
    ("row", "arguments", "message"),
    [
        ({"prompt": "x", "output": "y"}, [], "no row has"),
        (trace_row(1), ["--arm", "medusa"], "--arm medusa: no such drafter in the file: give one of eagle, ngram"),
        (trace_row(1, acc_eagle={"acc_len": [1, 0]}), [], "acc_len must be a list of whole numbers of 1 or more"),
        ({"acc_eagle": {"acc_len": [1, 2]}}, [], "has no prompt_token_ids"),
        (trace_row(1, acc_eagle={"acc_len": [1]}), ["--arm", "eagle"], "no answer of eagle has a step"),
        (
            {"prompt_token_ids": [1], "acc_medusa": {"acc_len": [1, 2]}},
            ["--step-cost", "published-h100"],
            "has ngram, eagle, eagle3 but not medusa",
        ),
        (trace_row(1), ["--step-cost", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_invalid_trace_is_rejected_with_a_remedy(
    write: Write, capsys: pytest.CaptureFixture[str], row: dict[str, Any], arguments: list[str], message: str
) -> None:
    assert exit_code(["analyze", "oracle", write([row]), *arguments]) == Exit.BAD_INPUT
    assert message in " ".join(capsys.readouterr().err.split())


RUNS_WORLD = SyntheticRun(prompts=4, turns=2, repeats=2, drafts=6, drafters=("long",))
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
    rows = [{"id": f"p{number}", "prompt": PROMPT} for number in range(RUNS_WORLD.prompts)]
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
    store_results(RUNS_WORLD, tmp_path / "out", UID, edit=edit, observed=observed)
    return str(tmp_path / "out")


@pytest.mark.runs
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


@pytest.mark.runs
def test_token_ids_from_the_engine_need_no_tokenizer(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = store_run(tmp_path, prompts, with_ids)
    rows = [{"id": f"p{number}", "token_ids": list(range(100))} for number in range(RUNS_WORLD.prompts)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert exit_code(["analyze", "ngram", where, "--prompts", str(prompts)]) == Exit.BAD_INPUT
    assert "these are not the prompts that were measured" in capsys.readouterr().err
    keep_again = store_run(tmp_path / "again", prompts, with_ids)
    assert exit_code(["analyze", "ngram", keep_again, "--prompts", str(prompts), "-o", "json"]) == Exit.OK
    assert NgramReport.from_json(capsys.readouterr().out).token_ids.startswith("the engine's own")


@pytest.mark.runs
@pytest.mark.parametrize(
    ("edit", "arguments", "message"),
    [
        (unchanged, ["--tokenizer", "o200k_base"], "neither token ids nor text in the record"),
        (unchanged, ["--tokenizer", "o200k_base"], "with --keep-text"),
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


@pytest.mark.runs
def test_missing_prompt_file_is_rejected_with_the_option(
    tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = store_run(tmp_path, prompts, with_texts)
    prompts.unlink()
    monkeypatch.chdir(tmp_path)
    assert exit_code(["analyze", "ngram", where, "--tokenizer", "o200k_base"]) == Exit.BAD_INPUT
    assert "give their file with --prompts" in capsys.readouterr().err
