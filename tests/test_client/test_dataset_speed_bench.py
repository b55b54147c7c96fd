"""SPEED-Bench placeholders: resolved from small sources in their real formats, resumed, and reported if unresolved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_client.cli import exit_code
from specbench_client.dataset.speed_bench_preparation import PreparationReport, prepare_config
from specbench_client.dataset.speed_bench_texts import (
    PLACEHOLDER,
    UNSUPPORTED_SOURCES,
    ConfigRows,
    SpeedBenchRow,
    Unresolved,
    UpstreamTables,
    parse_row,
    resolve_row,
)
from specbench_client.errors import BadInput

HUB = "https://huggingface.co/datasets"


def columns(source: str, src_id: str, template: str = "", turns: int = 1, **further: Any) -> dict[str, Any]:
    first = f"{PLACEHOLDER}\n\n{template}" if template else PLACEHOLDER
    all_columns = {
        "question_id": f"{source.rsplit('/', 1)[-1]}-{src_id}", "category": "rag", "sub_category": "", "source": source,
        "turns": [first, *([PLACEHOLDER] * (turns - 1))], "src_id": src_id, "difficulty": "", "multiturn": turns > 1,
    }  # fmt: skip
    return all_columns | further


def row(source: str, src_id: str, template: str = "", turns: int = 1) -> SpeedBenchRow:
    return parse_row(columns(source, src_id, template, turns), "row 1")


def jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Write every supported source, with up to three rows each."""
    folder = tmp_path / "sources"
    numbers = range(3)
    cnn = {"id": [f"c{n}" for n in numbers], "article": [f"Article {n} with {{braces}}." for n in numbers]}
    (folder / "cnn_dailymail").mkdir(parents=True)
    pq.write_table(pa.table(cnn), folder / "cnn_dailymail" / "test-00000-of-00001.parquet")
    jsonl(folder / "hle/test.jsonl", [{"id": f"h{n}", "question": f"Hard question {n}?"} for n in numbers])
    jsonl(
        folder / "code_generation_lite/test.jsonl",
        [{"question_id": f"l{n}", "question_content": f"Problem {n}", "starter_code": "def f():"} for n in numbers],
    )
    jsonl(folder / "code_contests/test.jsonl", [{"name": f"k{n}", "description": f"Contest {n}"} for n in numbers])
    jsonl(
        folder / "opus-100/de-en/test.jsonl", [{"translation": {"de": f"Satz {n}", "en": f"Line {n}"}} for n in numbers]
    )
    history = [{"user": "first", "bot": "yes"}, {"user": "second", "bot": "no"}]
    jsonl(folder / "mt-bench-101/mtbench101.jsonl", [{"id": n, "history": history} for n in numbers])
    questions = [{"question": f"Which {n}?", "options": [f"a{n}", f"b{n}"]} for n in numbers]
    jsonl(folder / "mmlu-pro/test.jsonl", questions)
    for config, size in (("hybridial", 3), ("sqa", 2)):
        talks = [
            [{"role": "user", "content": f"{config} {n}?"}, {"role": "assistant", "content": "x"}] for n in numbers
        ]
        rows = [{"ctxs": [{"text": "one"}, {"text": "two"}], "messages": [*talk, *talk]} for talk in talks[:size]]
        jsonl(folder / f"chatrag-bench/{config}/test.jsonl", rows)
    lines = [{"role": "Hamlet", "question": f"Hamlet, to be {n}?"} for n in numbers]
    jsonl(folder / "rolebench/instructions-eng/role_specific/test.jsonl", lines)
    (folder / "rolebench/profiles-eng").mkdir()
    (folder / "rolebench/profiles-eng/desc.json").write_text(json.dumps({"Hamlet": "A prince."}, indent=2))
    return folder


ROLEBENCH = f"{HUB}/ZenMoore/RoleBench/tree/abc/rolebench-eng"
RESOLVED = [
    (row(f"{HUB}/abisee/cnn_dailymail", "c1", "Sum up: {article}"), ["Sum up: Article 1 with {braces}."]),
    (row(f"{HUB}/cais/hle", "h2"), ["Hard question 2?"]),
    (
        row(f"{HUB}/livecodebench/code_generation_lite", "l0", "{question}\n\n{starter_code}"),
        ["Problem 0\n\ndef f():"],
    ),
    (row(f"{HUB}/deepmind/code_contests", "k1", "Solve. {question}"), ["Solve. Contest 1"]),
    (row(f"{HUB}/Helsinki-NLP/opus-100", "opus_de-en_2", "To English: {question[de]}"), ["To English: Satz 2"]),
    (row(f"{HUB}/Helsinki-NLP/opus-100", "opus_de-en_0", "{question}"), ["{'de': 'Satz 0', 'en': 'Line 0'}"]),
    (row("https://github.com/mtbench101/mt-bench-101/raw/x.jsonl", "mt_1", turns=2), ["first", "second"]),
    (
        parse_row(columns(f"{HUB}/TIGER-Lab/MMLU-Pro", "law(1, 3)", turns=2, sub_category="law"), "row 1"),
        [
            (
                "The following are multiple choice questions (with answers) about law. Think step by step and then"
                ' finish your answer with "the answer is (X)" where X is the correct letter choice.\n\n'
                "Question: Which 1?\n\nOptions: (A) a1\n(B) b1\n\n"
            ),
            "Question: Which 2?\n\nOptions: (A) a2\n(B) b2\n\n",
        ],
    ),
    (
        row(f"{HUB}/nvidia/ChatRAG-Bench", "sqa_4", turns=2),
        [
            "Please give a full and complete answer for the questions. \n\nContext:\none\n\ntwo\n\nQuestion:\nsqa 1?",
            "sqa 1?",
        ],
    ),
    (
        row(ROLEBENCH, "rolebench_instructions-eng_0_2", "You are {role_name}. {role_description_and_catchphrases}", 2),
        ["You are Hamlet. A prince.\nHamlet, to be 0?", "to be 2?"],
    ),
]


@pytest.mark.parametrize(
    ("given", "turns"), RESOLVED, ids=lambda value: value.src_id if hasattr(value, "src_id") else ""
)
def test_placeholder_is_replaced_by_the_text_of_its_source(
    given: SpeedBenchRow, turns: list[str], sources: Path
) -> None:
    assert resolve_row(given, ConfigRows("qualitative", [], UpstreamTables(sources))) == turns


@pytest.mark.parametrize(("name", "marker"), UNSUPPORTED_SOURCES.items())
def test_unsupported_source_is_rejected_with_the_publishers_program(name: str, marker: str, sources: Path) -> None:
    del name
    with pytest.raises(Unresolved, match=r"not supported, because .*prepare_data\.py"):
        resolve_row(row(f"{HUB}/{marker}", "x_1"), ConfigRows("qualitative", [], UpstreamTables(sources)))


@pytest.mark.parametrize(
    ("given", "config", "word"),
    [
        (row(f"{HUB}/cais/hle", "h1"), "agentic", "its config agentic does not name a length"),
        (row(f"{HUB}/TIGER-Lab/MMLU-Pro", "biology_7"), "qualitative", "contains no pair of numbers"),
        (row(f"{HUB}/nvidia/ChatRAG-Bench", "sqa_9"), "qualitative", "chatrag-bench/sqa has 2 rows, so no row 6"),
        (row(f"{HUB}/cais/hle", "h9"), "qualitative", "no row whose id is 'h9'"),
        (row(f"{HUB}/abisee/cnn_dailymail", "c1"), "qualitative", "its placeholder has no template"),
        (
            row(f"{HUB}/abisee/cnn_dailymail", "c1", "{text}"),
            "qualitative",
            "uses 'text', but the source only has art",
        ),
        (row(f"{HUB}/Helsinki-NLP/opus-100", "de-en_2", "{question}"), "qualitative", "NAME_LANGUAGES_NUMBER"),
        (row(f"{HUB}/Helsinki-NLP/opus-100", "o_de-en_3", "{question}"), "qualitative", "has 3 rows, so no row 3"),
        (row(ROLEBENCH, "rolebench", "{role_name}"), "qualitative", "NAME_FOLDER_NUMBER"),
        (row(f"{HUB}/some/thing-new", "1"), "qualitative", "not supported by this version"),
    ],
)
def test_row_that_cannot_be_resolved_is_rejected_with_the_reason(
    given: SpeedBenchRow, config: str, word: str, sources: Path
) -> None:
    with pytest.raises(Unresolved, match=word):
        resolve_row(given, ConfigRows(config, [given], UpstreamTables(sources)))


@pytest.mark.parametrize(
    ("content", "message"), [('{"id": "h1", "text": "?"}', "HLE: a row has no 'question'"), ("{broken", "not JSON")]
)
def test_source_with_an_unexpected_format_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "hle").mkdir()
    (tmp_path / "hle/test.jsonl").write_text(content + "\n")
    with pytest.raises(Unresolved, match=message):
        resolve_row(row(f"{HUB}/cais/hle", "h1"), ConfigRows("qualitative", [], UpstreamTables(tmp_path)))


def test_gated_dataset_is_requested_once_and_explains_access(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []

    def refuse(*given: object, **further: object) -> NoReturn:
        requested.append((given, further))
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'cais/hle' is a gated dataset on the Hub.")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    origins = UpstreamTables()
    for name in ("h1", "h2"):
        with pytest.raises(Unresolved, match=r"is a gated dataset(.|\n)*request access.*HF_TOKEN.*hle/ in the folder"):
            resolve_row(row(f"{HUB}/cais/hle", name), ConfigRows("qualitative", [], origins))
    assert requested == [
        (("cais/hle", None), {"split": "test", "revision": "021a3d71f516a7ac28ceb8d284969902edf1edeb"})
    ]


@pytest.mark.process
def test_files_are_loaded_by_the_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = tmp_path / "mtbench101/mt-bench-101/data.jsonl"
    jsonl(file, [{"id": n, "history": [{"user": f"turn {n}", "bot": "b"}]} for n in range(3)])
    assert resolve_row(row(str(file), "mt_2"), ConfigRows("qualitative", [], UpstreamTables())) == ["turn 2"]


def check_progress(done: int, total: int) -> None:
    assert done <= total


def prepare(rows: list[SpeedBenchRow], folder: Path, sources: Path) -> PreparationReport:
    return prepare_config(rows, "qualitative", folder, UpstreamTables(sources), check_progress)


WHOLE = parse_row(columns("own", "1") | {"turns": ["a text"], "category": "qa"}, "row 1")


def test_every_row_is_written_and_every_gap_is_reported(tmp_path: Path, sources: Path) -> None:
    rows = [WHOLE, RESOLVED[0][0], row(f"{HUB}/RUCAIBox/BAMBOO", "q(1, 2)"), row(f"{HUB}/cais/hle", "h9")]
    report = prepare(rows, tmp_path / "out", sources)
    assert (report.rows, report.whole, report.resolved) == (4, 1, 1)
    assert [(gap.source, gap.rows, gap.first) for gap in report.gaps] == [
        ("BAMBOO", 1, ["BAMBOO-q(1, 2)"]), ("HLE", 1, ["hle-h9"]),
    ]  # fmt: skip
    assert [(one.category, one.rows, one.usable) for one in report.coverage] == [("qa", 1, 1), ("rag", 3, 1)]
    assert report.revisions == {"CNN/DailyMail": "its publisher's own preparation pins no revision"}
    written = pq.read_table(report.file).to_pylist()
    assert [one["turns"][0][:11] for one in written] == ["a text", "Sum up: Art", PLACEHOLDER[:11], PLACEHOLDER[:11]]
    assert set(written[0]) == set(WHOLE.columns)


def test_texts_with_unusual_line_ends_are_kept_on_resume(tmp_path: Path, sources: Path) -> None:
    jsonl(sources / "hle/test.jsonl", [{"id": "h1", "question": "one\u2028two\x85three\r\nfour"}])
    given = [row(f"{HUB}/cais/hle", "h1")]
    assert prepare(given, tmp_path, sources).fingerprint == prepare(given, tmp_path, sources).fingerprint


def test_prepare_command_exits_with_3_when_rows_are_unresolved(
    tmp_path: Path, sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "SPEED-Bench" / "qualitative" / "test-00000-of-00001.parquet"
    given.parent.mkdir(parents=True)
    own = [dict(RESOLVED[0][0].columns), columns(f"{HUB}/Neph0s/CoSER", "x_1")]
    pq.write_table(pa.Table.from_pylist(own), given)
    command = ["dataset", "prepare", "speed-bench", "--config", "qualitative", "--from", str(tmp_path / "SPEED-Bench")]
    command += ["--sources", str(sources), "--to", str(tmp_path / "out")]
    assert exit_code(command) == 3
    out = capsys.readouterr().out
    assert "qualitative: 1 of 2 prompts are complete" in out
    assert "unresolved: 1 of CoSER (CoSER-x_1 …): not supported, because" in out
    pq.write_table(pa.Table.from_pylist(own[:1]), given)
    assert exit_code([*command, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gaps"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["speed-bench"], "needs --config"),
        (["speed-bench", "--config", "qualitative", "--isl", "8k"], "--isl does not apply to speed-bench"),
        (["in.jsonl"], "needs --isl"),
        (["in.jsonl", "--isl", "8k", "--config", "qualitative"], "--config does not apply to in.jsonl"),
    ],
)
def test_options_of_the_other_dataset_kind_are_rejected(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["dataset", "prepare", *arguments, "--to", "out"]) == 2
    assert word in capsys.readouterr().err


def test_folder_without_the_config_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["dataset", "prepare", "speed-bench", "--config", "throughput_1k", "--to", "out"]
    assert exit_code([*command, "--from", str(tmp_path)]) == 2
    assert "contains no throughput_1k/*.parquet" in capsys.readouterr().err


def test_rows_of_another_dataset_are_rejected() -> None:
    with pytest.raises(BadInput, match=r"row 7 has no source: give SPEED-Bench's own files"):
        parse_row(columns("x", "1") | {"source": None}, "row 7")
    with pytest.raises(BadInput, match="turns that are not a list of strings"):
        parse_row(columns("x", "1") | {"turns": [{"role": "user"}]}, "row 7")


# -- HLE with few-shot examples ----------------------------------------------------------------------------------------


class ByteTokenizer:
    """A tokenizer with one token per byte."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())

    def decode_bytes(self, tokens: list[int]) -> bytes:
        return bytes(tokens)


@pytest.fixture
def hle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[SpeedBenchRow]:
    """Write forty questions; return the test half, as SPEED-Bench rows."""
    monkeypatch.setattr(UpstreamTables, "ruler", lambda _: ByteTokenizer())
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [
        {"id": f"h{n}", "question": f"Why {n}? " * (1 + n % 5), "rationale": f"since {n} " * (n % 7 + 3),
         "category": ("Math", "Law")[n % 2], "image": "data:" if n % 11 == 3 else ""}
        for n in range(40)
    ]  # fmt: skip
    jsonl(tmp_path / "hle/test.jsonl", rows)
    parted = datasets.Dataset.from_json(str(tmp_path / "hle/test.jsonl"))
    return [row(f"{HUB}/cais/hle", name) for name in parted.train_test_split(test_size=0.5, seed=42)["test"]["id"]]


@pytest.mark.process
def test_few_shot_examples_match_the_publishers_sampling(hle: list[SpeedBenchRow], tmp_path: Path) -> None:
    """The reference is pandas' `sample`, which that program calls, with one generator over all rows."""
    questions = pd.read_json(tmp_path / "hle/test.jsonl", lines=True).set_index("id")
    order = datasets.Dataset.from_json(str(tmp_path / "hle/test.jsonl")).train_test_split(test_size=0.5, seed=42)
    shown = questions.loc[order["train"]["id"]]
    shown = shown[shown["image"] == ""]
    draws = np.random.default_rng(42)
    config_rows = ConfigRows("throughput_1k", hle, UpstreamTables(tmp_path))
    for given in hle:
        last, kind = (str(questions.loc[given.src_id, name]) for name in ("question", "category"))
        text = f"Please answer the question below.\n\nHere are some examples of question and answer pairs in the category of {kind}:\n\n"  # noqa: E501
        while len(text) + len(last) < 1000:
            one = shown[shown["category"] == kind].sample(1, random_state=draws).iloc[0]
            text += f"Question: {one['question']}\n\nAnswer: {one['rationale']}\n\n"
        assert resolve_row(given, config_rows) == [text[: 1000 - len(last) + 1] + last]
