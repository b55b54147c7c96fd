"""Removes this process's own secrets, and text with the form of a secret, from what engines and servers report."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from specbench_api.outcome.provenance import Fact
from specbench_api.plan.template_conflicts import TOKENS
from specbench_api.redaction import redact, redact_json, redact_known
from specbench_api.spec.secret_refs import API_KEY_VARIABLE

SECRET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", API_KEY_VARIABLE, *TOKENS)
"""Environment variables with secrets that a client is given."""
_header_secrets: list[str] = []
"""Secrets of the headers that this process sends."""
_key_headers: list[str] = []
"""Names of the headers with a key that this process sends."""
HEADER_SECRET_MIN = 8
"""Shorter parts of headers are not removed, because they occur in ordinary text: `bench`, `normal`, `Bearer`."""
_MEDIA_TYPE = re.compile(r"(?:application|audio|font|image|message|model|multipart|text|video|\*)/[\w.+*-]+")
_WITH_SCHEME = re.compile(r"[\w-]+ +(\S+)")
"""`Bearer VALUE`, `Basic VALUE`."""


def known_secrets() -> tuple[str, ...]:
    """The values of SECRET_VARIABLES in this process's environment, and the secrets of given headers."""
    values = [os.environ.get(name, "").strip() for name in SECRET_VARIABLES]
    return tuple(filter(None, (*values, *_header_secrets)))


def keep_headers_secret(headers: Mapping[str, str]) -> None:
    """Count the values of these headers as secrets of this process, instead of those of an earlier call."""
    _header_secrets[:] = dict.fromkeys(_secrets_in(headers.values()))
    _key_headers[:] = {"authorization", "api-key", "x-api-key", "ocp-apim-subscription-key"} & set(
        map(str.lower, headers)
    )


def key_remedy() -> str:
    """Return what to do if a server rejects the key, or that none was sent."""
    if _key_headers or api_key_header():
        return f"the key given by {API_KEY_VARIABLE}, --api-key-env or --header was rejected: correct it"
    return f"no key was sent: set {API_KEY_VARIABLE}, or give one to `specbench measure` by --api-key-env or --header"


def _secrets_in(values: Iterable[str]) -> Iterator[str]:
    """Yield whole values, and what a server may repeat of them: a key without its scheme, a cookie without its name."""
    for value in map(str.strip, values):
        key = found[1] if (found := _WITH_SCHEME.fullmatch(value)) else value
        cookies = [part.partition("=")[2].strip() for part in value.split(";")]
        for part in (value, key, *cookies, *_basic_credentials(key)):
            if len(part) >= HEADER_SECRET_MIN and not _MEDIA_TYPE.match(part):
                yield part


def _basic_credentials(key: str) -> list[str]:
    """User and password together, and the password alone, if a key is their base64."""
    try:
        decoded = base64.b64decode(key, validate=True).decode()
    except ValueError:
        return []
    return [decoded, decoded.partition(":")[2]] if decoded.isprintable() else []


def api_key_header() -> dict[str, str]:
    """The header with the API key of running servers, from the environment; empty if there is no key."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_secrets(text: str) -> str:
    """Return the text without secrets; see `specbench_api.redaction`."""
    return redact(text, known_secrets())


def without_known_secrets(text: str | None) -> str | None:
    """Return the text without this process's own secrets; text that only has the form of a secret is kept."""
    return None if text is None else redact_known(text, known_secrets())


def fact_without_secrets(fact: Fact) -> Fact:
    """Return a fact without secrets in its value or its reason. Commits and checksums are kept."""
    known = known_secrets()
    reason = None if fact.reason is None else redact(fact.reason, known, keep_hashes=True)
    return Fact(value=redact_json(fact.value, known), source=fact.source, reason=reason)
