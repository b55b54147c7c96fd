"""Prompt files: reading, selection, and errors with their line."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.spec.workload import Dataset, Source, Workload
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.store.locations import read_object
from specbench_client.store.s3 import S3Store
from specbench_client.workload.prompts import Prompts, fingerprint, load_prompts, load_workload
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import run_of

Row = dict[str, Any]


def row(number: int, **columns: Any) -> Row:
    return {"id": f"q{number}", "category": "qa", "prompt": f"What is {number}?", **columns}


def without(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}


def load(tmp_path: Path, rows: Sequence[Row], **declared: Any) -> Prompts:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows))
    return load_prompts(Dataset(**{"source": "jsonl", "uri": "p.jsonl", **declared}), tmp_path)


def load_file(tmp_path: Path, content: bytes, name: str = "p.jsonl") -> Prompts:
    """Read a file with this content."""
    (tmp_path / name).write_bytes(content)
    return load_prompts(Dataset(source=Source(name.rpartition(".")[2]), uri=name), tmp_path)


def rejection_message(tmp_path: Path, rows: Sequence[Row], **declared: Any) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, rows, **declared)
    return str(caught.value)


def user(*texts: str) -> tuple[tuple[ChatMessage, ...], ...]:
    return tuple((ChatMessage("user", text),) for text in texts)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_rows_with_prompt_turns_or_messages_are_read(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Why?"},
    ]
    rows = [
        row(0),
        {"id": 1, "category": "chat", "turns": ["First", "Second"]},
        {"id": "m", "messages": history, "difficulty": "hard"},
    ]

    prompts = load(tmp_path, rows)

    assert [prompt.id for prompt in prompts.rows] == ["q0", "1", "m"]
    assert [prompt.category for prompt in prompts.rows] == ["qa", "chat", None]
    assert prompts.rows[0].turns == user("What is 0?")
    assert prompts.rows[1].turns == user("First", "Second")
    assert prompts.rows[2].turns == (tuple(ChatMessage(message["role"], message["content"]) for message in history),)
    assert prompts.turns == 4


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01 10:00:00",
        "12",
        "null",
        " leading and trailing \n",
        "a\u2028b\x0bc\x85d",
        "名前 🙂",
        "Tab\there",
        "\ufeffx",
    ],
)
def test_prompt_text_is_read_unchanged(text: str, tmp_path: Path) -> None:
    assert load(tmp_path, [row(0, prompt=text), row(1)]).rows[0].turns == user(text)


def test_parquet_and_json_lines_give_the_same_prompts(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"id": "a", "category": "qa", "turns": ["2024-01-01", "More"], "messages": None},
        {"id": "b", "category": None, "turns": None, "messages": [{"role": "user", "content": "Hi"}]},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")

    parquet = load_prompts(Dataset(source=Source.PARQUET, uri="p.parquet"), tmp_path)

    assert parquet == load(tmp_path, rows)


def test_prompts_are_read_from_s3_and_an_error_names_the_object(s3_store: S3Store, tmp_path: Path) -> None:
    s3_store.put("p.jsonl", json.dumps(row(0)).encode())
    dataset = Dataset(source=Source.JSONL, uri=s3_store.uri("p.jsonl"))
    assert load_prompts(dataset, tmp_path, read_object).rows[0].id == "q0"
    with pytest.raises(BadInput, match=r"p\.jsonl, line 1: not JSON"):
        load_prompts(dataset, tmp_path, lambda _: b"oops")


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(row(0)).encode() + b"\r\n\r\n\n"
    assert len(load_file(tmp_path, content).rows) == 1


def test_column_that_first_appears_late_is_read(tmp_path: Path) -> None:
    rows = [
        row(number, prompt="x" * 10_000) for number in range(1100)
    ]  # 11 MB exceed the first chunk of any schema inference
    rows.append({"id": "late", "turns": ["a", "b"], "category": "late"})

    assert load(tmp_path, rows).rows[-1].turns == user("a", "b")


def test_loading_a_local_file_opens_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    pq.write_table(pa.Table.from_pylist([row(0)]), tmp_path / "p.parquet")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    assert len(load_prompts(Dataset(source=Source.PARQUET, uri="p.parquet"), tmp_path).rows) == 1


# -- selection ---------------------------------------------------------------------------------------------------------


def categories(prompts: Prompts) -> list[str]:
    return [f"{prompt.category}-{prompt.id}" for prompt in prompts.rows]


def test_bad_row_outside_the_requested_categories_is_ignored(tmp_path: Path) -> None:
    rows = [row(0), row(1, category="licensed", prompt="")]

    assert len(load(tmp_path, rows, categories=["qa"]).rows) == 1


def test_fingerprint_depends_only_on_what_is_sent(tmp_path: Path) -> None:
    same = load(tmp_path, [row(0, note="x"), row(1)])

    assert load(tmp_path, [row(0), row(1)]).fingerprint == same.fingerprint
    for rows in ([row(1), row(0)], [row(0)], [row(0), row(1, prompt="?")], [row(0), row(1, category="x")]):
        assert load(tmp_path, rows).fingerprint != same.fingerprint


def test_prompts_without_ids_get_their_line_numbers(tmp_path: Path) -> None:
    rows = [without(row(number), "id") for number in range(3)]
    assert [prompt.id for prompt in load(tmp_path, rows).rows] == ["line-1", "line-2", "line-3"]


# -- rejected rows and files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (without(row(1), "id"), "line 2: the column id is missing"),
        (
            {"question_id": 1, "turns": ["a"]},
            "line 2: the column id is missing but question_id is present: set source",
        ),
        (row(1, id=""), "line 2: id is ''"),
        (row(1, id=1.5), "line 2: id is 1.5"),
        (row(1, id=True), "line 2: id is True"),
        (row(0), "line 2: the id 'q0' is already used by line 1"),
        (row(1, category=3), "line 2: category is 3"),
        (
            without(row(1), "prompt"),
            "line 2: exactly one of prompt, turns, messages, token_ids is required, found none",
        ),
        (
            row(1, turns=["x"]),
            "line 2: exactly one of prompt, turns, messages, token_ids is required, found prompt and turns",
        ),
        (row(1, prompt=""), "line 2: prompt is empty"),
        (row(1, prompt=" \n"), "line 2: prompt is empty"),
        (row(1, prompt=["x"]), "line 2: prompt is of type list: give a string"),
        ({"id": "x", "turns": []}, "line 2: turns is empty: give a list with at least one element"),
        ({"id": "x", "turns": "x"}, "line 2: turns is of type str: give a list"),
        ({"id": "x", "turns": ["a", None]}, "line 2: turns[1] is missing"),
        ({"id": "x", "turns": ["a", ""]}, "line 2: turns[1] is empty"),
        ({"id": "x", "messages": ["hi"]}, "line 2: messages[0] is of type str: give an object such as"),
        ({"id": "x", "messages": [{"role": "judge", "content": "x"}]}, "line 2: messages[0].role is 'judge'"),
        (
            {"id": "x", "messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]},
            "line 2: messages[0].tool_calls[0] has no function.name",
        ),
        (
            {
                "id": "x",
                "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            },
            "line 2: messages[0].tool_calls[0].function.arguments is not valid JSON",
        ),
        ({"id": "x", "prompt": "a", "tools": ["f"]}, "line 2: tools is not a list of objects"),
        (
            {"id": "x", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content is of type list",
        ),
        (
            {"id": "x", "messages": [{"role": "user", "content": "a", "name": "Bob"}]},
            "has the key 'name', which is not sent",
        ),
        ({"id": "x", "messages": [{"role": "assistant", "content": "a"}]}, "the last message has role assistant"),
        ({"id": "x", "token_ids": []}, "line 2: token_ids is empty: give a list with at least one element"),
        ({"id": "x", "token_ids": [1, "2"]}, "line 2: token_ids contains '2': give token ids of the model's tokenizer"),
        ({"id": "x", "token_ids": [1, -2]}, "line 2: token_ids contains -2"),
        (
            row(1, prompt="FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"),
            "1 of 2 rows have no text that can be sent: line 2 (q1, qa)\n  1 x placeholder",
        ),
    ],
)
def test_bad_row_is_rejected_with_its_line_and_a_remedy(bad: Row, message: str, tmp_path: Path) -> None:
    assert message in rejection_message(tmp_path, [row(0), bad])


def test_first_bad_rows_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    lines = rejection_message(tmp_path, [row(number, prompt="") for number in range(9)]).splitlines()

    assert len(lines) == 6
    assert lines[-1] == "and 4 more of 9 rows"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "contains no rows"),
        (b"\n\n", "contains no rows"),
        (b'{"id": "a"', "line 1: not JSON"),
        (b'{"id": "a", "prompt": "x"}\n{"id": oops}\n', "line 2: not JSON: Expecting value at column 8"),
        (b'[{"id": "a"}]', "row 1: exactly one of prompt, turns, messages, token_ids is required"),
        (b'["a"]', "p.jsonl"),
        (b'{"id": "a", "prompt": "\xff"}', "line 1: not UTF-8"),
        (b"\x1f\x8b\x08\x00", "the gzip data cannot be decompressed"),
        (b'{"id": "a", "prompt": "b", "n": ' + b"9" * 5000 + b"}", "line 1: this JSON cannot be parsed"),
        (b'{"id": "a", "prompt": "b", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 1: this JSON cannot"),
        (b'{"id": "a", "prompt": "x"}\n{"id": "cut \\ud83d", "prompt": "x"}', "line 2: id"),
        (b'{"id": "a", "prompt": "x"}\n{"id": "b", "category": "cut \\ud83d", "prompt": "x"}', "line 2: category"),
        (b'{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "cut \\ud83d"}', "surrogate"),
    ],
)
def test_invalid_json_lines_file_is_rejected_with_the_line(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_file(tmp_path, content)
    assert message in str(caught.value)


def test_invalid_parquet_file_is_rejected(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="cannot be read as Parquet"):
        load_file(tmp_path, b"no parquet at all", "p.parquet")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("missing.jsonl", "no such file"),
        (".", "is a folder"),
        ("https://example.com/p.jsonl", "download the file first"),
        ("s3://bucket/p.jsonl", "S3 is not available here"),
    ],
)
def test_unavailable_file_is_rejected_with_a_remedy(uri: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_prompts(Dataset(source=Source.JSONL, uri=uri), tmp_path)


# -- text that cannot be sent ------------------------------------------------------------------------------------------


def test_fingerprint_of_fixed_prompts_never_changes() -> None:
    """A change would prevent continuing a run that an earlier version started."""
    turns = (
        (ChatMessage("system", "s"), ChatMessage("user", "ü")),
        (ChatMessage("user", "v", reasoning="no part of it"),),
    )
    tokens = ((ChatMessage("user", "", (1, 2)),),)
    pinned = "9f20187ecabfd5deaaa1b199fd7cbb4f4207c1524b2e0b5dc7310003e77dcdda"
    assert fingerprint([Prompt("a", "c", turns), Prompt("b", None, tokens)]) == pinned


# -- system prompts ----------------------------------------------------------------------------------------------------


def with_system(tmp_path: Path, rows: Sequence[Row], seed: int = 0, **system: Any) -> Prompts:
    load(tmp_path, rows)
    declared = {"name": "w", "dataset": {"source": "jsonl", "uri": "p.jsonl"}, "sampling": {"seed": seed}}
    return load_workload(Workload.model_validate({**declared, "systemPrompt": system}), tmp_path)


def test_every_prompt_begins_with_the_same_system_message_of_that_many_words(tmp_path: Path) -> None:
    rows = [row(1), {"id": "q2", "turns": ["a", "b"]}]
    found, again, other = (with_system(tmp_path, rows, seed, tokens=100) for seed in (1, 1, 2))
    systems = [prompt.turns[0][0] for prompt in found.rows]
    assert [(one.role, len(one.content.split(" ")), one.shared) for one in systems] == [
        ("system", 100, len(systems[0].content))
    ] * 2
    assert systems[0].content == systems[1].content
    assert [[message.content for message in turn] for turn in found.rows[1].turns] == [[systems[0].content, "a"], ["b"]]
    assert found.fingerprint == again.fingerprint
    assert len({found.fingerprint, other.fingerprint, load(tmp_path, rows).fingerprint}) == 3


def test_the_system_message_of_a_prompt_follows_the_shared_one_in_the_same_message(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "Go."}]
    (turn,) = with_system(tmp_path, [{"id": "q1", "messages": messages}], text="Ours.").rows[0].turns
    assert [(one.role, one.content) for one in turn] == [("system", "Ours.\n\nMine."), ("user", "Go.")]
    assert turn[0].content[: turn[0].shared] == "Ours."


def test_a_system_prompt_of_known_length_is_part_of_what_sessions_reuse(tmp_path: Path) -> None:
    lengths = {"turns": 2, "turnTokens": 20, "answerTokens": 7, "sharedPrefixTokens": 32}
    sessions = {"name": "w", "dataset": {"source": "sessions", "count": 3, "sessions": lengths}}
    known, unknown = (
        load_workload(Workload.model_validate({**sessions, "systemPrompt": system}), tmp_path).coverage
        for system in ({"tokens": 64}, {"text": "Be kind."})
    )
    assert known is not None
    assert unknown is not None
    # 116 and 143 tokens, of which 96 and 123 were computed before: 6 and 7 whole blocks.
    assert known.reusable_share == (96 + 112) / (116 + 143)
    assert unknown.reusable_share is None


def test_a_system_prompt_leaves_the_tools_on_the_first_message(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    (tmp_path / "p.jsonl").write_text(json.dumps(row(1, tools=tools)) + "\n")
    declared = {"name": "w", "dataset": {"source": "jsonl", "uri": "p.jsonl"}, "systemPrompt": {"text": "Ours."}}
    workload = Workload.model_validate({**declared, "chatTemplate": {"appliedBy": "Client"}})
    system, asked = load_workload(workload, tmp_path).rows[0].turns[0]
    assert (json.loads(system.tools), asked.tools) == (tools, "")


def test_a_system_prompt_before_token_ids_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="systemPrompt cannot be put before the prompt 'q1', which is given as token_ids"
    ):
        with_system(tmp_path, [{"id": "q1", "token_ids": [1, 2]}], tokens=3)


@pytest.mark.parametrize("system", [{}, {"tokens": 5, "text": "Be brief."}], ids=str)
def test_a_system_prompt_has_either_tokens_or_text(system: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="systemPrompt needs exactly one of tokens"):
        run_of({"spec.workloads[0].systemPrompt": system})
