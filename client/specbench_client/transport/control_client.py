"""Client for requests that are not measured: health, metrics and identity, over connections of their own.

Unlike a measured exchange, these requests raise: a failure ends a launch or leaves a figure out, as the caller decides.
An answer has a deadline and a maximum size, and is never decompressed: a few hundred kilobytes of gzip can contain a
gigabyte.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp

from specbench_api.spec.conditions import EngineReason
from specbench_client.bounded_json import parse_strict_json
from specbench_client.errors import ClientError, EngineFailed
from specbench_client.transport.error_messages import (
    answers_without_tls,
    compression_error,
    handshake_error_message,
    http_error_message,
    is_redirect,
    rejects_key,
    truncate,
)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
MAX_CONTROL_BYTES = 4 * 1024 * 1024
"""Longest answer. The metrics of an engine with eight workers are some hundreds of kilobytes."""


class ControlError(ClientError):
    """The request failed or was not answered with status 200; the message contains the reason.

    `status`, `location` and `body`: of the answer, if there was one.
    """

    def __init__(self, message: str, status: int | None = None, location: str | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.status, self.location, self.body = status, location, body


class RouteNotFound(ControlError):
    """The engine answered 404: it has no such route."""


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
        self._endpoint = endpoint.rstrip("/")
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
            headers={"Accept-Encoding": "identity", **self._headers},
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

    async def text_or_none(self, path: str) -> str | None:
        """Return the body as text; None unless the path is answered with status 200."""
        try:
            return await self.text(path)
        except ControlError:
            return None

    async def wait_healthy(self, path: str, deadline_s: float, if_absent: str = "") -> None:
        """Wait until the path is answered with status 200.

        Raises EngineFailed (NEVER_READY) with the last failure: after the deadline, or at once for AccessRejected.
        `if_absent`: the remedy if the engine answers but has no such route.
        """
        give_up_ns = time.monotonic_ns() + int(deadline_s * 1e9)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self.text(path)
            except AccessRejected as rejected:
                raise EngineFailed(str(rejected), EngineReason.NEVER_READY) from rejected
            except ControlError as error:
                if time.monotonic_ns() >= give_up_ns:
                    message = f"the engine was not healthy within {deadline_s:g} s: {error}"
                    if isinstance(error, RouteNotFound) and if_absent:
                        message += f": it answers, but has no {path}: {if_absent}"
                    elif isinstance(error, EngineUnreachable):
                        message += f": start the engine, or correct the address ({self._endpoint})"
                    raise EngineFailed(message, EngineReason.NEVER_READY) from error
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    async def text(self, path: str) -> str:
        """Return the body of a GET as text. Raises ControlError, also its subclasses."""
        return (await self._body(path)).decode(errors="replace")

    async def command(self, path: str) -> str:
        """POST without a body to a route that changes the engine's state; return its body. Raises ControlError."""
        return (await self._body(path, method="POST")).decode(errors="replace")

    async def _body(self, path: str, method: str = "GET") -> bytes:
        assert self._session is not None, "the client is used inside `async with`"
        url = f"{self._endpoint}{path}"
        try:
            async with self._session.request(method, url, allow_redirects=False) as response:
                body = await _read_limited(response, url)
                status, location = response.status, response.headers.get("Location")
                self.server = response.headers.get("Server")
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise _handshake_failure(f"{method} {url}", error) from error
        except aiohttp.ClientConnectorError as error:
            raise EngineUnreachable(f"{method} {url}: cannot connect: {truncate(str(error.os_error))}") from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise ControlError(f"{method} {url}: {truncate(str(error) or type(error).__name__)}") from error
        if status == HTTPStatus.OK:
            return body
        message = f"{method} {url}: {http_error_message(status, body, location)}"
        kind = _ERRORS_BY_STATUS.get(status, ControlError)
        raise (AccessRejected if is_redirect(status, location) or rejects_key(status) else kind)(
            message, status, location, body
        )

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
    HTTPStatus.SERVICE_UNAVAILABLE: EngineStarting,
}


async def _read_limited(response: aiohttp.ClientResponse, url: str) -> bytes:
    """Return the body. Raises ControlError if it is compressed or too long."""
    compressed = compression_error(response.headers.get("Content-Encoding", ""))
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
