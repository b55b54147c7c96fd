"""Removes secret values from text that specbench did not write: output of engines, errors of servers. Pure.

Two kinds of secrets are removed: values that the caller knows, wherever and however encoded they occur; and text with
the form of a secret, such as `hf_…`, `AKIA…`, `password=…`, the user of a URL, and long random tokens.

The forms protect against accidents: a traceback that prints an address with a password. A program that wants to print
a secret can encode it in a form that no pattern recognises. Only `None` in the fence's `terminationMessages`, and not
giving the secret to that program, protect against that.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

REDACTED = "[redacted]"
KNOWN_MIN = 6
"""Shorter known values are not removed: they occur in ordinary words."""

_NAME = (
    r"(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?access[_-]?key|private[_-]?key|account[_-]?key|secret[_-]?key"
    r"|client[_-]?secret|secret|passw(?:or)?d|passphrase|pwd|credentials?|signature|token)"
)
"""The end of the name of a variable, field or flag with a secret. `tokens` and `tokenizer` do not match."""
_NOT_YET = rf"(?!{re.escape(REDACTED)})"
_ASSIGNED = (
    r"(?:[ \t]{0,4}=>?+[ \t]{0,4}|[ \t]{0,4}:[ \t]{0,4}(?=[\\\"'\[])|:(?=\S)"
    r"|:[ \t]{1,4}(?:(?=\S{8})(?=\S{0,99}?\d)|(?=\S++[ \t]*+$)))"
)
"""What separates a name from its value. After a colon and a space, a word within a sentence is no value."""
_NAMED = re.compile(
    rf"(?P<name>{_NAME}\\?[\"']?{_ASSIGNED})"
    rf"{_NOT_YET}(?!\\?[\"']?[<{{])(?:\[{_NOT_YET})?"
    r"(?:\\?\"[^\"\\]*+|\\?'[^'\\]*+|(?!\d{1,12}(?![^\s,;)\]}]))[^\s\"',;&)\]}]++)",
    re.IGNORECASE | re.MULTILINE,
)
"""`name=value`, `name: value`, `"name": "value"`. Numbers are kept, because counts of tokens are no secrets."""
_FLAG = re.compile(
    rf"(?P<name>(?<![\w-])--?(?:[a-z][\w-]{{0,40}}?[_-])?{_NAME}[ \t]{{1,4}}){_NOT_YET}(?!-)\S++", re.IGNORECASE
)
"""`--api-key VALUE`."""
_AUTHORIZATION = re.compile(
    r"(?P<name>\b(?:authorization[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?"
    r"(?:(?:bearer|basic|token|aws4-hmac-sha256)[ \t]{1,4})?+"
    rf"|bearer[ \t]{{1,4}})){_NOT_YET}[^\s\"',;]++",
    re.IGNORECASE,
)
"""`Authorization: Bearer VALUE`."""
_USER_OF_URL = re.compile(rf"(?P<name>://){_NOT_YET}[^\s/@\"'?#]++(?=@)")
"""`https://user:password@host`."""
_KEY_OF_QUERY = re.compile(rf"(?P<name>[?&](?:key|code|sig|auth)=){_NOT_YET}[^\s&#\"'<>]++", re.IGNORECASE)
"""`https://host/path?key=VALUE`."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL
)
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:hf|api_org|gh[pousr]|github_pat|glpat|gldt|dckr_pat|npm|nvapi|sk|rk|pk|xox[a-z]|pypi)[_-]"
    r"[A-Za-z0-9_-]{12,}+|(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|ACCA)[A-Z0-9]{12,}+|AIza[A-Za-z0-9_-]{20,}+"
    r"|ey[JK][A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?)"
)
"""Tokens with the prefix of the service that issued them, and JSON web tokens."""
_HEX = re.compile(r"(?<![A-Za-z0-9])(?<!sha256:)(?<!points/)(?:[0-9a-f]{32,}+|[0-9A-F]{32,}+)(?![A-Za-z0-9])")
"""At least 128 bits in hexadecimal. The digest of an image and the hash of a point in a path are public."""
_HEX_DIGITS_MIN = 6
"""Different digits from which a hexadecimal text counts as random; 32 random ones have 14 on average."""
_POINT = re.compile(r"(?<=points/)[0-9a-f]{64}")
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])(?<!sha256:)[A-Za-z0-9+/_-]{32,}+={0,2}+")
_KINDS = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "A" * 26 + "a" * 26 + "0" * 10, "+/_-="
)
_CHANGES_MIN = 0.35
"""Share of neighbouring characters of different kind (upper case, lower case, digit) from which a run counts as random.

It is 0.65 on average for base64, and below 0.2 for paths and names of models.
"""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def redact(text: str, known: Iterable[str] = (), *, keep_hashes: bool = False) -> str:
    """Return the text without secrets: without the `known` values, and without text that has the form of a secret.

    `keep_hashes`: keep long hexadecimal and random tokens, where commits and checksums are expected. Applying it twice
    gives the same as once.
    """
    text = redact_known(text, known)
    text = _PRIVATE_KEY.sub(REDACTED, text)
    for pattern in (_AUTHORIZATION, _NAMED, _FLAG, _USER_OF_URL, _KEY_OF_QUERY):
        text = pattern.sub(rf"\g<name>{REDACTED}", text)
    text = _PREFIXED.sub(REDACTED, text)
    return text if keep_hashes else _RUN.sub(_unless_random, _HEX.sub(_unless_uniform, text))


def redact_known(text: str, known: Iterable[str]) -> str:
    """Return the text without the `known` values in their usual encodings."""
    for form in sorted({form for value in known for form in _forms_of(value)}, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return text


def redact_json(value: JsonValue, known: Iterable[str] = ()) -> JsonValue:
    """Return a JSON value whose texts are redacted. Hashes are kept, because facts contain commits and checksums.

    The value of a field with a secret's name, and the argument after such a flag, are replaced as a whole.
    """
    known = tuple(known)
    if isinstance(value, str):
        return redact(value, known, keep_hashes=True)
    if isinstance(value, dict):
        return {
            key: REDACTED if text and isinstance(text, str) and _ends_with_name(key) else redact_json(text, known)
            for key, text in value.items()
        }
    if isinstance(value, list):
        before = [None, *value[:-1]]
        return [
            REDACTED
            if isinstance(one, str) and isinstance(flag, str) and flag.startswith("-") and _ends_with_name(flag)
            else redact_json(one, known)
            for flag, one in zip(before, value, strict=True)
        ]
    return value


def excerpt(text: str, max_chars: int) -> str:
    """Return the lines that best explain a failure, with at most `max_chars` characters; `…` marks what is left out.

    These are the last lines that name an error, else the last lines: programs report the cause last, but a process that
    loses its child may report more after that.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    whole = "\n".join(lines)
    if len(whole) <= max_chars:
        return whole
    wanted = [index for index, line in enumerate(lines) if _NAMES_AN_ERROR.search(line)] or list(range(len(lines)))
    kept: list[str] = []
    room = max_chars - 2
    for index in reversed(wanted):
        if len(lines[index]) + 1 > room:
            break
        room -= len(lines[index]) + 1
        kept.insert(0, lines[index])
    return "…\n" + "\n".join(kept) if kept else "…" + lines[wanted[-1]][-(max_chars - 1) :]


_NAMES_AN_ERROR = re.compile(
    r"error|exception|fatal|fail|out of memory|\boom\b|cannot|can't|not found|no such|denied|refused|unsupported"
    r"|invalid|assert|unrecognized|killed",
    re.IGNORECASE,
)
_NAME_AT_END = re.compile(rf"{_NAME}$", re.IGNORECASE)


def _ends_with_name(name: str) -> bool:
    return _NAME_AT_END.search(name) is not None


def _forms_of(value: str) -> Iterator[str]:
    """The value and its usual encodings: JSON (also with escaped slashes), HTML, percent, base64, hexadecimal."""
    if len(value) < KNOWN_MIN:
        return
    data = value.encode(errors="surrogateescape")
    encoders: tuple[Callable[[bytes], bytes], ...] = (base64.b64encode, base64.urlsafe_b64encode)
    in_json = json.dumps(value)[1:-1]
    yield from (value, in_json, in_json.replace("/", "\\/"), html.escape(value))
    yield from (quote(value, safe=""), quote(value), quote_plus(value), data.hex())
    yield from (encode(data).decode().rstrip("=") for encode in encoders)


def _unless_uniform(digits: re.Match[str]) -> str:
    """The digits themselves if there are too few different ones for a random text."""
    return REDACTED if len(set(digits[0])) >= _HEX_DIGITS_MIN else digits[0]


def _unless_random(run: re.Match[str]) -> str:
    """The run itself, unless its characters change their kind as often as random ones do."""
    text = run[0]
    if _UUID.fullmatch(text):
        return text
    kinds = _POINT.sub("", text).translate(_KINDS)
    changes = sum(one != other for one, other in pairwise(kinds))
    return REDACTED if len(kinds) > 1 and changes / (len(kinds) - 1) >= _CHANGES_MIN else text
