"""The dataset argument of a command, and the hint when a published dataset is given as an own prompt file."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.workload import Output, Sampling
from specbench_client.cli import exit_code
from specbench_client.dialects.dialect import CompletionRequest
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompts import Prompts, load_prompts
from specbench_client.workload.row_outcomes import check_rows
from specbench_client.workload.row_parsing import BAD_CALLS, FUNCTIONS, RowWithoutText, parse_prompt
from specbench_client.workload.row_shapes import own_columns, unsent_text
from specbench_client.workload.source_detection import guess_dataset, guess_source, shape_hint
from specbench_testing.present import present

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


def test_file_uri_is_the_path_that_it_names(tmp_path: Path) -> None:
    """RFC 8089; its path is percent-encoded."""
    file = tmp_path / "my p\u00fc.jsonl"
    file.write_bytes(OURS)
    assert guess_dataset(file.as_uri()) == {"source": "jsonl", "uri": str(file)}


@pytest.mark.parametrize(("place", "reason"), [("pipe", "Is a pipe or a device"), ("", "Is a directory")])
def test_what_is_no_file_is_named(place: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=reason):
        guess_dataset(str(tmp_path / place))


@pytest.mark.parametrize(
    "row",
    [
        {"custom_id": "r1", "response": {"status_code": 200, "body": {"choices": [{"message": {}}]}}, "error": None},
        {"custom_id": "r1", "response": {"body": json.dumps({"choices": []})}},
        {"id": "c", "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "So."}}]},
    ],
)
def test_answers_without_prompts_are_named(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(row))
    with pytest.raises(BadInput, match="line 1: is an answer without its prompt"):
        load_guessed(tmp_path / "p.jsonl")


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


@pytest.mark.parametrize("talk", [[], [{"from": "human", "value": "Why?"}], "text"])
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
        (Source.JSONL, {"body": "x"}, "name the column with the prompt's text: dataset.promptColumn"),
        (Source.CSV, {"0": "1", "Why?": "How?"}, "name the column with the prompt's text: dataset.promptColumn; if"),
        (Source.JSONL, {"id": "a", "prompt": "x", "problem": "y", "solution": "z"}, ""),
        (Source.JSONL, {"id": None}, ""),
        (Source.GSM8K, {"problem": "a", "solution": "b"}, ""),
    ],
)
def test_shape_hint_is_given_only_for_own_files(source: Source, columns: Mapping[str, str], hint: str) -> None:
    found = shape_hint(source, columns)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


ASKED = {"role": "user", "content": "Why?"}
ANSWERED = {"role": "assistant", "content": "So."}
SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {**SYSTEM, "role": "developer"}
HUMAN, GPT = {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}]}
TWO = {"role": "user", "content": [{"type": "text", "text": "Why?"}, {"type": "text", "text": "How?"}]}
DOTTED = {f"attributes.llm.input_messages.0.message.{key}": value for key, value in ASKED.items()}
NESTED = {"attributes": {"llm": {"input_messages": [{"message": ASKED}]}}, "context": {"span_id": "s1"}}
SHAPES: dict[str, tuple[Any, str, list[Any]]] = {
    "roles in conversations": ({"id": "a", "conversations": [ASKED, ANSWERED]}, "a", [ASKED]),
    "system first": ({"conversations": [{"from": "system", "value": "Be brief."}, HUMAN, GPT]}, "-1", [SYSTEM, ASKED]),
    "no roles": ({"conversations": [{"content": "Why?"}, {"content": "So."}]}, "-1", [ASKED]),
    "one message": ({"conversations": [HUMAN]}, "-1", [ASKED]),
    "system beside ShareGPT": ({"system": "Be brief.", "conversations": [HUMAN, GPT]}, "-1", [SYSTEM, ASKED]),
    "system of Anthropic": ({"model": "m", "system": "Be brief.", "messages": [ASKED]}, "-1", [SYSTEM, ASKED]),
    "system said twice": ({"system": "Be brief.", "messages": [SYSTEM, ASKED]}, "-1", [SYSTEM, ASKED]),
    "system and question": ({"system_prompt": "Be brief.", "question": "Why?"}, "-1", [SYSTEM, ASKED]),
    "name": ({"messages": [{**ASKED, "name": "Bob"}]}, "-1", [{**ASKED, "name": "Bob"}]),
    "name in a log": ({"model": "m", "messages": [{**ASKED, "name": "Bob"}]}, "-1", [{**ASKED, "name": "Bob"}]),
    "extra keys of a part": ({"messages": [PARTS]}, "-1", [PARTS]),
    "two parts in a log": ({"model": "m", "messages": [TWO]}, "-1", [TWO]),
    "parts of the Responses API": (
        {"model": "m", "input": json.loads(json.dumps([TWO]).replace('"text",', '"input_text",'))},
        "-1",
        [TWO],
    ),
    "empty fields": ({"messages": [{**ASKED, "refusal": None, "annotations": []}]}, "-1", [ASKED]),
    "time of a message": ({"messages": [{**ASKED, "timestamp": 1.5}]}, "-1", [ASKED]),
    "reasoning": (
        {"messages": [ASKED, {**ANSWERED, "reasoning_content": "?"}, ASKED]},
        "-1",
        [ASKED, {**ANSWERED, "reasoning_content": "?"}, ASKED],
    ),
    "other names of roles": ({"messages": [{**ASKED, "role": "Human"}]}, "-1", [ASKED]),
    "final answer": ({"messages": [ASKED, ANSWERED, ASKED, ANSWERED]}, "-1", [ASKED, ANSWERED, ASKED]),
    "UltraChat": ({"prompt": "Why?", "prompt_id": "x", "messages": [ASKED, ANSWERED]}, "-1", [ASKED]),
    "preferences": ({"chosen": [ASKED, ANSWERED], "rejected": [ASKED, ANSWERED]}, "-1", [ASKED]),
    "prompt with messages": ({"prompt": [ASKED], "completion": [ANSWERED]}, "-1", [ASKED]),
    "GSM8K": ({"question": "Why?", "answer": "3"}, "-1", [ASKED]),
    "Alpaca": ({"instruction": "Why?", "input": "", "output": "So."}, "-1", [ASKED]),
    "Alpaca with input": (
        {"instruction": "Why?", "input": "It is so.", "output": "So."},
        "-1",
        [{"role": "user", "content": "Why?\n\nIt is so."}],
    ),
    "Dolly": (
        {"instruction": "Why?", "context": "It is so.", "response": "So."},
        "-1",
        [{"role": "user", "content": "Why?\n\nIt is so."}],
    ),
    "batch": ({"custom_id": "r1", "url": "/v1/chat/completions", "body": {"messages": [ASKED]}}, "r1", [ASKED]),
    "Anthropic's batch": (
        {"custom_id": "r1", "params": {"system": "Be brief.", "messages": [ASKED]}},
        "r1",
        [
            SYSTEM,
            ASKED,
        ],
    ),
    "own column type": ({"type": "TOOL", "prompt": "Why?"}, "-1", [ASKED]),
    "proxy": ({"request_id": "r1", "proxy_server_request": {"body": {"messages": [ASKED]}}}, "r1", [ASKED]),
    "Langfuse": ({"id": "g1", "model": "m", "input": json.dumps([ASKED]), "output": "{}"}, "g1", [ASKED]),
    "Langfuse text": ({"id": "g1", "model": "m", "input": "Why?", "output": "So."}, "g1", [ASKED]),
    "Phoenix": ({"context.span_id": "s1", "span_kind": "LLM", **DOTTED}, "s1", [ASKED]),
    "Phoenix, nested": (NESTED, "s1", [ASKED]),
    "number of pandas": ({"id": 7.0, "prompt": "Why?"}, "7", [ASKED]),
    "fields of WildChat": ({"conversation": [{**ASKED, "hashed_ip": "ff", "country": "X"}, ANSWERED]}, "-1", [ASKED]),
    "fields of WildChat in a log": ({"messages": [{**ASKED, "hashed_ip": "ff", "toxic": False}]}, "-1", [ASKED]),
    "other fields of a data set": (
        {"conversations": [{**HUMAN, "images": ["a.png"], "context": {"k": 1}, "markdown": None}, GPT]},
        "-1",
        [{**ASKED, "images": ["a.png"], "context": {"k": 1}}],
    ),
    "other fields of a preference": (
        {"chosen": [{**ASKED, "images": ["a"]}, ANSWERED]},
        "-1",
        [{**ASKED, "images": ["a"]}],
    ),
    "a list for each field": (
        {"messages": {"role": ["user", "assistant", "user"], "content": ["Why?", "So.", "Why?"], "name": None}},
        "-1",
        [ASKED, ANSWERED, ASKED],
    ),
    "Arena-Hard": ({"question_id": "a", "turns": [{"content": "Why?"}]}, "a", [ASKED]),
    "turns of AIPerf": ({"turns": [{"text": "Why?"}]}, "-1", [ASKED]),
    "TGI": ({"inputs": "Why?", "parameters": {"max_new_tokens": 5}}, "-1", [ASKED]),
    "genai-perf": ({"text_input": "Why?"}, "-1", [ASKED]),
    "inputs of AIPerf": ({"session_id": "a", "payloads": [{"messages": [ASKED], "model": "m"}]}, "-1", [ASKED]),
    "samples of lm-eval": (
        {"doc": {"question": "Why?"}, "arguments": {"gen_args_0": {"arg_0": "Why?", "arg_1": {"until": []}}}},
        "-1",
        [ASKED],
    ),
    "samples of lm-eval with a chat template": (
        {"doc_id": 0, "arguments": {"gen_args_0": {"arg_0": '[{"role": "user", "content": "Why?"}]'}}},
        "-1",
        [ASKED],
    ),
    "threads of OpenAssistant": ({"thread": [{"text": "Why?", "role": "prompter"}]}, "-1", [ASKED]),
    "Bedrock's batch": ({"recordId": "1", "modelInput": {"messages": [ASKED]}}, "-1", [ASKED]),
    "items of the Responses API": ({"model": "m", "input": [{"type": "message", **ASKED}]}, "-1", [ASKED]),
    "types of LangChain": (
        {"messages": [{"type": "system", "content": "Be brief."}, {"type": "human", "content": "Why?"}]},
        "-1",
        [SYSTEM, ASKED],
    ),
    "data of LangChain": (
        {"inputs": {"input": [{"type": "human", "data": {"content": "Why?", "example": False, "id": "x"}}]}},
        "-1",
        [ASKED],
    ),
    "constructors of LangChain": (
        {"messages": [{"lc": 1, "type": "constructor", "kwargs": {"content": "Why?", "type": "human"}}]},
        "-1",
        [ASKED],
    ),
    "classes of LangChain": (
        {
            "messages": [
                {"lc": 1, "type": "constructor", "id": ["langchain", *path], "kwargs": {"content": text}}
                for *path, text in (
                    ("schema", "messages", "SystemMessage", "Be brief."),
                    ("schema", "messages", "HumanMessage", "Why?"),
                    ("schema", "messages", "AIMessageChunk", "So."),
                    ("schema", "HumanMessageChunk", "Why?"),
                )
            ]
        },
        "-1",
        [SYSTEM, ASKED, ANSWERED, ASKED],
    ),
    "role of LangChain's ChatMessage": (
        {"messages": [{"type": "constructor", "id": ["ChatMessage"], "kwargs": {"content": "Why?", "role": "user"}}]},
        "-1",
        [ASKED],
    ),
    "messages inside a class of LangChain": (
        {
            "input": {
                "type": "constructor",
                "id": ["langchain", "prompts", "chat", "ChatPromptValue"],
                "kwargs": {
                    "messages": [{"type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": "Why?"}}]
                },
            }
        },
        "-1",
        [ASKED],
    ),
    "batches of LangSmith": (
        {
            "inputs": {
                "messages": [
                    [
                        {"type": "human", "data": {"content": "Why?"}},
                        {"type": "ai", "data": {"content": "So."}},
                        {"type": "human", "data": {"content": "Why?"}},
                    ]
                ]
            }
        },
        "-1",
        [ASKED, ANSWERED, ASKED],
    ),
    "message with an attachment": (
        {"messages": [{**ASKED, "data": {"type": "assistant", "content": "a"}, "created_at": 1}]},
        "-1",
        [{**ASKED, "data": {"type": "assistant", "content": "a"}}],
    ),
    "message with arguments": (
        {"messages": [{"from": "human", "value": "Why?", "kwargs": {"content": "other"}}]},
        "-1",
        [{**ASKED, "kwargs": {"content": "other"}}],
    ),
    "system prompt of turns": ({"turns": ["Why?", "So?"], "system": "Be brief."}, "-1", [SYSTEM, ASKED]),
    "system prompt of BFCL": (
        {"input": {"question": [[ASKED], [ASKED]], "system_prompt": "Be brief."}},
        "-1",
        [SYSTEM, ASKED],
    ),
    "system prompt of BFCL in its question": (
        {"question": [[SYSTEM, ASKED], [ASKED]], "system": "Be brief."},
        "-1",
        [SYSTEM, ASKED],
    ),
    "BFCL": ({"id": "simple_0", "question": [[SYSTEM, ASKED]]}, "simple_0", [SYSTEM, ASKED]),
    "BFCL with a question": ({"id": "simple_0", "question": [[ASKED]]}, "simple_0", [ASKED]),
    "BFCL with two messages of a turn": (
        {"id": "multi_turn_0", "question": [[SYSTEM, ASKED], [ASKED]]},
        "multi_turn_0",
        [SYSTEM, ASKED],
    ),
    "content in an object": (
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}]},
        "-1",
        [ASKED],
    ),
    "Triton": ({"text_input": ["Why?"]}, "-1", [ASKED]),
    "inputs of genai-perf": ({"payload": [{"model": "m", "messages": [ASKED]}]}, "-1", [ASKED]),
    "one prompt of the completions API": ({"model": "m", "prompt": ["Why?"]}, "-1", [ASKED]),
    "Label Studio": ({"id": 7, "data": {"text": "Why?"}}, "7", [ASKED]),
    "item of OpenAI's evals": ({"item": {"question": "Why?", "answer": "So."}}, "-1", [ASKED]),
    "messages of an item": ({"item": {"input": [ASKED], "ideal": "So."}}, "-1", [ASKED]),
    "weights of fine-tuning": (
        {"messages": [ASKED, {**ANSWERED, "weight": 0}, ASKED, {**ANSWERED, "weight": 1}]},
        "-1",
        [ASKED, ANSWERED, ASKED],
    ),
    "Argilla": ({"fields": {"prompt": "Why?"}}, "-1", [ASKED]),
    "call of LiteLLM": ({"litellm_call_id": "1", "kwargs": {"messages": [ASKED]}}, "-1", [ASKED]),
    "parts of Bedrock": (
        {"system": [{"text": "Be brief."}], "messages": [{"role": "user", "content": [{"text": "Why?"}]}]},
        "-1",
        [SYSTEM, ASKED],
    ),
    "Gemini": (
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Why?"}]}, {"role": "model", "parts": [{"text": "So."}]}],
        },
        "-1",
        [SYSTEM, ASKED],
    ),
    "developer": (
        {"messages": [{**SYSTEM, "role": "developer"}, ASKED]},
        "-1",
        [{**SYSTEM, "role": "developer"}, ASKED],
    ),
}


def load_guessed(file: Path) -> Prompts:
    return load_prompts(Dataset.model_validate(guess_dataset(str(file))), file.parent)


def sent(prompts: Prompts) -> list[list[dict[str, Any]]]:
    requests = [CompletionRequest("m", prompt.turns[0], Sampling(), Output(), seed=0) for prompt in prompts.rows]
    return [request.prompt["messages"] for request in requests]


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "wrapped"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_prompt_is_sent_as_it_is_in_a_row_of_any_shape(shape: str, form: str, tmp_path: Path) -> None:
    row, name, messages = SHAPES[shape]
    file = tmp_path / f"p.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), file)
    elif form == "wrapped":
        file.write_text(json.dumps({"data": [row]}, indent=1))
    else:
        file.write_text(json.dumps(row if form == "jsonl" else [row]))
    found = load_guessed(file)
    assert sent(found) == [messages]
    assert found.rows[0].id == (f"{'line' if form == 'jsonl' else 'row'}{name}" if name == "-1" else name)
    assert exit_code(["dataset", "inspect", str(file)]) == Exit.OK


LINES = "".join(
    json.dumps({"id": f"q{at}", "prompt": f"Why\u2028 {at} ü?"}, ensure_ascii=False) + "\n" for at in (1, 2)
)
TABLE = "".join(f"q{at}X'Why\u2028 {at} ü?'\n" for at in (1, 2)).replace("'", '"')


def zipped(data: bytes, *names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names or ("__MACOSX/._p.jsonl", "p/", "p/p.jsonl"):
            archive.writestr(name, b"" if name.endswith("/") else data)
    return file.getvalue()


SPLIT_LINES = [f"{line}\n" for line in LINES.strip().split("\n")]
ENCODED: dict[str, bytes] = {
    "p.jsonl.bz2": bz2.compress(LINES.encode()),
    "p.jsonl.xz": lzma.compress(LINES.encode()),
    "p.jsonl.zst": pa.compress(LINES.encode(), codec="zstd", asbytes=True),
    "frames.jsonl.zst": b"".join(pa.compress(line.encode(), codec="zstd", asbytes=True) for line in SPLIT_LINES),
    "pzstd.jsonl.zst": b"".join(
        b"\x50\x2a\x4d\x18\x04\0\0\0\0\0\0\0" + pa.compress(line.encode(), codec="zstd", asbytes=True)
        for line in SPLIT_LINES
    ),
    "last-skippable.zst": b"\x5f\x2a\x4d\x18\0\0\0\0" + pa.compress(LINES.encode(), codec="zstd", asbytes=True),
    "p.zip": zipped(LINES.encode()),
    "misnamed.jsonl": lzma.compress(LINES.encode()),
    "utf-16.jsonl": LINES.encode("utf-16"),
    "big-endian.jsonl": b"\xfe\xff" + LINES.encode("utf-16-be"),
    "utf-16.json.gz": gzip.compress(f"[{LINES.strip().replace(chr(10), ',')}]".encode("utf-16"), mtime=0),
    "macintosh.jsonl": LINES.replace("\n", "\r").encode(),
    "joined.jsonl": "".join(f"\ufeff{line}\n" for line in LINES.strip().split("\n")).encode(),
    "empty-rows.csv": f"id,prompt\n{TABLE.replace('X', ',')},\n  \n".encode(),
    "windows.jsonl": LINES.replace("\n", "\r\n").encode(),
    "indented.jsonl": "".join(json.dumps(json.loads(line), indent=2) for line in LINES.strip().split("\n")).encode(),
    "concatenated.json": LINES.replace("\n", "").encode(),
    "separated.json": LINES.replace("\n", "\t").encode(),
    "two-a-line.json": (LINES.replace("\n", " ").strip() + "\n").encode(),
    "sequence.json": "".join(f"\x1e{line}" for line in SPLIT_LINES).encode(),
    "indented-sequence.json": "".join(
        f"\x1e{json.dumps(json.loads(line), indent=2)}\n" for line in SPLIT_LINES
    ).encode(),
    "two-arrays.json": "".join(f"[{line}]\n" for line in LINES.strip().split("\n")).encode(),
    "named.parquet": LINES.encode(),
    "semicolons.csv": f"id;prompt\n{TABLE.replace('X', ';')}".encode(),
    "bars.csv": f"id|prompt\n{TABLE.replace('X', '|')}".encode(),
    "excel.csv": f"sep=;\r\nid;prompt;;\r\n{TABLE.replace('X', ';')}".replace('"\n', '";;\r\n').encode(),
    "below-empty-lines.csv": f"\n \nid,prompt\n{TABLE.replace('X', ',')}".encode(),
    "macintosh.csv": f"id,prompt\n{TABLE.replace('X', ',')}".replace("\n", "\r").encode(),
    "tabs.tsv.xz": lzma.compress(f"id\tprompt\n{TABLE.replace('X', chr(9))}".encode("utf-16")),
}


@pytest.mark.parametrize("name", ENCODED)
def test_format_compression_and_encoding_follow_from_the_content(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ENCODED[name])
    found = load_guessed(tmp_path / name)
    assert [(prompt.id, prompt.turns[0][0].content) for prompt in found.rows] == [
        ("q1", "Why\u2028 1 ü?"),
        ("q2", "Why\u2028 2 ü?"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "prompts"),
    [
        ("p.txt", b"Why?\n\n  indented\r\nHow?", ["Why?", "  indented", "How?"]),
        ("P.TXT", "\ufeffWhy é?\n".encode(), ["Why é?"]),
        ("p.txt", "Why?\nHow?\n".encode("utf-16"), ["Why?", "How?"]),
        ("p.txt.gz", gzip.compress(b"Why?\nHow?\n", mtime=0), ["Why?", "How?"]),
        (
            "p.txt",
            b"[INST] Why? [/INST]\n{{name}}, how?\n{x} + 1\n",
            ["[INST] Why? [/INST]", "{{name}}, how?", "{x} + 1"],
        ),
        ("p.txt", b"id,prompt\n1,Why?\n", ["Why?"]),
        ("p.txt.gz", gzip.compress(b'"ID"; prompt ;\r\n1;"Why;";\r\n', mtime=0), ["Why;"]),
        ("p.txt", b"question\nWhy?\n", ["question", "Why?"]),
        ("p.txt", b"id,prompt,category\n1,Why?,qa\n", ["Why?"]),
        ("p.txt", b"prompt;id\nWhy?;1\n", ["Why?"]),
        ("p.txt", b"prompt, please: why?\nQuestion: how?", ["prompt, please: why?", "Question: how?"]),
        ("p.txt", b'{"prompt": "Why?"}\n{"prompt": "How?"}\n', ["Why?", "How?"]),
        ("p.txt", b'{\n "prompt": "Why?"\n}', ["Why?"]),
        ("p.txt", b'["Why?", "How?"]', ["Why?", "How?"]),
    ],
)
def test_each_line_of_a_text_is_a_prompt(name: str, data: bytes, prompts: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert guess_source(str(tmp_path / name)) is Source.JSONL
    loaded = load_prompts(Dataset(source=Source.JSONL, uri=name), tmp_path)
    assert [row.turns[0][0].content for row in loaded.rows] == prompts


ROWS = {
    "p.jsonl": b'{"q": "Why?", "prompt": "no"}\n',
    "p.csv": b"q,other\nWhy?,no\n",
    "p.json": b'[{"q": "Why?", "messages": [{"role": "user", "content": "no"}], "turns": ["no"]}]',
}


@pytest.mark.parametrize("name", ROWS)
def test_the_column_of_the_prompts_can_be_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(ROWS[name])
    source = Source.CSV if name == "p.csv" else Source.JSONL
    loaded = load_prompts(Dataset(source=source, uri=name, prompt_column="q"), tmp_path)
    assert [[(one.role, one.content) for one in turn] for turn in loaded.rows[0].turns] == [[("user", "Why?")]]
    with pytest.raises(BadInput, match=f"{name}, (line|row) .*p is missing.*: q, "):
        load_prompts(Dataset(source=source, uri=name, prompt_column="p"), tmp_path)


def test_each_list_of_messages_in_a_question_is_a_turn_of_the_conversation(tmp_path: Path) -> None:
    question = [[SYSTEM, ASKED], [{**ASKED, "content": "How?"}], [ASKED, ANSWERED, ASKED]]
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "multi_turn_0", "question": question}))
    (prompt,) = load_guessed(tmp_path / "p.jsonl").rows
    assert [[one.content for one in turn] for turn in prompt.turns] == [
        ["Be brief.", "Why?"],
        ["How?"],
        ["Why?", "So.", "Why?"],
    ]


@pytest.mark.parametrize(
    "question", [[[ASKED], []], [[ASKED], [ASKED, ANSWERED]], [[ANSWERED], [ASKED]], [[], [ASKED]]]
)
def test_lists_of_messages_that_are_no_turns_are_refused(question: list[Any], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"question": question}))
    with pytest.raises(BadInput, match="line 1"):
        load_guessed(tmp_path / "p.jsonl")


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OLDER_CALL = {"function_call": {"name": "f", "arguments": "{}"}}
INVALID = {"invalid_tool_calls": [{"name": "f", "args": "{", "id": "1"}]}
WRAPPERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "constructor": lambda fields: {"type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": fields},
    "data": lambda fields: {"type": "ai", "data": fields},
    "flat": lambda fields: {"type": "ai", **fields},
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"additional_kwargs": {"tool_calls": [CALL]}}, ""),
        ({"tool_calls": [], "additional_kwargs": {"tool_calls": [CALL]}}, ""),
        ({"tool_calls": [CALL], "additional_kwargs": {"tool_calls": [{**CALL, "id": "2"}]}}, ""),
        ({"additional_kwargs": OLDER_CALL}, FUNCTIONS),
        (INVALID, BAD_CALLS),
        ({"tool_calls": [CALL], **INVALID}, BAD_CALLS),
    ],
)
def test_the_call_of_a_langchain_message_is_kept_or_refused(wrapper: str, fields: dict[str, Any], reason: str) -> None:
    calling = WRAPPERS[wrapper]({"content": "I call.", **fields})
    row = PromptRow("line 1", {"messages": [ASKED, calling, {"role": "tool", "tool_call_id": "1", "content": "r"}]})
    if reason:
        with pytest.raises(RowWithoutText, match=reason):
            parse_prompt(replace(row, columns=own_columns(row)))
        return
    _, call, _ = parse_prompt(replace(row, columns=own_columns(row))).messages
    assert call.sent == {
        "role": "assistant",
        "content": "I call.",
        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}],
    }


@pytest.mark.parametrize("turns", [{"question": [[ASKED], [ASKED]]}, {"turns": ["Why?", "So?"]}])
def test_tools_inside_a_request_go_with_its_turns(turns: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    row = PromptRow("line 1", {"input": {**turns, "tools": tools}})
    first, *_ = parse_prompt(replace(row, columns=own_columns(row))).messages
    assert json.loads(first.tools) == tools


def test_published_sources_have_their_own_column() -> None:
    with pytest.raises(ValidationError, match="promptColumn"):
        Dataset(source=Source.GSM8K, prompt_column="question")


@pytest.mark.parametrize("data", [b'{"prompt": "Why?"\n', b'["Why?\n', b"Why?\n\xff\n", b"\n\n", b""])
def test_broken_or_empty_text_is_rejected(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(data)
    with pytest.raises(BadInput, match=r"p\.txt"):
        load_prompts(Dataset(source=Source.JSONL, uri="p.txt"), tmp_path)


def test_conversations_and_texts_may_be_rows(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    for text in (f"{json.dumps([HUMAN, GPT])}\n" * 2, json.dumps([[ASKED], [ASKED, ANSWERED]]), '["Why?", "Why?"]'):
        file.write_text(text)
        assert sent(load_guessed(file)) == [[ASKED], [ASKED]]


def test_other_spans_of_a_trace_are_left_out(tmp_path: Path) -> None:
    spans = [{"traceId": "t", "type": kind, "model": "m", "input": "Why?"} for kind in ("SPAN", "GENERATION")]
    (tmp_path / "p.json").write_text(json.dumps(spans))
    found = load_guessed(tmp_path / "p.json")
    assert sent(found) == [[ASKED]]
    assert present(found.coverage).excluded == {"is a span of a trace that is no call of a model": 1}


@pytest.mark.parametrize(("row", "text"), [({"prompt": "Why?"}, "Why?"), ({"task": "Why?"}, '{"task": "Why?"}')])
def test_a_row_that_was_encoded_twice_is_read(row: dict[str, str], text: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(f"{json.dumps(json.dumps(row))}\n" * 2)
    assert sent(load_guessed(tmp_path / "p.jsonl")) == [[{"role": "user", "content": text}]] * 2


def test_messages_of_other_roles_that_are_rows_are_left_out(tmp_path: Path) -> None:
    rows = [{"text": text, "role": role} for text, role in (("Why?", "prompter"), ("So.", "assistant"))]
    (tmp_path / "p.json").write_text(json.dumps(rows))
    found = load_guessed(tmp_path / "p.json")
    assert sent(found) == [[ASKED]]
    assert present(found.coverage).excluded == {"is a message of the role assistant": 1}


def test_an_empty_conversation_of_sharegpt_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps([{"conversations": talk} for talk in ([HUMAN, GPT], [])]))
    found = load_guessed(tmp_path / "p.json")
    assert sent(found) == [[ASKED]]
    assert present(found.coverage).excluded == {"fewer than two messages": 1}


def test_a_decimal_number_is_an_id(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [Decimal(7)], "prompt": ["Why?"]}), tmp_path / "p.parquet")
    assert [prompt.id for prompt in load_guessed(tmp_path / "p.parquet").rows] == ["7"]


def test_a_field_of_a_message_that_json_lacks_is_rejected_by_its_type(tmp_path: Path) -> None:
    rows = [{"messages": [{**ASKED, "sent_at": datetime(2026, 1, 1, tzinfo=UTC)}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match=r"row 1: a field of a message is not JSON .*datetime.*: remove it, or convert"):
        load_guessed(tmp_path / "p.parquet")


def test_an_archive_of_several_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "p.zip").write_bytes(zipped(b"{}", "a.jsonl", "b.jsonl"))
    with pytest.raises(BadInput, match="it contains 2 files: unpack it"):
        load_guessed(tmp_path / "p.zip")


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "Who?", "context": "A page."}, ["context"]),
        ({"question": "2+2?", "options": ["3", "4"], "document": ""}, ["options"]),
        ({"prompt": "Read this: A page.", "context": "A page."}, []),
        ({"instruction": "Why?", "input": "It is so."}, []),
        ({"messages": [ASKED], "context": "A page."}, []),
        ({"prompt": "Who?", "image": {"path": "a.png"}, "audio": None}, ["image"]),
        ({"conversations": [HUMAN, GPT], "images": ["a.png"]}, ["images"]),
        ({"question": [[ASKED]], "function": [{"name": "f"}]}, ["function"]),
        ({"prompt": "def f():", "suffix": "return x"}, ["suffix"]),
        ({"prompt": "def f():", "suffix": ""}, []),
        ({"input": "Why?", "previous_response_id": "resp_1", "prompt": "Why?"}, ["previous_response_id"]),
        ({"custom_id": "1", "body": {"input": [ASKED], "previous_response_id": "r"}}, ["previous_response_id"]),
        ({"prompt": "def f():", "request": {"body": {"prompt": "def f():", "suffix": "return x"}}}, ["suffix"]),
        ({"prompt": "Why?", "body": '{"prompt": "Why?", "suffix": "So."}'}, ["suffix"]),
    ],
)
def test_text_beside_the_prompt_is_named(row: Mapping[str, Any], columns: list[str]) -> None:
    prompt = row.get("prompt", row.get("question"))
    note = unsent_text([PromptRow("line 1", {"prompt": prompt}, dict(row))])
    names = ("context", "input", "options", "document", "suffix", "image", "images", "audio", "function")
    assert [name for name in (*names, "previous_response_id") if re.search(rf"\b{name}\b", note)] == columns


@pytest.mark.parametrize(
    ("source", "row", "named"),
    [
        ("jsonl", {"token_ids": [1, 2], "system": "Be brief."}, "system"),
        ("spec-bench", {"question_id": 1, "turns": ["Why?"], "system_prompt": "Be brief."}, "system_prompt"),
        ("agent-traces", {"id": "s", "messages": [ASKED, ANSWERED], "system": "Be brief."}, "system"),
        ("jsonl", {"prompt": "Why?", "system": "Be brief."}, ""),
        ("jsonl", {"messages": [{"role": "developer", "content": "Be brief."}, ASKED], "system": "Be brief."}, ""),
        ("jsonl", {"turns": ["Why?", "So?"], "instructions": "Be brief."}, ""),
        ("openai-logs", {"messages": [ASKED], "model": "m", "system": "Be brief."}, ""),
        ("jsonl", {"messages": [{"role": "developer", "content": "Be brief."}, ASKED]}, ""),
        ("openai-logs", {"input": "Why?", "model": "m", "conversation": "conv_1"}, "conversation"),
        ("openai-logs", {"body": {"input": [ASKED], "conversation": {"id": "conv_1"}}}, "conversation"),
        ("jsonl", {"conversation": [ASKED, ANSWERED]}, ""),
        ("jsonl", {"prompt": "Hi.", "conversation": [ASKED, ANSWERED]}, "conversation"),
    ],
)
def test_a_system_prompt_or_a_stored_conversation_is_named_where_it_is_not_sent(
    source: str, row: dict[str, Any], named: str
) -> None:
    found = check_rows([PromptRow("line-1", row)], Dataset(source=Source(source), uri="p.jsonl"), with_tools=False)
    assert len(found.prompts) == 1
    note = re.match(r"the content of (.*) is not sent", unsent_text(found.rows))
    assert (note[1] if note else "") == named


def test_later_questions_of_a_conversation_are_named_only_where_they_are_not_sent() -> None:
    asked = [{"from": who, "value": f"{who} {turn}"} for turn in range(3) for who in ("human", "gpt")]
    rows = [PromptRow("row 1", {"messages": asked[:1]}, {"conversations": asked})]
    assert unsent_text(rows).startswith("2 later questions of 1 conversations are not sent")
    assert unsent_text([PromptRow("row 1", {"messages": asked[:5]}, {"conversations": asked})]) == ""


def test_truncated_rows_are_not_sent(tmp_path: Path) -> None:
    rows = [
        {"row_idx": at, "row": {"prompt": "Why?"}, "truncated_cells": cells}
        for at, cells in enumerate(([], ["prompt"]))
    ]
    (tmp_path / "p.json").write_text(json.dumps({"rows": rows}))
    with pytest.raises(BadInput, match="1 of 2 rows cannot be sent as text: row 2"):
        load_guessed(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"ARROW1\0\0", "an Arrow file"),
        (b"\xff\xff\xff\xff", "an Arrow file"),
        (b"SQLite format 3\0", "a database"),
        (b"7z\xbc\xaf", "compressed"),
        (b"\x93NUMPY", "no file of text"),
        (bytes(257) + b"ustar", "a tar archive"),
    ],
)
def test_a_file_without_rows_of_text_is_named(begin: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(begin + bytes(64))
    with pytest.raises(BadInput, match=f"p.jsonl: is {what}"):
        load_guessed(tmp_path / "p.jsonl")


def test_rows_with_times_are_in_their_order(tmp_path: Path) -> None:
    rows = [{"id": f"q{at}", "prompt": "x", "timestamp": at} for at in (3, 1, 2)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = io.StringIO()
    csv.writer(table).writerows([rows[0].keys(), *(row.values() for row in rows)])
    (tmp_path / "p.csv").write_text(table.getvalue())
    for name in ("p.jsonl", "p.csv"):
        assert [prompt.id for prompt in load_guessed(tmp_path / name).rows] == ["q1", "q2", "q3"]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"id": "q0", "prompt": "x"}])))
    assert [prompt.id for prompt in load_guessed(tmp_path / "p.jsonl").rows] == ["q3", "q1", "q2", "q0"]


@pytest.mark.parametrize(
    "tools", [{"type": "function"}, [{"type": "function"}], ['{"type": "function"}'], '[{"type": "function"}]']
)
def test_inspection_rejects_tools_as_a_run_does(tools: object, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "Why?", "tools": tools}))
    assert exit_code(["dataset", "inspect", str(tmp_path / "p.jsonl")]) == Exit.BAD_INPUT
    with pytest.raises(BadInput, match="1 x tools: they need"):
        load_guessed(tmp_path / "p.jsonl")
    dataset = Dataset.model_validate(guess_dataset(str(tmp_path / "p.jsonl")))
    (prompt,) = load_prompts(dataset, tmp_path, with_tools=True).rows
    assert json.loads(prompt.turns[0][0].tools) == [{"type": "function"}]
