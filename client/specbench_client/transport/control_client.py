"""Client for requests that are not measured: health, metrics and identity, over connections of their own.

Unlike a measured exchange, these requests raise: a failure ends a launch or leaves a figure out, as the caller decides.
An answer has a deadline and a maximum size, and is never decompressed: a few hundred kilobytes of gzip can contain a
gigabyte.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin

import aiohttp

from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.engine import route_url
from specbench_client.bounded_json import parse_strict_json
from specbench_client.errors import ClientError, EngineFailed
from specbench_client.transport.error_messages import (
    ANSWERED,
    answers_without_tls,
    compression_error,
    handshake_error_message,
    http_error_message,
    is_redirect,
    rejects_key,
    truncate,
)
from specbench_client.transport.exchange import USER_AGENT
from specbench_client.transport.limits import MAX_HEAD_BYTES
from specbench_client.transport.retry_after import pause_before_retry_s, retry_after_s

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
MAX_CONTROL_BYTES = 4 * 1024 * 1024
"""Longest answer. The metrics of an engine with eight workers are some hundreds of kilobytes."""
_WITHOUT_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.TOO_MANY_REQUESTS)
"""Answers of a server that works, on a route that it lacks or limits."""
_log = logging.getLogger(__name__)


class ControlError(ClientError):
    """The request failed or was not answered with status 200; the message contains the reason.

    `status`, `location`, `body` and `retry_after_s`: of the answer, if there was one.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        location: str | None = None,
        body: bytes = b"",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.location, self.body, self.retry_after_s = status, location, body, retry_after_s


class RouteNotFound(ControlError):
    """The engine answered 404 or 405: it has no such route."""


class EngineStarting(ControlError):
    """The engine answered 503: it is loading its model."""


class EngineUnreachable(ControlError):
    """Nothing listens at the address, or its host name is unknown."""


class AccessRejected(ControlError):
    """Waiting will not help: the certificate, the scheme, the key or the address is wrong."""


class ControlClient:
    """`async with ControlClient("http://host:port") as control: await control.wait_healthy("/health", 60)`.

    `timeout_s`: from sending a request until the last byte of its answer.
    """

    def __init__(
        self,
        endpoint: str,
        timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._headers = dict(headers or {})
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self.server: str | None = None
        """The header `Server` of the last answer."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": USER_AGENT, **self._headers},
            max_field_size=MAX_HEAD_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def healthy(self, path: str) -> bool:
        """Return whether the path is answered with status 200."""
        return await self.text_or_none(path) is not None

    async def answers(self, path: str) -> bool:
        """Return whether the server works: it may lack the path, limit its rate or protect it with another key."""
        try:
            await self.text(path)
        except ControlError as error:
            return error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return True

    async def text_or_none(self, path: str) -> str | None:
        """Return the body as text; None unless the path is answered with status 200."""
        try:
            return await self.text(path)
        except ControlError:
            return None

    async def wait_healthy(self, path: str, deadline_s: float, *, may_lack: bool = False) -> None:
        """Wait until the path is answered with status 200, or, if it `may_lack` the path, with 404, 405 or 429.

        Raises EngineFailed (NEVER_READY) with the last failure: after the deadline, or at once for AccessRejected.
        """

        def is_final(error: ControlError) -> bool:
            return isinstance(error, AccessRejected) or (may_lack and error.status in _WITHOUT_ROUTE)

        try:
            await self.wait_for(path, deadline_s, is_final)
        except ControlError as error:
            if may_lack and error.status in _WITHOUT_ROUTE:
                return
            message = str(error)
            if not is_final(error):
                message = f"the engine was not healthy within {deadline_s:g} s: {error}"
            if isinstance(error, EngineUnreachable):
                message += f": start the engine, or correct the address ({self._endpoint})"
            raise EngineFailed(message, EngineReason.NEVER_READY) from error

    async def wait_for(self, path: str, deadline_s: float, is_final: Callable[[ControlError], bool]) -> str:
        """Return the body as text as soon as the path is answered with status 200.

        Raises the last ControlError after the deadline, or at once if it `is_final`. A server that asks to wait is
        waited for longer, see `pause_before_retry_s`.
        """
        started_s = time.monotonic()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self.text(path)
            except ControlError as error:
                asked_s = error.retry_after_s
                wait_s = pause_before_retry_s(asked_s, pause_s, time.monotonic() - started_s, deadline_s)
                if is_final(error) or wait_s is None:
                    raise
            if asked_s is not None:
                _log.warning("%s: waiting %.0f s, as the server asks", path, wait_s)
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    async def text(self, path: str) -> str:
        """Return the body of a GET as text. Raises ControlError, also its subclasses."""
        return (await self._body(path)).decode(errors="replace")

    async def command(self, path: str) -> str:
        """POST without a body to a route that changes the engine's state; return its body. Raises ControlError."""
        return (await self._body(path, method="POST")).decode(errors="replace")

    async def _body(self, path: str, method: str = "GET") -> bytes:
        url = route_url(self._endpoint, path)
        status, headers, body = await self._request(method, url)
        location = headers.get("location")
        if is_redirect(status, location) and f"{location}/".startswith(urljoin(url, "/")):  # the same server
            status, headers, body = await self._request(method, str(location))
        if status in ANSWERED:
            return body
        message = f"{method} {url}: {http_error_message(status, body, location, url)}"
        kind = _ERRORS_BY_STATUS.get(status, ControlError)
        raise (AccessRejected if is_redirect(status, location) or rejects_key(status) else kind)(
            message, status, location, body, retry_after_s(headers)
        )

    async def _request(self, method: str, url: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers by their names in lower case, and body of an answer. Raises ControlError."""
        assert self._session is not None, "the client is used inside `async with`"
        try:
            async with self._session.request(method, url, allow_redirects=False) as response:
                body = await _read_limited(response, url)
                self.server = response.headers.get("Server")
                headers = {name.lower(): value for name, value in response.headers.items()}
                with suppress(KeyError, ValueError):  # There is none, or it is no address.
                    headers["location"] = urljoin(url, headers["location"])
                return response.status, headers, body
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise _handshake_failure(f"{method} {url}", error) from error
        except aiohttp.ClientConnectorError as error:
            raise EngineUnreachable(
                f"{method} {url}: cannot connect: {truncate(str(error.os_error) or type(error.os_error).__name__)}"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise ControlError(f"{method} {url}: {truncate(str(error) or type(error).__name__)}") from error

    async def documents(self, paths: Sequence[str]) -> dict[str, Any]:
        """Return the JSON at each path; None for paths without, since engines of one kind differ in their routes.

        Documents that are not strict JSON, or nested too deeply, are None too.
        """
        return {path: await self._document(path) for path in paths}

    async def _document(self, path: str) -> Any:
        try:
            return parse_strict_json(await self._body(path))
        except (ControlError, ValueError):
            return None


def _handshake_failure(
    request: str, error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError
) -> ControlError:
    certificate = isinstance(error, aiohttp.ClientConnectorCertificateError)
    cause = error.certificate_error if certificate else error.os_error
    assert isinstance(cause, ssl.SSLError), "the ssl module raises no other"
    kind = AccessRejected if certificate or answers_without_tls(cause) else EngineUnreachable
    return kind(f"{request}: {handshake_error_message(cause)}")


_ERRORS_BY_STATUS: dict[int, type[ControlError]] = {
    HTTPStatus.NOT_FOUND: RouteNotFound,
    HTTPStatus.METHOD_NOT_ALLOWED: RouteNotFound,
    HTTPStatus.SERVICE_UNAVAILABLE: EngineStarting,
}


async def _read_limited(response: aiohttp.ClientResponse, url: str) -> bytes:
    """Return the body. Raises ControlError if it is compressed or too long."""
    compressed = compression_error({name.lower(): value for name, value in response.headers.items()})
    if compressed is not None:
        raise ControlError(f"GET {url}: {compressed}")
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > MAX_CONTROL_BYTES:
            response.close()
            message = f"the answer is longer than {MAX_CONTROL_BYTES:,} bytes, which none of an engine's pages is"
            raise ControlError(f"GET {url}: {message}: check that the address is the engine's")
    return bytes(body)
