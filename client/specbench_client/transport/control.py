"""Requests that are not measured: health, metrics, identity. Over connections of their own, off the stopwatch.

Unlike the stopwatch these raise: what cannot be answered here ends a launch or leaves a figure out, and the caller
says which.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import aiohttp

from specbench_api.spec.conditions import EngineReason
from specbench_client.errors import ClientError, EngineFailed
from specbench_client.transport.words import cut, engine_words

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Unanswered(ClientError):
    """A request of ours was not answered by 200; the message says what came instead."""


class Absent(Unanswered):
    """It answers, and has no such page."""


class Unreachable(Unanswered):
    """Nothing listens there, or its name is not known."""


class Unwelcome(Unanswered):
    """It will not answer us however long we wait: its certificate, our key or the address is not the right one."""


class Control:
    """`async with Control("http://host:port") as control: await control.wait_healthy("/health", 60)`."""

    def __init__(
        self,
        endpoint: str,
        timeout_s: float = 10.0,
        clock: Callable[[], int] = time.monotonic_ns,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._headers = dict(headers or {})
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def healthy(self, path: str) -> bool:
        """Whether it answers 200; False when it does not, or cannot be reached."""
        try:
            await self.text(path)
        except Unanswered:
            return False
        return True

    async def wait_healthy(self, path: str, deadline_s: float, if_absent: str = "") -> None:
        """Wait until it answers 200. Raises EngineFailed (NEVER_READY) with what was last seen; at once if in vain.

        `if_absent`: what to do where it answers all the time, and has no such page.
        """
        give_up_ns = self._clock() + int(deadline_s * 1e9)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self.text(path)
            except Unwelcome as unwelcome:
                raise EngineFailed(str(unwelcome), EngineReason.NEVER_READY) from unwelcome
            except Unanswered as unanswered:
                if self._clock() >= give_up_ns:
                    message = f"the engine was not healthy within {deadline_s:g} s: {unanswered}"
                    if isinstance(unanswered, Absent) and if_absent:
                        message += f": it answers, but has no {path}: {if_absent}"
                    elif isinstance(unanswered, Unreachable):
                        message += f": start the engine, or correct the address ({self._endpoint})"
                    raise EngineFailed(message, EngineReason.NEVER_READY) from unanswered
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    async def text(self, path: str) -> str:
        """The page. Raises Unanswered, of which Unwelcome is one."""
        assert self._session is not None, "control is used inside `async with`"
        url = f"{self._endpoint}{path}"
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                body = await response.read()
                status, elsewhere = response.status, response.headers.get("Location")
        except aiohttp.ClientConnectorCertificateError as error:
            remedy = "set SSL_CERT_FILE to a file with the certificate of the authority that signed it"
            message = f"GET {url}: its certificate is not trusted: {error.certificate_error}: {remedy}"
            raise Unwelcome(message) from error
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"GET {url}: cannot connect: {cut(str(error.os_error))}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unanswered(f"GET {url}: {cut(str(error) or type(error).__name__)}") from error
        if elsewhere is not None and HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise Unwelcome(
                f"GET {url}: HTTP {status}: it sends us to {cut(elsewhere)}: give the address of the engine"
            )
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            remedy = "a key is taken from OPENAI_API_KEY, or given by --header"
            raise Unwelcome(f"GET {url}: HTTP {status}: {engine_words(body)}: {remedy}")
        if status == HTTPStatus.NOT_FOUND:
            raise Absent(f"GET {url}: HTTP {status}: {engine_words(body)}")
        if status != HTTPStatus.OK:
            raise Unanswered(f"GET {url}: HTTP {status}: {engine_words(body)}")
        return body.decode(errors="replace")

    async def documents(self, paths: Sequence[str]) -> dict[str, Any]:
        """The JSON at each path; None where there is none: engines of one kind differ in which routes they have."""
        return {path: await self._document(path) for path in paths}

    async def _document(self, path: str) -> Any:
        try:
            return json.loads(await self.text(path))
        except (Unanswered, ValueError):
            return None
