"""What stands beside tokenizer.json and changes a prompt: special tokens by name, and tokens that were added later.

Read as transformers reads it, in the order in which its own files came about: tokenizer_config.json; where that lists
no `added_tokens_decoder`, special_tokens_map.json over it, and added_tokens.json. Pure but for the
library `tokenizers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench_client.workload.chat_template.tokens import library

Read = Callable[[str], Mapping[str, Any]]
"""A JSON object by the name of its file; empty where there is none."""
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Names that every template may ask for; a tokenizer may have more."""
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Tokenizer classes of transformers without special tokens of their own."""
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False}
_EXTRA = "extra_special_tokens"
Token = dict[str, Any]
"""`content` and the flags of an added token."""


@dataclass(frozen=True)
class Settings:
    """`named`: special tokens by the name that a template asks by. `added`: by id. `extra`: special, without a name.

    `unknown`: names of which the files say nothing, while the tokenizer's class in transformers may.
    """

    config: Mapping[str, Any]
    named: Mapping[str, Token]
    added: Mapping[int, Token]
    extra: tuple[Token, ...]
    unknown: frozenset[str]

    @property
    def variables(self) -> dict[str, str]:
        """What a template is told."""
        return {name: str(token["content"]) for name, token in self.named.items()}


def read_settings(read: Read) -> Settings:
    """Everything of one folder."""
    config = read("tokenizer_config.json")
    decoder = config.get("added_tokens_decoder")
    if decoder is None:
        config = {**config, **read("special_tokens_map.json")}
    extra = config.get(_EXTRA) or config.get("additional_special_tokens") or ()
    told = {**config, **(extra if isinstance(extra, dict) else {})}
    named = {name: _token(value) for name, value in told.items() if name.endswith("_token") and _is_token(value)}
    loose = tuple(_token(value) for value in extra if _is_token(value)) if not isinstance(extra, dict) else ()
    if decoder is None:
        special = {token["content"] for token in (*named.values(), *loose)}
        added = {number: _legacy(text, text in special) for text, number in read("added_tokens.json").items()}
    else:
        added = {int(number): _token(value, special=False) for number, value in decoder.items()}
    silent = () if config.get("tokenizer_class") in _GENERIC else SPECIAL_TOKENS
    return Settings(config, named, added, loose, frozenset(name for name in silent if name not in told))


def completed(tokenizer_json: bytes, settings: Settings) -> bytes:
    """tokenizer.json with the tokens that it lacks; the very bytes where it lacks none. Raises BadInput."""
    missing = _missing(json.loads(tokenizer_json).get("added_tokens") or [], settings)
    if not missing:
        return tokenizer_json
    found: Any = library()
    tokenizer = found.Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.add_tokens([found.AddedToken(token.pop("content"), **token) for token in missing])
    made: str = tokenizer.to_str()
    return made.encode()


def _missing(there: Iterable[Mapping[str, Any]], settings: Settings) -> list[Token]:
    """Those of other flags count as missing; a named one, only where no token of its text is there."""
    known = [_token(token, special=False) for token in there]
    missing = [token for _, token in sorted(settings.added.items()) if token not in known]
    texts = {token["content"] for token in (*known, *missing)}
    for token in (*settings.named.values(), *settings.extra):
        if token["content"] not in texts:
            missing.append(token)
            texts.add(token["content"])
    return [dict(token) for token in missing]


def _is_token(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("content"), str))


def _token(value: Any, *, special: bool = True) -> Token:
    """A text, or an object with its content and flags; by default a special one is not normalized."""
    told = {"content": value} if isinstance(value, str) else value
    is_special = special or bool(told.get("special"))
    flags = {name: bool(told.get(name, default)) for name, default in _FLAGS.items()}
    normalized = bool(told.get("normalized", not is_special))
    return {"content": told["content"], **flags, "normalized": normalized, "special": is_special}


def _legacy(text: str, special: bool) -> Token:  # noqa: FBT001 -- private, and named where it is called
    return {"content": text, **_FLAGS, "normalized": not special, "special": special}
