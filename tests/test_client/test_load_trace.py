"""Arrival traces: formats that are read, and errors for invalid rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench_client.errors import BadInput
from specbench_client.load.arrivals import load_trace, read_trace


def times(text: str, name: str = "t.jsonl") -> list[float]:
    return [float(moment) for moment in read_trace(text.encode(), name)]


def test_seconds_and_timestamps_are_read_from_json_lines() -> None:
    assert times('{"timestamp": 1.5}\n\n{"timestamp": 2, "x": null}\n{"timestamp": "3.25"}') == [1.5, 2, 3.25]
    rfc = [{"timestamp": f"2026-01-01T00:00:{second}Z"} for second in ("00", "00.250", "01.5")]
    start, *later = times("\n".join(map(json.dumps, rfc)))
    assert [moment - start for moment in later] == [0.25, 1.5]


def test_utc_offsets_are_applied_and_default_to_utc() -> None:
    moments = ("2026-01-01T01:00:00+01:00", "2026-01-01 00:00:02.0360000", "2026-01-01T00:00:04Z")
    first, second, third = times("\n".join(json.dumps({"timestamp": one}) for one in moments))
    assert second - first == pytest.approx(2.036)
    assert third - first == 4


MOONCAKE = {"input_length": 600, "output_length": 20, "hash_ids": [0, 1]}


def test_mooncake_traces_are_in_milliseconds() -> None:
    rows = [{"timestamp": moment, **MOONCAKE} for moment in (0, 3052, 10_500)]
    assert times("\n\n".join(map(json.dumps, rows))) == [0, 3.052, 10.5]
    assert times('timestamp,input_length,output_length,hash_ids\n500,1,2,"[0]"\n', "t.csv") == [0.5]


def test_other_traces_with_the_same_lengths_are_in_seconds() -> None:
    assert times(json.dumps({"timestamp": 61.5, **MOONCAKE, "chat_id": 3})) == [61.5]
    assert times(json.dumps({"timestamp": 1500, "input_length": 3, "output_length": 4})) == [1500]


def test_csv_column_is_found_by_its_header() -> None:
    text = '﻿id, timestamp ,"n"\r\na,0.5,3\r\n"b\nc",1.5,4\r\n'
    assert times(text, "T.CSV") == [0.5, 1.5]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            '{"timestamp": 1}\n{"time": 2}',
            "t.jsonl",
            r"t\.jsonl, line 2: has no 'timestamp', it has 'time': rename the column",
        ),
        ('{"timestamp": "soon"}', "t.jsonl", r"line 1: timestamp is 'soon': give seconds, such as 12\.5, or RFC 3339"),
        ('{"timestamp": true}', "t.jsonl", "timestamp is True"),
        ('{"timestamp": NaN}', "t.jsonl", "timestamp is nan"),
        ('{"timestamp": null}', "t.jsonl", "timestamp is None"),
        ("timestamp\n1", "t.jsonl", r"line 1: not JSON .* a CSV's name ends in \.csv"),
        ("[1]", "t.jsonl", "line 1: a JSON list: write one object per line, such as"),
        ("a,b\n1,2", "t.csv", r"t\.csv, line 1: has no column 'timestamp', it has 'a', 'b': .*rename the column"),
        ("a,timestamp\n1\n", "t.csv", r"line 2: has 1 fields, but 'timestamp' is column 2: write all fields"),
        ('timestamp\n"1\n', "t.csv", "not CSV"),
        ("timestamp\n", "t.csv", "contains no rows: give one arrival per row"),
        ("", "t.jsonl", "contains no rows"),
        ("", "t.csv", "it has nothing"),
    ],
)
def test_invalid_row_is_rejected_with_its_line_and_a_remedy(text: str, name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        times(text, name)


def test_only_the_first_bad_rows_are_listed() -> None:
    with pytest.raises(BadInput, match="and 3 more of 9 rows") as caught:
        times("\n".join(['{"timestamp": 1}', *["{}"] * 8]))
    assert len(str(caught.value).splitlines()) == 6


def test_binary_data_is_rejected() -> None:
    for data, message in ((b"\x1f\x8bxx", "gunzip"), (b"\xff\n", "not UTF-8")):
        with pytest.raises(BadInput, match=message):
            read_trace(data, "t.csv")


def test_trace_is_read_from_the_spec_folder_or_s3(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp": 1}')
    assert list(load_trace("t.jsonl", tmp_path)) == [1]
    assert list(load_trace("s3://b/t.csv", tmp_path, lambda _: b"timestamp\n2\n")) == [2]
    for uri, message in (
        ("s3://b/t", "S3 is not available"),
        ("http://x/t", "s3://BUCKET/KEY"),
        ("no.csv", "No such file"),
    ):
        with pytest.raises(BadInput, match=message):
            load_trace(uri, tmp_path)
