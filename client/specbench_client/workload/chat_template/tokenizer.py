"""Encodes text with a model's tokenizer.json, special tokens included, into the same token ids as its engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.optional_dependencies import install_hint

EXTRA = "tokenizers"
_TAIL = 8
"""Number of tokens at the end of a prompt that certainly contain a tag such as <think> and the line end after it."""


@dataclass(frozen=True)
class ChatTokenizer:
    """A tokenizer. `encode` parses special tokens and adds none, because a chat template writes all of them itself."""

    encode: Callable[[str], list[int]]
    tail: Callable[[Sequence[int]], str]
    """Decodes a prompt's last tokens, including special ones."""


def load_chat_tokenizer(tokenizer_json: bytes, where: str) -> ChatTokenizer:
    """Load a tokenizer.json. Raises BadInput if the library is missing or the file is invalid."""
    found = library()
    try:
        tokenizer: Any = found.Tokenizer.from_str(tokenizer_json.decode())
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise BadInput(f"{where}: its tokenizer.json cannot be read: {error}") from error
    tokenizer.no_padding()  # padding and truncation are training settings that would change the token ids
    tokenizer.no_truncation()
    return ChatTokenizer(partial(_encoded, tokenizer), partial(_tail, tokenizer))


def library() -> Any:
    """Import and return the package `tokenizers`. Raises BadInput if it is missing."""
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise BadInput(f"computing token ids requires the package tokenizers: {install_hint(EXTRA)}") from error


def installed() -> bool:
    """Return whether the package `tokenizers` is installed."""
    return find_spec(EXTRA) is not None


def special_tokens_in(tokenizer_json: bytes) -> set[str]:
    """Return the special tokens of a tokenizer.json."""
    added = parse_json(tokenizer_json).get("added_tokens") or []
    return {token["content"] for token in added if token.get("special")}


def conflicting_tokens(tokenizer_json: bytes, configured: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return tokens whose id in `configured` differs from the one in tokenizer.json; which one is right is unknown."""
    tokenizer = parse_json(tokenizer_json)
    ids = _vocabulary(tokenizer) | {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or []}
    return [str(token["content"]) for number, token in configured.items() if ids.get(token["content"]) != number]


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return the vocabulary of the tokenizer's model as text → id. A Unigram model's is a list indexed by id."""
    vocabulary = (tokenizer.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, dict):
        return dict(vocabulary)
    return {piece[0]: number for number, piece in enumerate(vocabulary)}


def _encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _tail(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids[-_TAIL:]), skip_special_tokens=False)
    return text


# Files next to tokenizer.json can add named special tokens and further tokens. They are read in the same order as in
# transformers: tokenizer_config.json; if that has no `added_tokens_decoder`, then also special_tokens_map.json, which
# overrides it, and added_tokens.json.

Read = Callable[[str], Mapping[str, Any]]
"""Returns the JSON object in the file of this name; empty if there is no such file."""
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Names that every template may use; a tokenizer may have more."""
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Tokenizer classes of transformers that define no special tokens themselves."""
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False}
_EXTRA = "extra_special_tokens"
Token = dict[str, Any]
"""`content` and the flags of an added token."""


@dataclass(frozen=True)
class TokenizerSettings:
    """Special and added tokens from the files next to tokenizer.json.

    `named`: special tokens by their name in templates. `added`: added tokens by id. `extra`: special tokens without a
    name. `unknown`: names that the files do not define, although the tokenizer's class in transformers may.
    """

    config: Mapping[str, Any]
    named: Mapping[str, Token]
    added: Mapping[int, Token]
    extra: tuple[Token, ...]
    unknown: frozenset[str]

    @property
    def variables(self) -> dict[str, str]:
        """The named special tokens as template variables."""
        return {name: str(token["content"]) for name, token in self.named.items()}


def read_settings(read: Read) -> TokenizerSettings:
    """Read the settings of one tokenizer folder."""
    config = read("tokenizer_config.json")
    decoder = config.get("added_tokens_decoder")
    if decoder is None:
        config = {**config, **read("special_tokens_map.json")}
    extra = config.get(_EXTRA) or config.get("additional_special_tokens") or ()
    settings = {**config, **(extra if isinstance(extra, dict) else {})}
    named = {name: _token(value) for name, value in settings.items() if name.endswith("_token") and _is_token(value)}
    unnamed = tuple(_token(value) for value in extra if _is_token(value)) if not isinstance(extra, dict) else ()
    if decoder is None:
        special = {token["content"] for token in (*named.values(), *unnamed)}
        added = {
            number: {"content": text, **_FLAGS, "normalized": text not in special, "special": text in special}
            for text, number in read("added_tokens.json").items()
        }
    else:
        added = {int(number): _token(value, special=False) for number, value in decoder.items()}
    possible = () if config.get("tokenizer_class") in _GENERIC else SPECIAL_TOKENS
    unknown = frozenset(name for name in possible if name not in settings)
    return TokenizerSettings(config, named, added, unnamed, unknown)


def complete_tokenizer(tokenizer_json: bytes, settings: TokenizerSettings) -> bytes:
    """Return tokenizer.json with its missing tokens added; the same bytes if none are missing. Raises BadInput."""
    missing = _missing(parse_json(tokenizer_json).get("added_tokens") or [], settings)
    if not missing:
        return tokenizer_json
    package: Any = library()
    tokenizer = package.Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.add_tokens([package.AddedToken(token.pop("content"), **token) for token in missing])
    completed: str = tokenizer.to_str()
    return completed.encode()


def _missing(present: Iterable[Mapping[str, Any]], settings: TokenizerSettings) -> list[Token]:
    """Return tokens that are missing or have other flags; a named token only if no token has its text."""
    known = [_token(token, special=False) for token in present]
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
    """Parse a token: a string, or an object with content and flags. A special token is by default not normalized."""
    token = {"content": value} if isinstance(value, str) else value
    is_special = special or bool(token.get("special"))
    flags = {name: bool(token.get(name, default)) for name, default in _FLAGS.items()}
    normalized = bool(token.get("normalized", not is_special))
    return {"content": token["content"], **flags, "normalized": normalized, "special": is_special}
