"""Files of prompts as they lie about: packed, cut, in other encodings, with endless lines, as tables."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import read_rows
from specbench_client.workload.prompts import Prompts, load_prompts

LINE = b'{"id": "a", "prompt": "x"}\n'


def of_csv(tmp_path: Path, text: str | bytes) -> Prompts:
    (tmp_path / "p.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_prompts(Dataset(source=Source.CSV, uri="p.csv"), tmp_path)


def refusal(tmp_path: Path, name: str, data: bytes, source: Source, most: int | None = None) -> str:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput) as refused:
        read_rows(tmp_path / name, source, **({} if most is None else {"line_bytes_max": most}))
    return str(refused.value).removeprefix(f"{tmp_path}/")


def contents(prompts: Prompts) -> list[str]:
    return [prompt.turns[0][0].content for prompt in prompts.rows]


# -- lines -------------------------------------------------------------------------------------------------------------


def test_a_line_beyond_the_bound_is_refused_without_being_read_to_its_end(tmp_path: Path) -> None:
    """The rest of the file is a hole of 3 GB: reading it to its end would be noticed."""
    file = tmp_path / "p.jsonl"
    with file.open("wb") as hole:
        hole.write(LINE + b'{"id": "b", "prompt": "')
        hole.truncate(3 * 1024**3)
    with pytest.raises(
        BadInput, match="line 2: is longer than 1,000 bytes: a JSON Lines or CSV file has one prompt per line"
    ):
        read_rows(file, Source.JSONL, 1000)


def test_a_packed_line_beyond_the_bound_is_refused_as_well(tmp_path: Path) -> None:
    packed = gzip.compress(LINE + b"x" * 10_000_000, mtime=0)
    assert "line 2: is longer than 1,000 bytes" in refusal(tmp_path, "p.jsonl.gz", packed, Source.JSONL, 1000)


def test_a_line_of_just_the_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(LINE)
    assert len(read_rows(tmp_path / "p.jsonl", Source.JSONL, len(LINE))) == 1
    assert "longer than" in refusal(tmp_path, "p.jsonl", LINE, Source.JSONL, len(LINE) - 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(LINE * 1000, mtime=0)[:-20], "the gzip data cannot be decompressed"),
        (gzip.compress(LINE, mtime=0)[:10] + b"garbage garbage", "the gzip data cannot be decompressed"),
        ('{"id": "ü", "prompt": "x"}'.encode("latin-1"), "line 1: not UTF-8"),
        ('{"id": "a", "prompt": "x"}'.encode("utf-16"), "line 1: not UTF-8"),
        (b'{"id": "a", "prompt": NaN}', "p.jsonl"),
    ],
    ids=["cut", "damaged", "latin-1", "utf-16", "nan"],
)
def test_what_is_no_utf_8_or_cut_is_refused_with_its_place(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(data)
    with pytest.raises(BadInput) as refused:
        load_prompts(Dataset(source=Source.JSONL, uri="p.jsonl"), tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
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
def test_a_broken_array_is_refused_with_its_row(data: bytes, said: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, "s.json", data, Source.SHAREGPT).startswith(said)


def test_an_array_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    """The rest of the file is a hole of 3 GB: reading it to its end would be noticed."""
    file = tmp_path / "s.json"
    with file.open("wb") as hole:
        hole.write(b'[{"id": "a"}, {"id": "')
        hole.truncate(3 * 1024**3)
    with pytest.raises(BadInput, match="row 2: is longer than 1,000 characters, or not JSON"):
        read_rows(file, Source.SHAREGPT, 1000)


def test_an_array_is_read_row_by_row_wherever_its_bytes_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": str(number), "text": "é😀" * number, "deep": [{"n": [number]}]} for number in range(20)]
    (tmp_path / "s.json").write_text(" " + json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8-sig")
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr("specbench_client.workload.prompt_files._CHUNK_BYTES", size)
        assert [row.columns for row in read_rows(tmp_path / "s.json", Source.SHAREGPT)] == rows


def test_parquet_without_rows_says_so(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), tmp_path / "p.parquet")
    with pytest.raises(BadInput, match=r"p\.parquet: contains no rows"):
        read_rows(tmp_path / "p.parquet", Source.PARQUET)


def test_a_table_parted_by_semicolons_shows_its_columns(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="found none; the row's columns are: id;prompt"):
        of_csv(tmp_path, "id;prompt\n1;hello\n")


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
def test_a_cell_arrives_letter_by_letter(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    rows = [f"q{number},{cell}" for number, cell in enumerate(quoted)]

    found = of_csv(tmp_path_factory.mktemp("csv"), "\r\n".join(["id,prompt", *rows, ""]))

    assert contents(found) == texts


def test_a_table_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    found = of_csv(tmp_path, b'\xef\xbb\xbfid,category,prompt\r\n1,qa,"a, b"\r\n\r\n2,,2024-01-01\r\n')

    assert [(prompt.id, prompt.category) for prompt in found.rows] == [("1", "qa"), ("2", None)]
    assert contents(found) == ["a, b", "2024-01-01"]


def test_lists_in_a_table_are_json(tmp_path: Path) -> None:
    found = of_csv(tmp_path, 'id,turns\n1,"[""a"", ""b""]"\n')

    assert [turn[0].content for turn in found.rows[0].turns] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_a_broken_table_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        of_csv(tmp_path, text)
    assert said in str(refused.value).replace(f"{tmp_path}/", "")


def test_a_prompt_longer_than_a_csv_readers_own_limit_is_read(tmp_path: Path) -> None:
    long = "x" * 200_000
    assert contents(of_csv(tmp_path, f"id,prompt\n1,{long}\n")) == [long]


def test_json_lines_under_the_name_of_an_array_are_read(tmp_path: Path) -> None:
    row = {"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}
    (tmp_path / "s.json").write_text(json.dumps(row) + "\n")

    assert len(load_prompts(Dataset(source=Source.SHAREGPT, uri="s.json"), tmp_path).rows) == 1


# -- volumes -----------------------------------------------------------------------------------------------------------


def test_a_file_on_a_volume_is_read_where_a_pod_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_api.spec.dataset.PVC_FOLDER", str(tmp_path))
    monkeypatch.setattr("specbench_client.workload.locations.PVC_FOLDER", str(tmp_path))
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "p.jsonl").write_bytes(LINE)
    declared = {"source": "jsonl", "pvc": {"claimName": "data", "path": "/a/p.jsonl"}}

    assert contents(load_prompts(Dataset.model_validate(declared), tmp_path)) == ["x"]

    declared["pvc"] = {"claimName": "other", "path": "p.jsonl"}
    with pytest.raises(BadInput, match=r"the volume other is not mounted at .*: .*set uri to a path"):
        load_prompts(Dataset.model_validate(declared), tmp_path)
