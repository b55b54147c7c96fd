"""The search for secrets finds a value that was planted, in every form and in every kind of file."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_testing.secret_search import find_secrets

KEY = "t7Qm/Vx2Lr9+KdPz4WnB8sYc1HgJ5fUaE3oTiR6M"
OTHER = "AKIAQ4ZT7LM2XV5RN8WB"


def parquet(text: str) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2], "text": ["x", text]}), file, compression="zstd")
    return file.getvalue()


def zstd(text: str) -> bytes:
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(text.encode())
    return bytes(file.getvalue())


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "its beginning": lambda value: value[:12],
    "its end": lambda value: value[-12:],
    "reversed": lambda value: value[::-1],
    "reversed beginning": lambda value: value[:12][::-1],
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 within a text": lambda value: base64.b64encode(f"user:{value}@".encode()).decode(),
    "base64 within another text": lambda value: base64.b64encode(f"key={value}\n".encode()).decode(),
    "URL-safe base64": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "URL-encoded": lambda value: quote(value, safe=""),
    "form-encoded": quote_plus,
    "JSON": json.dumps,
    "JSON with escaped slashes": lambda value: json.dumps(value).replace("/", "\\/"),
    "JSON in characters' numbers": lambda value: "".join(f"\\u{ord(one):04x}" for one in value),
    "hexadecimal": lambda value: value.encode().hex(),
}
FILES: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip twice": lambda text: gzip.compress(gzip.compress(text.encode())),
    "zstd": zstd,
    "Parquet": parquet,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("form", FORMS)
def test_a_planted_value_is_found(form: str, file: str) -> None:
    planted = FILES[file](f"before {FORMS[form](KEY)} after")
    found = find_secrets({"key": KEY, "other": OTHER}, {"clean": b"nothing", "here": planted})
    assert {line.split(",")[0] for line in found} == {"here: key"}


@pytest.mark.parametrize("file", FILES)
def test_eleven_characters_and_other_values_are_no_hit(file: str) -> None:
    text = f"{KEY[:11]} {KEY[12:23]} {KEY.swapcase()} {'A' * 40} {base64.b64encode(KEY[:9].encode()).decode()}"
    assert find_secrets({"key": KEY, "other": OTHER}, {"here": FILES[file](text)}) == []
