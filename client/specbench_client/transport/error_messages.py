"""Extracts an engine's error message from a response body, truncated to a length that fits a record."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

from specbench_api.spec.engine import flaw_of
from specbench_client.bounded_json import parse_engine_json
from specbench_client.known_secrets import key_remedy, without_secrets
from specbench_client.transport.error_class import ErrorClass

MAX_MESSAGE_CHARS = 500
MAX_ERROR_BODY_BYTES = 64 * 1024


def replace_lone_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which JSON escapes can produce and UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_UNPRINTABLE = {*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {0x09, 0x0A}
"""Control characters and changes of the writing direction. A tab and a line feed are left in the text."""
_ESCAPED = {code: f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" for code in _UNPRINTABLE} | {0x0D: None}


def truncate(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Return the text, stripped, without secrets, with at most `max_chars` characters; control characters are escaped.

    The text comes from a server, and commands print it: a terminal would execute its escape sequences.
    """
    text = without_secrets(replace_lone_surrogates(text[:MAX_ERROR_BODY_BYTES])).strip().translate(_ESCAPED)
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def engine_error_message(body: bytes) -> str:
    """Return the messages in an error body's JSON, see `error_message_in`, else the text itself."""
    text = body.decode(errors="replace")
    try:
        document = parse_engine_json(text)
    except ValueError:
        return truncate(text)
    return truncate(error_message_in(document) or text)


_MAX_NESTED_ERRORS = 8
_WORDS = ("error", "error_description", "message", "detail", "metadata", "raw")
"""Keys of an error's words. Frameworks such as Spring name its status in `error` and its reason in another one, and
OpenRouter has the words of the server behind it in `metadata.raw`."""


def error_message_in(document: Any, depth: int = 0) -> str | None:
    """Return the messages of an error object in one of the shapes that engines use, joined; None if it has none."""
    if isinstance(document, str):
        return document or None
    if not isinstance(document, dict) or depth > _MAX_NESTED_ERRORS:
        return None
    found = [document.get(key) for key in _WORDS]
    texts = [error_message_in(each, depth + 1) or _as_json(each) for each in found if each and each is not True]
    return ": ".join(dict.fromkeys(filter(None, texts))) or None


def _as_json(value: Any) -> str | None:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # A chunk may have a thousand levels.
        return None


def compression_error(headers: Mapping[str, str]) -> str | None:
    """Return the message for a compressed answer; None for another. The names of `headers` are in lower case."""
    # Next.js routes disable compression by `none`, and some servers name the charset here.
    for name, plain in (
        ("Content-Encoding", {"", "identity", "none", "utf-8", "utf8"}),
        ("Transfer-Encoding", {"", "chunked", "identity"}),
    ):
        encoding = headers.get(name.lower(), "")
        if not {coding.strip() for coding in encoding.lower().split(",")} <= plain:
            return (
                f"the answer has {name} {truncate(encoding, 80)}, although no compression was requested: disable"
                " compression for this route of the engine"
            )
    return None


_STORED = re.compile(
    r"age: *0*[1-9]\d*"
    r"|(?:x|cf|cf-aig|helicone|x-portkey|x-proxy|x-gateway|x-nginx|x-varnish)-cache(?:-status)?:"
    r" (?:miss *, *|semantic )?\"?(?:tcp_)?(?:mem_|exact-|refresh)?(?:hit|stale|updating|revalidated)(?![\w.:=-]).*"
    r"|cache-status: .*; *hit(?! *= *\?0)\b.*"
    r"|x-(?:litellm-)?cache-hits?: (?:true|[1-9]\d*)",
    re.IGNORECASE,
)
"""A header of a cache that had stored the answer (RFC 9111, 5.1; RFC 9211; X-Cache), not of the engine's own cache."""


def replay_error(headers: Mapping[str, str]) -> str | None:
    """Return the message for an answer that a cache had stored; None for another."""
    found = next(filter(_STORED.fullmatch, map(": ".join, headers.items())), None)
    if found is None:
        return None
    return f"a cache answered instead of the engine ({truncate(found, 80)}): switch its storing of answers off"


ANSWERED = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NON_AUTHORITATIVE_INFORMATION)
"""Statuses of answers: frameworks such as NestJS answer a POST with 201, and a proxy that changed one with 203."""
REDIRECT_REMEDY = "correct the server or the proxy, whose redirect names no other http:// or https:// address"
ADDRESS_REMEDY = "give the address of the engine itself, with its port and, behind a proxy, its path"


def http_error(
    status: int | None, body: bytes, location: str | None = None, url: str = ""
) -> tuple[ErrorClass, str] | None:
    """Return error class and message of an HTTP status; None if there is no status, or it is of an answer."""
    if status is None or status in ANSWERED:
        return None
    return ErrorClass.of_status(status), http_error_message(status, body, location, url)


def http_error_message(status: int, body: bytes, location: str | None = None, url: str = "") -> str:
    """Return status, engine's message and, where the address or the key is wrong, the remedy.

    `location`: the header of a redirect, which is never followed, and may be relative to the request's `url`. A long
    message is cut so that the remedy remains.
    """
    message, remedy = engine_error_message(body[:MAX_ERROR_BODY_BYTES]), ""
    if is_redirect(status, location):
        with suppress(ValueError):  # It is no address.
            location = urljoin(url, location)
        advice = (
            REDIRECT_REMEDY
            if location == url or flaw_of(str(location).partition("?")[0])
            else "give this address if it is the engine's"
        )
        message, remedy = f"redirected to {location}", f": {advice}"
    elif rejects_key(status):
        remedy = f": {key_remedy()}"
    start = f"HTTP {status}"
    if not message:
        return start + remedy
    return f"{start}: {truncate(message, MAX_MESSAGE_CHARS - len(start) - len(': ') - len(remedy))}{remedy}"


def is_redirect(status: int, location: str | None) -> bool:
    """Return whether an answer refers to another address."""
    return location is not None and HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST


def rejects_key(status: int) -> bool:
    """Return whether the engine rejected the API key, or there was none."""
    return status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


_SOURCE_LINE = re.compile(r"\.? \(_ssl\.c:\d+\)$")


def tls_error_message(error: ssl.SSLError) -> str:
    """Return the message of an error of TLS without the line of Python's source code."""
    return _SOURCE_LINE.sub("", error.strerror or str(error))


_CERTIFICATE_REMEDIES = {
    9: "renew the certificate, or correct the clock of this machine",  # X509_V_ERR_CERT_NOT_YET_VALID
    10: "renew the certificate, or correct the clock of this machine",  # X509_V_ERR_CERT_HAS_EXPIRED
    62: "give the address with a name that the certificate contains",  # X509_V_ERR_HOSTNAME_MISMATCH
    64: "give the address with a name that the certificate contains",  # X509_V_ERR_IP_ADDRESS_MISMATCH
}
_UNKNOWN_AUTHORITY = "set SSL_CERT_FILE to a file with the certificate of the authority that signed it"


_WITHOUT_TLS = "the server answers without TLS: if it serves http, give its address with http:// instead of https://"


def answers_without_tls(error: ssl.SSLError) -> bool:
    """Return whether a handshake failed because what the server sent is not TLS, as the answer of an http server."""
    return error.reason == "WRONG_VERSION_NUMBER"


def handshake_error_message(error: ssl.SSLError) -> str:
    """Return why a handshake failed, and the remedy if it is known."""
    message = tls_error_message(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _CERTIFICATE_REMEDIES.get(error.verify_code, _UNKNOWN_AUTHORITY)
        return f"the server's certificate is not trusted: {message}: {remedy}"
    remedy = f": {_WITHOUT_TLS}" if answers_without_tls(error) else ""
    return f"the TLS handshake failed: {message}{remedy}"
