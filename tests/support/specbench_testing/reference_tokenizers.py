"""Tokenizers for tests: a small one whose tokens merge at boundaries, and o200k_base where available."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

PACKAGE = "js-tiktoken@1.0.21"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
FOLDER = Path.home() / ".cache" / "specbench" / "o200k_base"
_FETCH_SECONDS = 120


class SmallTokenizer:
    """Up to three letters are one token, any other byte is one token: joined texts have fewer tokens."""

    def encode_ordinary(self, text: str) -> list[int]:
        pieces = re.findall(rb"[a-z]{1,3}|[^a-z]", text.encode(), re.DOTALL)
        return [int.from_bytes(b"\x01" + piece) for piece in pieces]

    def decode_bytes(self, tokens: list[int]) -> bytes:
        return b"".join(token.to_bytes(4).lstrip(b"\0")[1:] for token in tokens)


class WordEncoding:
    """One token per word, without its text."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0 for _ in text.split()]

    def decode_bytes(self, tokens: list[int]) -> bytes:
        return b" ".join(b"word" for _ in tokens)


def o200k_table() -> Path:
    """The file o200k_base.tiktoken, made once from the ranks in an npm package. Skips if it cannot be made."""
    table = FOLDER / "o200k_base.tiktoken"
    if not table.exists():
        if shutil.which("npm") is None:
            pytest.skip(f"o200k_base: npm, which downloads {PACKAGE} once, is not installed")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            made = Path(folder) / "table"
            made.write_bytes(_table(_ranks(Path(folder))))
            made.replace(table)
    assert hashlib.sha256(table.read_bytes()).hexdigest() == SHA256
    return table


def _ranks(folder: Path) -> str:
    command = ["npm", "pack", PACKAGE, "--silent"]
    fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if fetched.returncode:
        pytest.skip(f"o200k_base: {PACKAGE} cannot be fetched: {fetched.stderr.strip()[-200:]}")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as package:
        member = package.extractfile("package/dist/ranks/o200k_base.js")
        assert member is not None
        return member.read().decode()


def _table(script: str) -> bytes:
    """Convert ranks from `! FIRST_RANK TOKEN TOKEN …` to one `TOKEN RANK` per line."""
    (packed,) = re.findall(r'"bpe_ranks":"([^"]*)"', script)
    lines: list[str] = []
    for run in packed.split("\\n"):
        _, first, *tokens = run.split(" ")
        lines += [f"{token} {rank}\n" for rank, token in enumerate(tokens, start=int(first))]
    return "".join(lines).encode()
