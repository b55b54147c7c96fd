"""What lengths are measured with: tiktoken's o200k_base, and, beside it, the target model's own tokenizer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from specbench_client.errors import BadInput
from specbench_client.store.scratch import scratch_folder
from specbench_client.workload.encoder import Encoder
from specbench_client.workload.lengths import ENCODING, EncodingMissing, cached_encoding

_CACHE_NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""What tiktoken calls the table in its cache: the SHA-1 of the address that it comes from."""
_VARIABLE = "TIKTOKEN_CACHE_DIR"


class Ruler(Protocol):
    """What is needed of a tiktoken encoding. Joining the bytes of a text's tokens gives the text."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of the text; what looks like a special token is text too."""
        ...

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """The bytes of the tokens, which may end within a character."""
        ...


def load_ruler(table: Path | None = None) -> Ruler:
    """o200k_base from `table`, or from tiktoken's cache. Raises BadInput; never asks the network."""
    try:
        if table is None:
            return cast("Ruler", cached_encoding())
        with scratch_folder() as folder, _variable(_VARIABLE, str(folder)):
            (folder / _CACHE_NAME).write_bytes(table.read_bytes())
            return cast("Ruler", cached_encoding())
    except OSError as error:
        raise BadInput(f"--table {table}: {error.strerror}: give the file o200k_base.tiktoken") from error
    except EncodingMissing as error:
        given = f"--table {table} is not the file o200k_base.tiktoken: its SHA-256 is another"
        raise BadInput(given if table else f"{error}; or give the file with --table") from error


def load_tokenizer(path: Path) -> tuple[Callable[[str], int], str]:
    """How many tokens a text has for the target model, and the tokenizer's SHA-256. Raises BadInput.

    `path` is a tokenizer.json or the folder with it. No chat template is applied: engines add theirs.
    """
    encode, digest = _tokenizer(path)
    return (lambda text: len(encode(text))), digest


def load_encoder(where: str) -> Encoder:
    """What makes token ids of a text: `o200k_base`, or a tokenizer.json or the folder with it. Raises BadInput.

    No chat template is applied, and no special token added.
    """
    if where == ENCODING:
        try:
            return Encoder(cached_encoding().encode_ordinary, f"{ENCODING}, which is not the target's own")
        except EncodingMissing as error:
            raise BadInput(f"--tokenizer {ENCODING}: {error}") from error
    encode, digest = _tokenizer(Path(where))
    return Encoder(encode, f"{where} (SHA-256 {digest[:12]}), without a chat template")


def _tokenizer(path: Path) -> tuple[Callable[[str], list[int]], str]:
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        library = import_module("tokenizers")
    except ImportError as error:
        raise BadInput("--tokenizer needs the package tokenizers: pip install tokenizers") from error
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        tokenizer: Any = library.Tokenizer.from_file(str(file))
    except OSError as error:
        raise BadInput(f"--tokenizer {file}: {error.strerror}: give a tokenizer.json or the folder with it") from error
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise BadInput(f"--tokenizer {file}: is no tokenizer.json: {error}") from error
    tokenizer.no_padding()  # both are settings of its training, and would count something else than the text
    tokenizer.no_truncation()
    return (lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)), digest


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
