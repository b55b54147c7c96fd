"""HTTP to a store that may be hostile: one deadline for all requests of a look, and a limit for every answer.

An endpoint is chosen by the author of a run. botocore signs, retries and parses; this module sends its requests. It
enforces, where the bytes arrive:

- the deadline of the look, so that a server which sends one byte every few seconds cannot hold a thread for longer;
- a limit of the bytes of a head and of a body, whatever Content-Length or the framing says; nothing is decompressed;
- no redirect, except the region redirect of AWS, which names a region and not a host;
- the addresses that the endpoint may resolve to. The address that was checked is the one that is connected to.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSResponse,
)
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from specbench_api.redaction import redact
from specbench_api.spec.store_endpoints import AddressRule, refused_address, refused_endpoint
from specbench_operator.state.run import StoreFailure

HEAD_MAX_BYTES = 64 * 1024
"""Maximum size of the status line and the header of one answer."""
ERROR_MAX_BYTES = 64 * 1024
"""Maximum size of the body of an error, which is parsed as XML."""
_FRAMING_MAX_BYTES = 256 * 1024
"""Bytes that an answer may have besides its head and body: chunk sizes, trailers and what is read ahead."""
_PIECE_BYTES = 64 * 1024


class StoreError(Exception):
    """A request to S3 failed. Always caught by `cluster.results`."""

    def __init__(self, failure: StoreFailure) -> None:
        self.failure = replace(failure, message=redact(failure.message))  # it may quote the endpoint
        super().__init__(self.failure.message)


class Look:
    """The limits of one look at a store, which may consist of many requests."""

    def __init__(self, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.deadline_s = deadline_s
        self.body_max_bytes = HEAD_MAX_BYTES
        """Limit of the next answer's body, unless it is an error."""
        self.body_max_tags: int | None = None
        """Limit of its XML tags, because parsing many small elements takes long and much memory. None: no XML."""
        self.body_bytes = 0
        """Size of the last answer's body."""
        self.failure: StoreFailure | None = None
        """The limit that was exceeded. Nothing more is sent after it."""
        self._clock = clock
        self._ends = clock() + deadline_s
        self._allowed_bytes = 0

    def left_s(self) -> float:
        """How much time is left, in seconds. Raises StoreError at the deadline."""
        left = self._ends - self._clock()
        if left <= 0:
            remedy = "check the server's load and its network; the operator retries automatically"
            message = f"the store did not answer completely within {self.deadline_s:g} s: {remedy}"
            raise self.failed(StoreFailure("S3Slow", message, refused=False))
        return left

    def allow(self, size_bytes: int) -> None:
        """Allow this many further bytes to be received."""
        self._allowed_bytes = size_bytes

    def received(self, size_bytes: int) -> None:
        """Count received bytes. Raises StoreError if there are more than allowed."""
        self._allowed_bytes -= size_bytes
        if self._allowed_bytes < 0:
            raise self.too_large(self.body_max_bytes)

    def too_large(self, limit_bytes: int) -> StoreError:
        """The error for an answer that exceeds its limit."""
        message = (
            f"an answer of the store is larger than {limit_bytes // 1024} KiB, the limit for its kind:"
            " remove what specbench did not write below the run's prefix, or use another bucket"
        )
        return self.failed(StoreFailure("AnswerTooLarge", message, refused=True))

    def failed(self, failure: StoreFailure) -> StoreError:
        """Record the failure that ends the look; the first one is kept."""
        self.failure = self.failure or failure
        return StoreError(self.failure)


_LOOK: ContextVar[Look] = ContextVar("look")


@contextmanager
def look_at_store(deadline_s: float) -> Iterator[Look]:
    """Make all requests of this thread part of one look with this deadline."""
    look = Look(deadline_s)
    token = _LOOK.set(look)
    try:
        yield look
    finally:
        _LOOK.reset(token)


def current_look() -> Look:
    """The look of this thread. Raises LookupError outside `look_at_store`: no request has no deadline."""
    return _LOOK.get()


class _LimitedReader(io.RawIOBase):
    """The bytes of one connection, until the deadline of the look and up to the limit of the answer."""

    def __init__(self, connected: socket.socket, timeout_s: float) -> None:
        super().__init__()
        self._socket = connected
        self._timeout_s = timeout_s
        self._inner = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        look = current_look()
        self._socket.settimeout(min(self._timeout_s, look.left_s()))
        try:
            count = self._inner.readinto(buffer)
        except TimeoutError:
            look.left_s()  # raises, if it was the deadline that ended the wait
            raise
        look.received(count or 0)
        return count

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


class _LimitedSocket:
    """A connected socket whose files are limited. `http.client` reads answers only from files."""

    def __init__(self, connected: Any, timeout_s: float) -> None:
        self._socket = connected
        self._timeout_s = timeout_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def makefile(self, _mode: str, buffering: int = -1) -> io.BufferedReader | _LimitedReader:
        """A file for reading, which is all that http.client needs. botocore reads an early answer without a buffer."""
        reader = _LimitedReader(self._socket, self._timeout_s)
        return io.BufferedReader(reader) if buffering else reader


class _CheckedConnection:
    """Mixin: connects to an address that was checked, and limits what is read from it."""

    addresses: AddressRule
    timeout_s: float

    def _new_conn(self: Any) -> Any:
        # The administrator chooses the proxy's address, and the proxy resolves the endpoint.
        rule = AddressRule.ANY if self.proxy else self.addresses
        try:
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(self.host, self, socket.gaierror(str(error))) from error
        for *_, where in found:
            if refusal := refused_address(str(where[0]), rule):
                raise current_look().failed(_endpoint_refused(f"its host {self.host!r}: {refusal}"))
        return self._connected(found)

    def _connected(self: Any, found: list[Any]) -> Any:
        problem: Exception = NewConnectionError(self, "the host has no address")
        for family, kind, protocol, _, where in found:
            opened = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    opened.setsockopt(*option)
                opened.settimeout(min(self.timeout_s, current_look().left_s()))
                opened.connect(where)
            except TimeoutError:
                opened.close()
                problem = ConnectTimeoutError(self, "the connection timed out")
            except OSError as error:
                opened.close()
                problem = NewConnectionError(self, f"Failed to establish a new connection: {error}")
                problem.__cause__ = error
            except StoreError:
                opened.close()
                raise
            else:
                return opened
        raise problem

    def connect(self: Any) -> None:
        super().connect()  # type: ignore[misc] # the other base class has it
        self.sock = _LimitedSocket(self.sock, self.timeout_s)


def _pool_classes(addresses: AddressRule, timeout_s: float) -> dict[str, Any]:
    limits = {"addresses": addresses, "timeout_s": timeout_s}
    plain = type("CheckedHTTPConnection", (_CheckedConnection, AWSHTTPConnection), limits)
    secure = type("CheckedHTTPSConnection", (_CheckedConnection, AWSHTTPSConnection), limits)
    return {
        "http": type("CheckedHTTPPool", (AWSHTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("CheckedHTTPSPool", (AWSHTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


class StoreSession(URLLib3Session):
    """Sends the requests of one botocore client, within the limits of the current look."""

    def __init__(
        self, endpoint: str, by_host: str, addresses: AddressRule, timeout_s: float, *, verify: Any, proxies: Any
    ) -> None:
        """`by_host`: host and port with the bucket's name, to which alone a custom endpoint may redirect."""
        timeout: Any = timeout_s  # botocore-stubs accept only whole seconds
        super().__init__(verify=verify, proxies=proxies, timeout=timeout)
        self._pool_classes_by_scheme = _pool_classes(addresses, timeout_s)
        manager: Any = vars(self)["_manager"]  # botocore-stubs do not have it
        manager.pool_classes_by_scheme = self._pool_classes_by_scheme
        self._endpoint, self._by_host = endpoint, by_host
        self._addresses = addresses

    def send_request(self, request: Any, **_: Any) -> Any:
        """Handle botocore's event `before-send`: whatever it returns is used instead of sending."""
        look = current_look()
        if look.failure:
            raise StoreError(look.failure)
        look.left_s()
        self._check_host(look, request.url)
        look.allow(HEAD_MAX_BYTES)
        request.stream_output = True  # otherwise botocore would read the whole body here
        try:
            answer: Any = self.send(request)
            try:
                self._check_redirect(look, answer)
                body = self._read(look, answer)
            except Exception:
                answer.raw.close()  # what was not read must not be taken for the next answer
                raise
        except Exception as error:
            if look.failure:
                # urllib3 and botocore wrap the error that the reader raised.
                raise StoreError(look.failure) from error
            raise
        return AWSResponse(answer.url, answer.status_code, answer.headers, _Body(body))

    def _check_host(self, look: Look, url: str) -> None:
        """A custom endpoint is the only host; AWS has several, which botocore derives from bucket and region."""
        if self._endpoint and urlsplit(url).netloc not in (urlsplit(self._endpoint).netloc, self._by_host):
            raise look.failed(_redirected())
        if refusal := refused_endpoint(url, self._addresses):
            raise look.failed(_endpoint_refused(refusal))

    def _check_redirect(self, look: Look, answer: Any) -> None:
        known = (
            urlsplit(answer.headers.get("Location", "")).netloc == self._by_host
            if self._endpoint
            else "x-amz-bucket-region" in answer.headers
        )
        if 300 <= answer.status_code < 400 and not known:
            raise look.failed(_redirected())

    @staticmethod
    def _read(look: Look, answer: Any) -> bytes:
        limit = look.body_max_bytes if answer.status_code < 300 else ERROR_MAX_BYTES
        look.allow(limit + _FRAMING_MAX_BYTES)
        data = bytearray()
        for piece in answer.raw.stream(_PIECE_BYTES, decode_content=False):
            data += piece
            if len(data) > limit:
                raise look.too_large(limit)
        if answer.raw.length_remaining:
            raise ConnectionClosedError(endpoint_url=answer.url)
        if look.body_max_tags is not None and data.count(b"<") > look.body_max_tags:
            message = "a page of a listing has more rows than S3 allows: correct spec.results.s3.endpoint"
            raise look.failed(StoreFailure("AnswerTooLarge", message, refused=True))
        look.body_bytes = len(data)
        return bytes(data)


class _Body(io.BytesIO):
    """A body that was read, with the interface that botocore expects."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield the body."""
        yield self.read()


def _redirected() -> StoreFailure:
    message = "the store redirects to another address, which is not followed: set spec.results.s3.endpoint to it"
    return StoreFailure("RedirectRefused", message, refused=True)


def _endpoint_refused(why: str) -> StoreFailure:
    remedy = "use the address of an S3 server; the administrator can list the endpoint in fence.stores of the chart"
    return StoreFailure("EndpointRefused", f"spec.results.s3.endpoint is refused: {why}; {remedy}", refused=True)
