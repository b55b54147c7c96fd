"""Measures prompt lengths in tokens of tiktoken's o200k_base, a common unit that is not the model's own tokenizer.

SPEED-Bench and other benchmarks state lengths in it, which makes workloads comparable across models. tiktoken downloads
the encoding's 2 MB table when it is not cached. A benchmark client must not wait for the internet, so only a complete
cached copy is used; otherwise the lengths are missing, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specbench_api.errors import SpecbenchError
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.workload.row_parsing import Prompt

ENCODING = "o200k_base"
_TABLE_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_TABLE_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


class ReferenceTokenizer(Protocol):
    """The part of a tiktoken encoding that is used. The joined bytes of a text's tokens are the text."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the text's token ids; special tokens are treated as ordinary text."""
        ...

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """Return the bytes of the tokens, which may end inside a character."""
        ...


LoadEncoding = Callable[[], ReferenceTokenizer]
"""Returns the encoding, or raises EncodingMissing."""


class EncodingMissing(SpecbenchError):
    """The encoding's table is not cached on this machine; the message names the path and how to download it."""


class LengthsUnknown(BadInput):
    """Prompts cannot be selected by their length, because the encoding is missing on this machine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, BadInput.__name__)


@dataclass(frozen=True)
class PromptLengths:
    """Tokens of each prompt, all its messages together, by prompt id; or None and the reason."""

    tokens: dict[str, int] | None
    reason: str | None = None


def measure_lengths(prompts: Iterable[Prompt], load: LoadEncoding | None = None) -> PromptLengths:
    """Measure all prompts. `load` returns the encoding; by default it is read from tiktoken's cache only."""
    try:
        encoding = (load or cached_encoding)()
    except EncodingMissing as error:
        return PromptLengths(None, str(error))
    return PromptLengths(
        {prompt.id: sum(_length(message, encoding) for message in prompt.messages) for prompt in prompts}
    )


def cached_encoding() -> ReferenceTokenizer:
    """Return o200k_base from tiktoken's cache, without network access. Raises EncodingMissing."""
    table = _cache_folder() / hashlib.sha1(_TABLE_URL.encode(), usedforsecurity=False).hexdigest()
    try:
        complete = hashlib.sha256(table.read_bytes()).hexdigest() == _TABLE_SHA256
    except OSError as error:
        # The package is in this interpreter's environment, which may be that of uvx or pipx.
        script = f"""'{sys.executable}' -c 'import tiktoken; tiktoken.get_encoding("{ENCODING}")'"""
        raise EncodingMissing(
            f"tiktoken's table {ENCODING} is not at {table}: run `{script}` once to download it, or set"
            " TIKTOKEN_CACHE_DIR to a folder that contains it"
        ) from error
    if not complete:  # tiktoken would delete it and download it again
        raise EncodingMissing(
            f"{table} is not the table of {ENCODING}: its SHA-256 differs; remove it and download it again"
        )
    import tiktoken  # noqa: PLC0415 -- only needed to measure lengths

    return tiktoken.get_encoding(ENCODING)


def _cache_folder() -> Path:
    """Return the cache folder that tiktoken uses."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    return Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"


def _length(message: ChatMessage, encoding: ReferenceTokenizer) -> int:
    """Count a message's tokens: token ids are the model's own, tools and tool calls count as JSON."""
    if message.token_ids is not None:
        return len(message.token_ids)
    return sum(len(encoding.encode_ordinary(text)) for text in (message.content, message.further, message.tools))


@dataclass(frozen=True)
class TokenEncoder:
    """A function from text to token ids, with a description of the tokenizer for reports."""

    encode: Callable[[str], list[int]]
    description: str
