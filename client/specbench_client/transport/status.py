"""What an HTTP status other than 200 says about a request, in the engine's own words."""

from __future__ import annotations

from http import HTTPStatus

from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.words import engine_words

MAX_ERROR_BYTES = 64 * 1024


def refusal(status: int | None, body: bytes) -> tuple[ErrorClass, str] | None:
    """The error class and the words; None where there is no status, or it is 200."""
    if status is None or status == HTTPStatus.OK:
        return None
    return class_of_status(status), f"HTTP {status}: {engine_words(body[:MAX_ERROR_BYTES])}"


def class_of_status(status: int) -> ErrorClass:
    """The error class of an HTTP status other than 200."""
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorClass.HTTP_4XX
    return ErrorClass.HTTP_5XX if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ErrorClass.MALFORMED
