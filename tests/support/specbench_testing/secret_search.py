"""Searches what a run leaves behind for known secret values, in every form in which they could be there.

A hit needs only 12 characters of a value: a cut message must not keep the beginning of a key either.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

WINDOW = 12
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"


def forms_of(value: str) -> dict[str, str]:
    """Name of an encoding → the value in it; at least WINDOW characters of any of them are a hit."""
    data = value.encode()
    # Base64 of a text that contains the value depends on the position; the first and last characters are mixed.
    shifted = {
        f"base64 at {shift}": base64.b64encode(b"\0" * shift + data).decode()[shift and 4 :].rstrip("=")[:-1]
        for shift in range(3)
    }
    return {
        "plain": value,
        "reversed": value[::-1],
        "hexadecimal": data.hex(),
        "URL-encoded": quote(value, safe=""),
        "JSON-escaped": json.dumps(value)[1:-1].replace("/", "\\/"),
        "JSON \\u": "".join(f"\\u{ord(character):04x}" for character in value),
        **shifted,
        **{f"{name}, URL-safe": text.replace("+", "-").replace("/", "_") for name, text in shifted.items()},
    }


def find_secrets(secrets: Mapping[str, str], texts: Mapping[str, bytes]) -> list[str]:
    """Search `texts` (place → content) for values (name → value); returns a line for each place, value and form."""
    assert all(len(value) >= WINDOW for value in secrets.values()), "a value is too short to be searched for"
    patterns = {
        (name, form): _windows(form, text) for name, value in secrets.items() for form, text in forms_of(value).items()
    }
    return [
        f"{place}: {name}, {form}"
        for place, content in texts.items()
        for inner in _unpacked(content)
        for (name, form), windows in patterns.items()
        if any(window in inner for window in windows)
    ]


def _windows(form: str, text: str) -> list[bytes]:
    """All parts of an encoded value that contain WINDOW characters of the value itself."""
    step = 6 if form == "JSON \\u" else 1
    size = WINDOW * (2 if form == "hexadecimal" else step)
    size = WINDOW * 4 // 3 if form.startswith("base64") else size
    return [text[start : start + size].encode() for start in range(0, len(text) - size + 1, step)]


def _unpacked(content: bytes) -> Iterator[bytes]:
    """The content itself, and what is compressed in it."""
    yield content
    if content.startswith(_GZIP):
        yield from _unpacked(gzip.decompress(content))
    elif content.startswith(_ZSTD):
        yield from _unpacked(pa.input_stream(pa.BufferReader(content), compression="zstd").read())
    elif content.startswith(_PARQUET):
        file = pq.ParquetFile(io.BytesIO(content))
        yield json.dumps({str(k): str(v) for k, v in (file.metadata.metadata or {}).items()}).encode()
        yield "\n".join(_leaves(file.read().to_pylist())).encode()


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield str(value)
