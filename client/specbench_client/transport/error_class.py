"""Why a request has no usable answer."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus


class ErrorClass(StrEnum):
    """Why a request has no usable answer; the values of the record's column `error_class`."""

    REFUSED = "refused"
    """No connection: refused, unreachable, or not established in time."""
    HTTP_4XX = "http_4xx"
    """The engine rejected the request."""
    RATE_LIMITED = "rate_limited"
    """The server limits the rate of requests (HTTP 429)."""
    HTTP_5XX = "http_5xx"
    """The engine failed, by its status, by an error in mid-stream, or by a finish reason such as error or abort."""
    RESET = "reset"
    """The connection was lost before the answer had ended."""
    TIMEOUT = "timeout"
    """The engine sent nothing for the idle timeout, or the answer took longer than the total timeout."""
    MALFORMED = "malformed"
    """The answer violates the protocol."""
    TRUNCATED_STREAM = "truncated_stream"
    """The stream was closed normally but is incomplete: no usage, or neither a finish reason nor [DONE]."""
    SKIPPED_AFTER_ERROR = "skipped_after_error"
    """Never sent: an earlier turn of its conversation failed."""

    @classmethod
    def of_status(cls, status: int) -> ErrorClass:
        """Return the error class of an HTTP status other than 200."""
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return cls.RATE_LIMITED
        if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY):  # not because of what is requested
            return cls.HTTP_5XX
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return cls.HTTP_4XX
        return cls.HTTP_5XX if status >= HTTPStatus.INTERNAL_SERVER_ERROR else cls.MALFORMED
