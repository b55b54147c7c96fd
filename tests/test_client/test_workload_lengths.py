"""Prompt lengths: measured if the token table is available, otherwise missing with the reason."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from specbench_client.chat import ChatMessage
from specbench_client.workload.prompt_lengths import measure_lengths
from specbench_client.workload.row_parsing import Prompt

PROMPT = Prompt("q", "qa", ((ChatMessage("system", "a b"), ChatMessage("user", "c d e")), (ChatMessage("user", "f"),)))


class WordEncoding:
    """An encoding with one token per word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0 for _ in text.split()]


def test_prompt_length_counts_all_its_messages() -> None:
    assert measure_lengths([PROMPT], WordEncoding).tokens == {"q": 6}


def test_missing_token_table_gives_no_lengths_and_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", refuse)

    lengths = measure_lengths([PROMPT])

    assert lengths.tokens is None
    assert "set TIKTOKEN_CACHE_DIR" in (lengths.reason or "")


def test_damaged_token_table_is_reported_and_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    table.write_bytes(b"half a table")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    lengths = measure_lengths([PROMPT])

    assert lengths.tokens is None
    assert "its SHA-256 differs" in (lengths.reason or "")
    assert table.read_bytes() == b"half a table"
