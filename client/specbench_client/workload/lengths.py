"""Prompt lengths on the field's common ruler, tiktoken's o200k_base, which is not the model's own tokenizer.

SPEED-Bench and its followers give lengths in it, so it makes workloads comparable across models. Its table is a file of
2 MB that tiktoken fetches when it lacks it; a benchmark client must not wait for the internet, so it is used where it
lies in tiktoken's cache already, whole, and otherwise the lengths are missing and the reason is told.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specbench_api.errors import SpecbenchError
from specbench_client.chat import Message
from specbench_client.workload.reading import Prompt

ENCODING = "o200k_base"
_TABLE_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_TABLE_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


class Encoding(Protocol):
    """What is needed of a tiktoken encoding."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of the text, special ones not among them."""
        ...


Ruler = Callable[[], Encoding]
"""Gives the encoding, or raises EncodingMissing."""


class EncodingMissing(SpecbenchError):
    """The table is not on this machine; says where it was looked for."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of each prompt (all its messages together) by its id; or None, and why."""

    tokens: dict[str, int] | None
    reason: str | None = None


def measure_lengths(prompts: Iterable[Prompt], load: Ruler | None = None) -> Lengths:
    """Measure. `load` gives the encoding or raises EncodingMissing; by default from tiktoken's cache alone."""
    try:
        encoding = (load or cached_encoding)()
    except EncodingMissing as error:
        return Lengths(None, str(error))
    return Lengths({prompt.id: _tokens(prompt, encoding) for prompt in prompts})


def cached_encoding() -> Encoding:
    """o200k_base from tiktoken's cache. Raises EncodingMissing; never asks the network."""
    table = _cache_folder() / hashlib.sha1(_TABLE_URL.encode(), usedforsecurity=False).hexdigest()
    try:
        whole = hashlib.sha256(table.read_bytes()).hexdigest() == _TABLE_SHA256
    except OSError as error:
        fetch = f"""`python -c 'import tiktoken; tiktoken.get_encoding("{ENCODING}")'` fetches it once"""
        elsewhere = "or set TIKTOKEN_CACHE_DIR to a folder that holds it"
        raise EncodingMissing(f"tiktoken's table {ENCODING} is not at {table}: {fetch}, {elsewhere}") from error
    if not whole:  # tiktoken would throw it away and fetch it anew
        raise EncodingMissing(f"{table} is not {ENCODING}: its SHA-256 is another; remove it and fetch it again")
    import tiktoken  # noqa: PLC0415 -- only where lengths are wanted

    return tiktoken.get_encoding(ENCODING)


def _cache_folder() -> Path:
    """As tiktoken chooses it."""
    given = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    return Path(given) if given else Path(tempfile.gettempdir()) / "data-gym-cache"


def _tokens(prompt: Prompt, encoding: Encoding) -> int:
    """Token ids are the model's own: they are counted as they are."""
    return sum(_length(message, encoding) for turn in prompt.turns for message in turn)


def _length(message: Message, encoding: Encoding) -> int:
    """Tools and calls of them as JSON, which is much what templates make of them."""
    if message.token_ids is not None:
        return len(message.token_ids)
    return sum(len(encoding.encode_ordinary(text)) for text in (message.content, message.further, message.tools))
