"""Prompt files: compressed, truncated, in other encodings, with long lines, as tables, and on the Hugging Face hub."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.workload import locations as hub_module
from specbench_client.workload.locations import load_split
from specbench_client.workload.prompt_files import read_rows
from specbench_client.workload.prompts import Prompts, load_prompts
from specbench_client.workload.sources.loader import HubDataset
from specbench_client.workload.sources.registry import LOADERS

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


def rejection_message(tmp_path: Path, name: str, data: bytes, source: Source, most: int | None = None) -> str:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput) as caught:
        read_rows(tmp_path / name, source, **({} if most is None else {"line_bytes_max": most}))
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
        (gzip.compress(LINE * 1000, mtime=0)[:-20], "the gzip data cannot be decompressed"),
        (gzip.compress(LINE, mtime=0)[:10] + b"garbage garbage", "the gzip data cannot be decompressed"),
        ('{"id": "ü", "prompt": "x"}'.encode("latin-1"), "line 1: not UTF-8"),
        ('{"id": "a", "prompt": "x"}'.encode("utf-16"), "line 1: not UTF-8"),
        (b'{"id": "a", "prompt": NaN}', "p.jsonl"),
    ],
    ids=["cut", "damaged", "latin-1", "utf-16", "nan"],
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
        (b'[{"id": "a"}', "s.json: the file ends inside the array, after 1 rows"),
        (b"[1]", "s.json, row 1: is a JSON number: each row is one JSON object"),
        (b"[]", "s.json: contains no rows"),
        (b"\xff[", "s.json, line 1: not UTF-8"),
        (
            b'[{"id": "a"}] [{"id": "b"}]',
            "s.json: there is more text after the end of the array (1 rows): if two files were concatenated",
        ),
        (b'[{"id": "a"} {"id": "b"}]', "s.json, after row 1: not JSON: found '{', expected a comma or ]"),
        (b'[{"id": "a"},]', "s.json, row 2: not JSON"),
        (b'[{"id": "\xff"}]', "s.json: not UTF-8"),
    ],
)
def test_broken_array_is_rejected_with_its_row(data: bytes, message: str, tmp_path: Path) -> None:
    assert rejection_message(tmp_path, "s.json", data, Source.SHAREGPT).startswith(message)


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


def test_semicolon_separated_table_error_lists_its_columns(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="found none; the row's columns are: id;prompt"):
        load_csv(tmp_path, "id;prompt\n1;hello\n")


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
    monkeypatch.setitem(LOADERS, Source.GSM8K, replace(LOADERS[Source.GSM8K], hub=lambda _: hub))

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
