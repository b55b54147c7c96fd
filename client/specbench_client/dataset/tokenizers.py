"""Loads the tokenizers that measure lengths: tiktoken's o200k_base and the target model's own tokenizer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from specbench_client.errors import BadInput
from specbench_client.workload.chat_template.tokenizer import load_chat_tokenizer
from specbench_client.workload.prompt_lengths import (
    ENCODING,
    EncodingMissing,
    ReferenceTokenizer,
    TokenEncoder,
    cached_encoding,
)

_CACHE_NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""File name of the table in tiktoken's cache: the SHA-1 of its download address."""
_VARIABLE = "TIKTOKEN_CACHE_DIR"


def load_reference_tokenizer(table: Path | None = None) -> ReferenceTokenizer:
    """Load o200k_base from `table`, or from tiktoken's cache, without network access. Raises BadInput."""
    try:
        if table is None:
            return cached_encoding()
        with TemporaryDirectory(prefix="specbench-") as folder, _environment_variable(_VARIABLE, folder):
            (Path(folder) / _CACHE_NAME).write_bytes(table.read_bytes())
            return cached_encoding()
    except OSError as error:
        raise BadInput(f"--table {table}: {error.strerror}: give the file o200k_base.tiktoken") from error
    except EncodingMissing as error:
        wrong_table = f"--table {table} is not the file o200k_base.tiktoken: its SHA-256 differs; download it again"
        raise BadInput(wrong_table if table else f"{error}; or give the file with --table") from error


def load_target_tokenizer(path: Path) -> tuple[Callable[[str], int], str]:
    """Return a function that counts a text's tokens for the target model, and the tokenizer's SHA-256. Raises BadInput.

    `path` is a tokenizer.json or its folder. No chat template is applied, because engines apply their own.
    """
    encode, digest = _tokenizer(path)
    return (lambda text: len(encode(text))), digest


def load_encoder(where: str) -> TokenEncoder:
    """Load a text encoder: `o200k_base`, or a tokenizer.json or its folder. Raises BadInput.

    It applies no chat template and adds no special tokens.
    """
    if where == ENCODING:
        try:
            return TokenEncoder(cached_encoding().encode_ordinary, f"{ENCODING}, which is not the target's own")
        except EncodingMissing as error:
            raise BadInput(f"--tokenizer {ENCODING}: {error}") from error
    encode, digest = _tokenizer(Path(where))
    return TokenEncoder(encode, f"{where} (SHA-256 {digest[:12]}), without a chat template")


def _tokenizer(path: Path) -> tuple[Callable[[str], list[int]], str]:
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"--tokenizer {file}: {error.strerror}: give a tokenizer.json or the folder with it") from error
    return load_chat_tokenizer(content, f"--tokenizer {file}").encode, hashlib.sha256(content).hexdigest()


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
