"""Prompt files: where they are found, how rows become prompts, and their fingerprint."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.workload import Workload
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.store.s3 import S3Store
from specbench_client.workload import locations as hub_module
from specbench_client.workload.locations import load_split
from specbench_client.workload.prompt_files import LINE_BYTES_MAX, read_rows
from specbench_client.workload.prompts import Prompts, fingerprint, load_prompts, load_workload
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.sources.loader import HubDataset
from specbench_client.workload.sources.registry import LOADERS
from specbench_testing.resources import run_of

LINE = b'{"id": "a", "prompt": "x"}\n'


def load_csv(tmp_path: Path, text: str | bytes) -> Prompts:
    (tmp_path / "p.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_prompts(Dataset(source=Source.CSV, uri="p.csv"), tmp_path)


def write_hole(file: Path, beginning: bytes) -> Path:
    """Write a file whose rest is a 3 GB hole, which would be slow to read."""
    with file.open("wb") as hole:
        hole.write(beginning)
        hole.truncate(3 * 1024**3)
    return file


def rejection_message(tmp_path: Path, name: str, data: bytes, source: Source, most: int = LINE_BYTES_MAX) -> str:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput) as caught:
        read_rows(tmp_path / name, source, most)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def contents(prompts: Prompts) -> list[str]:
    return [prompt.turns[0][0].content for prompt in prompts.rows]


# -- lines -------------------------------------------------------------------------------------------------------------


def test_compressed_line_above_the_limit_is_rejected(tmp_path: Path) -> None:
    packed = gzip.compress(LINE + b"x" * 10_000_000, mtime=0)
    assert "line 2: is longer than 1,000 bytes" in rejection_message(tmp_path, "p.jsonl.gz", packed, Source.JSONL, 1000)


def test_line_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(LINE)
    assert len(read_rows(tmp_path / "p.jsonl", Source.JSONL, len(LINE))) == 1
    assert "longer than" in rejection_message(tmp_path, "p.jsonl", LINE, Source.JSONL, len(LINE) - 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(LINE * 1000, mtime=0)[:-20], "cannot be decompressed"),
        (gzip.compress(LINE, mtime=0)[:10] + b"garbage garbage", "cannot be decompressed"),
        ('{"id": "ü", "prompt": "x"}'.encode("latin-1"), "line 1: not UTF-8"),
        (b"\xff\xfe\x00\xd8\x00\x00", "not UTF-16"),
        (b'{"id": "a", "prompt": NaN}', "p.jsonl"),
        (b'{"prompt":\n', "line 1: not JSON: Expecting value at column 11"),
        (b'{"prompt": "x}\r\n', "line 1: not JSON: Unterminated string starting at column 12"),
    ],
    ids=["cut", "damaged", "latin-1", "half a character of utf-16", "nan", "ends early", "open string"],
)
def test_damaged_or_non_utf_8_file_is_rejected_with_its_location(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(data)
    with pytest.raises(BadInput) as caught:
        load_prompts(Dataset(source=Source.JSONL, uri="p.jsonl"), tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'[{"id": "a"}, {"id": ', "s.json, row 2: not JSON"),
        (b'[{"id": "a"}', "s.json: the file ends inside the array, after row 1:"),
        (b"[1]", "s.json, row 1: is a JSON number: each row is one JSON object"),
        (b"[]", "s.json: contains no rows"),
        (b'{"data": []}', "s.json: contains no rows"),
        (b"\xff[", "s.json, line 1: not UTF-8"),
        (b'[{"id": "a"}] oops', "s.json, row 2: not JSON"),
        (b'[{"id": "a"} {"id": "b"}]', "s.json, after row 1: not JSON: found '{', expected a comma or ]"),
        (b'[{"id": "a"},]', "s.json, row 2: not JSON"),
        (b'[{"id": "\xff"}]', "s.json: not UTF-8"),
    ],
)
def test_broken_array_is_rejected_with_its_row(data: bytes, message: str, tmp_path: Path) -> None:
    assert rejection_message(tmp_path, "s.json", data, Source.SHAREGPT).startswith(message)


def test_an_only_row_with_a_list_beside_its_prompt_is_that_row(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "p", "items": ["a", "b"]}')
    assert [row.columns["prompt"] for row in read_rows(tmp_path / "p.jsonl", Source.JSONL)] == ["p"]


def test_array_is_read_in_chunks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": str(number), "text": "é😀" * number, "deep": [{"n": [number]}]} for number in range(20)]
    (tmp_path / "s.json").write_text(" " + json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8-sig")
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr("specbench_client.workload.prompt_files._CHUNK_BYTES", size)
        assert [row.columns for row in read_rows(tmp_path / "s.json", Source.SHAREGPT)] == rows


def test_parquet_without_rows_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match=r"p\.parquet: contains no rows"):
        read_rows(tmp_path / "p.parquet", Source.PARQUET)


# -- tables ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(
            lambda text: text.strip() and text.strip().lower() not in ("nan", "none", "null", "<na>")
        ),
        min_size=1,
        max_size=5,
    )
)
def test_csv_cell_is_read_unchanged(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    rows = [f"q{number},{cell}" for number, cell in enumerate(quoted)]

    found = load_csv(tmp_path_factory.mktemp("csv"), "\r\n".join(["id,prompt", *rows, ""]))

    assert contents(found) == texts


def test_csv_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    found = load_csv(tmp_path, b'\xef\xbb\xbfid,category,prompt\r\n1,qa,"a, b"\r\n\r\n2,,2024-01-01\r\n')

    assert [(prompt.id, prompt.category) for prompt in found.rows] == [("1", "qa"), ("2", None)]
    assert contents(found) == ["a, b", "2024-01-01"]


def test_lists_in_a_csv_cell_are_json(tmp_path: Path) -> None:
    found = load_csv(tmp_path, 'id,turns\n1,"[""a"", ""b""]"\n')

    assert [turn[0].content for turn in found.rows[0].turns] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,prompt\n1,NaN\n", "p.csv, line 2: prompt is 'NaN', which tables write for a missing value"),
        (
            "id,prompt\n1,a\n2,\n",
            "p.csv, line 3: exactly one of prompt, turns, messages, token_ids is required, found none",
        ),
        ("id,prompt\n1,a,b\n", "p.csv, line 2: has 3 cells for 2 columns: quote cells that contain commas"),
        ("id,id\n1,a\n", "p.csv, line 1: the column 'id' appears twice"),
        ('id, prompt\n1, "Why?"\n', "p.csv, line 2: has a blank before a quote"),
        ('id,prompt\n1,a\n2,  "Hello, world"\n', "p.csv, line 3: has a blank before a quote"),
        ('id\tprompt\n1\t "a, b"\n', "p.csv, line 2: has a blank before a quote"),
        ("\n\nid,prompt\n1,a,b\n", "p.csv, line 4: has 3 cells for 2 columns"),
        ('\nid,prompt\n1,"a"b\n', "p.csv, line 3: not CSV"),
        ('id,prompt\n1,"a\n', "p.csv, line 2: not CSV"),
        ("id,turns\n1,a|b\n", "p.csv, line 2: turns is not valid JSON"),
        ('id,prompt\n1,"a\nb"\n2,""\n', "p.csv, line 4: exactly one of prompt"),
        ("id,prompt\n1,a\n1,b\n", "p.csv, line 3: the id '1' is already used by line 2"),
        ("id,prompt\n", "p.csv: contains no rows"),
        ("", "p.csv: contains no rows"),
    ],
)
def test_broken_csv_is_rejected_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_csv(tmp_path, text)
    assert message in str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"He said, ""hi"" and left"', 'He said, "hi" and left'),
        ('"a, "', "a, "),
        ('Say "hi"', 'Say "hi"'),
        ('"one,\n ""two"", three"', 'one,\n "two", three'),
    ],
)
def test_quotes_inside_a_csv_cell_are_text(cell: str, text: str, tmp_path: Path) -> None:
    assert contents(load_csv(tmp_path, f"id,prompt\n1,{cell}\n")) == [text]


def test_prompt_longer_than_the_csv_modules_limit_is_read(tmp_path: Path) -> None:
    long = "x" * 200_000
    assert contents(load_csv(tmp_path, f"id,prompt\n1,{long}\n")) == [long]


def test_json_lines_in_a_json_file_are_read(tmp_path: Path) -> None:
    row = {"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}
    (tmp_path / "s.json").write_text(json.dumps(row) + "\n")

    assert len(load_prompts(Dataset(source=Source.SHAREGPT, uri="s.json"), tmp_path).rows) == 1


# -- volumes -----------------------------------------------------------------------------------------------------------


def test_pvc_file_is_read_from_its_mount_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_api.spec.dataset.PVC_FOLDER", str(tmp_path))
    monkeypatch.setattr("specbench_client.workload.locations.PVC_FOLDER", str(tmp_path))
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "p.jsonl").write_bytes(LINE)
    declared = {"source": "jsonl", "pvc": {"claimName": "data", "path": "/a/p.jsonl"}}

    assert contents(load_prompts(Dataset.model_validate(declared), tmp_path)) == ["x"]

    declared["pvc"] = {"claimName": "other", "path": "p.jsonl"}
    with pytest.raises(BadInput, match=r"the volume other is not mounted at .*: .*set uri to a path"):
        load_prompts(Dataset.model_validate(declared), tmp_path)


@pytest.mark.parametrize(
    ("name", "source", "beginning", "message"),
    [
        (
            "p.jsonl",
            Source.JSONL,
            LINE + b'{"id": "b", "prompt": "',
            "line 2: is longer than 1,000 bytes: a JSON Lines or CSV file has one prompt per line",
        ),
        (
            "s.json",
            Source.SHAREGPT,
            b'[{"id": "a"}, {"id": "',
            "row 2: is longer than 1,000 characters, or not JSON",
        ),
    ],
)
def test_endless_line_or_array_is_rejected_before_it_is_read(
    name: str, source: Source, beginning: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        read_rows(write_hole(tmp_path / name, beginning), source, 1000)


def repository(folder: Path) -> HubDataset:
    """Return a folder laid out like a hub dataset: a card with configs, and Parquet."""
    (folder / "main").mkdir(parents=True)
    rows = [{"question": f"How many is {number}?", "answer": "#### 4"} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "main" / "test-00000-of-00001.parquet")
    card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main/test-*\n---\n"
    (folder / "README.md").write_text(card)
    return HubDataset(str(folder), "test", "main")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_split_is_read_by_config_and_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = load_split(repository(tmp_path / "gsm8k"), None)

    assert [(row.place, row.columns["question"]) for row in rows[:1]] == [("row 1", "How many is 0?")]
    assert len(rows) == 3
    assert capfd.readouterr() == ("", ""), "the library prints no progress bars"


def test_source_without_a_file_is_read_from_its_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = repository(tmp_path / "gsm8k")
    monkeypatch.setitem(LOADERS, Source.GSM8K, replace(LOADERS[Source.GSM8K], hub=hub))

    found = load_prompts(Dataset(source=Source.GSM8K, count=2), tmp_path)

    assert [prompt.id for prompt in found.rows] == ["row-1", "row-2"]
    assert found.coverage is not None
    assert (found.coverage.rows, found.coverage.used) == (3, 2)


def test_missing_split_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"could not be read: .*set dataset\.uri to the file itself"):
        load_split(replace(repository(tmp_path / "gsm8k"), split="dev"), None)


def test_gated_dataset_error_explains_access(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"accept its terms on its hub page and set HF_TOKEN, or set dataset.uri"):
        load_split(replace(repository(tmp_path / "gpqa"), split="dev"), None, gated=True)


def test_hub_file_is_parsed_by_its_uris_suffix_and_named_by_its_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "0a1b2c"
    cached.write_text("id,prompt\n1,Hi\n")
    monkeypatch.setattr(hub_module, "hub_file", lambda _: cached)
    monkeypatch.setattr("specbench_client.workload.locations.hub_file", lambda _: cached)

    found = load_prompts(Dataset(source=Source.CSV, uri="hf://datasets/a/b/p.csv"), tmp_path)

    assert found.rows[0].turns[0][0].content == "Hi"
    cached.write_text("id,prompt\n1,Hi,Ho\n")
    with pytest.raises(BadInput, match=r"^hf://datasets/a/b/p\.csv, line 2: has 3 cells"):
        load_prompts(Dataset(source=Source.CSV, uri="hf://datasets/a/b/p.csv"), tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    "declared",
    [{"source": "gsm8k"}, {"source": "sharegpt"}, {"source": "jsonl", "uri": "hf://datasets/a/b/p.jsonl"}],
    ids=["split", "file of a source", "file"],
)
def test_unreachable_hub_is_rejected_with_a_remedy(declared: dict[str, str], tmp_path: Path) -> None:
    """It runs in its own process because the library reads its environment once."""
    program = (
        "import json, sys; from pathlib import Path\n"
        "from specbench_api.spec.dataset import Dataset\n"
        "from specbench_client.errors import BadInput\n"
        "from specbench_client.workload.prompts import load_prompts\n"
        "try: load_prompts(Dataset.model_validate(json.loads(sys.argv[1])), Path())\n"
        "except BadInput as error: print(error)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", program, json.dumps(declared)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)

    assert "check that the hub is reachable (HF_HUB_OFFLINE is set)" in done.stdout
    assert "set dataset.uri to the file itself (a path, or s3://BUCKET/KEY)" in done.stdout
    assert done.stdout.count("\n") == 1


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


def rejection_message_of_prompts(tmp_path: Path, rows: Sequence[Row], **declared: Any) -> str:
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
    assert load_prompts(dataset, tmp_path).rows[0].id == "q0"
    s3_store.put("q.jsonl", b"oops")
    broken = s3_store.uri("q.jsonl")
    with pytest.raises(BadInput, match=f"^{re.escape(broken)}, line 1: not JSON"):
        load_prompts(dataset.model_copy(update={"uri": broken}), tmp_path)


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
        (row(1, prompt=["x", "y"]), "line 2: prompt is of type list: give a string"),
        ({"id": "x", "turns": []}, "line 2: turns is empty: give a list with at least one element"),
        ({"id": "x", "turns": "x"}, "line 2: turns is of type str: give a list"),
        ({"id": "x", "turns": ["a", None]}, "line 2: turns[1] is missing"),
        ({"id": "x", "turns": ["a", ""]}, "line 2: turns[1] is empty"),
        ({"id": "x", "messages": ["hi"]}, "line 2: messages[0] is of type str: give an object such as"),
        ({"id": "x", "messages": [{"role": "judge", "content": "x"}]}, "line 2: messages[0].role is 'judge'"),
        (
            {"id": "x", "messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]},
            "line 2 (x)\n  1 x has tool calls without a name",
        ),
        (
            {
                "id": "x",
                "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            },
            "line 2 (x)\n  1 x has tool calls without a name",
        ),
        ({"id": "x", "prompt": "a", "tools": ["f"]}, "line 2: tools is not a list of objects"),
        (
            {"id": "x", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "1 x has content other than text",
        ),
        ({"id": "x", "messages": [{"role": "function", "content": "a"}]}, "1 x has functions or function calls"),
        ({"id": "x", "functions": [{}], "prompt": "a"}, "1 x has functions or function calls"),
        ({"id": "x", "question": "a", "context": "b"}, "found none; the row's columns are: id, question, context"),
        ({"id": "x", "question": "a", "text": "b"}, "found none; the row's columns are: id, question, text"),
        ({"id": "x", "body": {"input": "a"}, "url": "/v1/embeddings"}, "line 2: is a request of /v1/embeddings"),
        ({"id": "x", "messages": [{"role": "assistant", "content": "a"}]}, "line 2: messages ends with no message of"),
        ({"id": "x", "messages": [{"role": "system", "content": "a"}]}, "line 2: messages ends with no message of"),
        ({"id": "x", "question": [[{"role": "user", "content": "a"}], []]}, "line 2: turns[1] ends with no message of"),
        (
            {"id": "x", "turns": ["a", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]},
            "line 2: turns[1] ends with no message of role user or tool",
        ),
        ({"id": "x", "turns": ["a", [{"role": "judge", "content": "b"}]]}, "line 2: turns[1][0].role is 'judge'"),
        ({"id": "x", "token_ids": []}, "line 2: token_ids is empty: give a list with at least one element"),
        ({"id": "x", "token_ids": [1, "2"]}, "line 2: token_ids contains '2': give token ids of the model's tokenizer"),
        ({"id": "x", "token_ids": [1, -2]}, "line 2: token_ids contains -2"),
        (
            row(1, prompt="FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"),
            "1 of 2 rows cannot be sent as text: line 2 (q1, qa)\n  1 x placeholder",
        ),
    ],
)
def test_bad_row_is_rejected_with_its_line_and_a_remedy(bad: Row, message: str, tmp_path: Path) -> None:
    assert message in rejection_message_of_prompts(tmp_path, [row(0), bad])


def test_first_bad_rows_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    lines = rejection_message_of_prompts(tmp_path, [row(number, prompt="") for number in range(9)]).splitlines()

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
        (b'[["a"]]', "row 1: is a JSON array"),
        (b'["a", "x"]\n["b", "y"]\n', "has arrays of texts in several lines"),
        (b"<!DOCTYPE html>", "is a page of HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "run `git lfs pull`"),
        (b'{"id": "a", "prompt": "\xff"}', "line 1: not UTF-8"),
        (b"\x1f\x8b\x08\x00", "cannot be decompressed"),
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


def load_parquet(folder: Path, table: pa.Table) -> Prompts:
    pq.write_table(table, folder / "p.parquet")
    return load_prompts(Dataset(source=Source.PARQUET, uri="p.parquet"), folder)


def test_parquet_types_without_a_form_in_json_are_read(tmp_path: Path) -> None:
    """UUID, MAP, and times: the rows of a file with timestamps are in their order, as those of JSON Lines."""
    messages = [[[("role", "user"), ("content", text)]] for text in ("later", "earlier")]
    table = pa.table(
        {
            "id": pa.array([UUID(int=1).bytes, UUID(int=2).bytes], pa.uuid()),
            "messages": pa.array(messages, pa.list_(pa.map_(pa.string(), pa.string()))),
            "timestamp": pa.array([2_000_000, 1_000_000], pa.timestamp("us", "UTC")),
        }
    )
    found = load_parquet(tmp_path, table)
    assert [prompt.id for prompt in found.rows] == [str(UUID(int=2)), str(UUID(int=1))]
    assert contents(found) == ["earlier", "later"]


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ([["a"], ["b"]], ["prompt", "prompt"], "the column 'prompt' appears twice"),
        ([["a"], pa.array([2**62], pa.timestamp("us"))], ["prompt", "when"], "out of range"),
        ([["a"], pa.array([2**28], pa.int32()).cast(pa.date32())], ["prompt", "day"], "out of range"),
        (
            [["a"], pa.array([[("k", "1"), ("k", "2")]], pa.map_(pa.string(), pa.string()))],
            ["prompt", "tags"],
            "duplicate key",
        ),
    ],
)
def test_parquet_values_that_have_no_one_meaning_are_rejected(
    columns: list[Any], names: list[str], message: str, tmp_path: Path
) -> None:
    table = pa.Table.from_arrays([one if isinstance(one, pa.Array) else pa.array(one) for one in columns], names=names)
    with pytest.raises(BadInput, match=message):
        load_parquet(tmp_path, table)


def parquet_with(prompt: str) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"], "prompt": [prompt]}), written, compression="none", use_dictionary=False)
    return written.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"no parquet at all",
        parquet_with("Hello").replace(b"prompt", b"\xb9rompt"),
        parquet_with("Hello").replace(b"Hello", b"Hell\xb9"),
    ],
    ids=["text", "name of a column", "text of a cell"],
)
def test_invalid_parquet_file_is_rejected(content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="cannot be read as Parquet"):
        load_file(tmp_path, content, "p.parquet")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("missing.jsonl", "no such file"),
        (".", "is a folder"),
        ("https://example.com/p.jsonl", "download the file first"),
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


@pytest.mark.parametrize(
    ("name", "data", "places"),
    [
        (
            "p.jsonl",
            LINE + b"text\n[1]\n" + LINE + b"\xff\n" + b"[" * 100_000 + b"\n",
            ["line 2", "line 3", "line 5", "line 6"],
        ),
        ("p.csv", b"id,prompt\na,b\nb,c,d\nc,nan\nd,e\n", ["line 3", "line 4"]),
        ("p.json", b"[" + LINE + b', 3, "x", ' + LINE + b"]", ["row 2", "row 3"]),
        ("p.jsonl", b"x\n\ny", ["line 1", "line 3"]),
    ],
    ids=["lines", "csv", "array", "no row"],
)
def test_rows_that_cannot_be_read_are_collected(tmp_path: Path, name: str, data: bytes, places: list[str]) -> None:
    file, faults = tmp_path / name, list[str]()
    file.write_bytes(data)
    source = Source.CSV if name.endswith("csv") else Source.JSONL
    rows = read_rows(file, source, faults=faults)
    assert len(rows) == (0 if places[0] == "line 1" else 2)
    assert [fault.partition(":")[0] for fault in faults] == places
    with pytest.raises(BadInput, match=places[0]):
        read_rows(file, source)


BROKEN, NO_PROMPT = b"{", b'{"id": "n", "category": "qa"}'
USED, NO_TEXT = LINE.strip(), b'{"id": "p", "prompt": "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"}'


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ([NO_PROMPT, BROKEN], [1, 2]),
        ([BROKEN, NO_PROMPT], [1, 2]),
        ([USED, USED, NO_PROMPT, BROKEN], [2, 3, 4]),
        ([NO_TEXT, NO_PROMPT, BROKEN, NO_TEXT], [2, 3, 1, 4]),
        ([NO_PROMPT, *[USED] * 11], [1, 3, 4, 5, 6]),
        ([*[BROKEN] * 4, *[NO_PROMPT] * 7, BROKEN], [1, 2, 3, 4, 5]),
    ],
    ids=["no prompt, broken", "broken, no prompt", "repeated id", "without text", "numbers are no texts", "many"],
)
def test_faults_are_named_in_the_order_of_the_file(tmp_path: Path, lines: list[bytes], places: list[int]) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(BadInput) as raised:
        load_prompts(Dataset(source=Source.JSONL, uri=str(file)), tmp_path)
    named = re.findall(r"(?:, |: )line (\d+)(?::| \()", str(raised.value))
    assert [int(number) for number in named if f"by line {number}:" not in str(raised.value)][: len(places)] == places
    assert ("and 7 more of 12 rows" in str(raised.value)) == (lines.count(BROKEN) == 5)


def test_a_filter_does_not_hide_a_broken_line(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"id": "a", "prompt": "x", "category": "chat"}\n{"category": "qa", \n')
    qa = Dataset(source=Source.JSONL, uri=str(file), categories=["qa"])
    with pytest.raises(BadInput, match="line 2: not JSON"):
        load_prompts(qa, tmp_path)
    file.write_bytes(file.read_bytes().partition(b"\n")[0])
    with pytest.raises(BadInput, match="'qa'"):
        load_prompts(qa, tmp_path)
