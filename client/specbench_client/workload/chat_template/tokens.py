"""A tokenizer.json at work: text with its special tokens in it → token ids, as the model's engines make them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from specbench_client.errors import BadInput
from specbench_client.extras import remedy

EXTRA = "tokenizers"
_TAIL = 8
"""Tokens at a prompt's end among which a word such as <think> stands, and the line end after it."""


@dataclass(frozen=True)
class Tokens:
    """A tokenizer. `encode` parses special tokens and adds none: a chat template writes each of them itself."""

    encode: Callable[[str], list[int]]
    tail: Callable[[Sequence[int]], str]
    """The text of a prompt's last tokens, special ones too."""


def load_tokens(tokenizer_json: bytes, where: str) -> Tokens:
    """Read a tokenizer.json. Raises BadInput: the library is missing, or the file is no tokenizer."""
    found = library()
    try:
        tokenizer: Any = found.Tokenizer.from_str(tokenizer_json.decode())
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise BadInput(f"{where}: its tokenizer.json cannot be read: {error}") from error
    tokenizer.no_padding()  # both are settings of its training, and would make other ids than the text's
    tokenizer.no_truncation()
    return Tokens(partial(_encoded, tokenizer), partial(_tail, tokenizer))


def library() -> Any:
    """The package. Raises BadInput where it is missing."""
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise BadInput(f"token ids need the package tokenizers: {remedy(EXTRA)}") from error


def installed() -> bool:
    """Whether the library is there."""
    return find_spec(EXTRA) is not None


def special_in(tokenizer_json: bytes) -> set[str]:
    """Its special tokens."""
    added = json.loads(tokenizer_json).get("added_tokens") or []
    return {token["content"] for token in added if token.get("special")}


def contradicted(tokenizer_json: bytes, told: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Tokens that the files beside it give another id than tokenizer.json: which is right, nobody can say."""
    held = json.loads(tokenizer_json)
    by_text = _vocabulary(held) | {token["content"]: token["id"] for token in held.get("added_tokens") or []}
    return [str(token["content"]) for number, token in told.items() if by_text.get(token["content"]) != number]


def _vocabulary(held: Mapping[str, Any]) -> dict[str, int]:
    """Of the tokenizer's model; a Unigram's is a list, whose places are the ids."""
    told = (held.get("model") or {}).get("vocab") or {}
    return dict(told) if isinstance(told, dict) else {piece[0]: number for number, piece in enumerate(told)}


def _encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _tail(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids[-_TAIL:]), skip_special_tokens=False)
    return text
