"""Drives a headless Chromium over its DevTools protocol, to inspect a page's appearance and its requests."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions")
ANSWER_S = 60


@dataclass
class Tab:
    """One page. `requested`: every URL it fetched; `errors`: the messages of its console and its engine."""

    socket: aiohttp.ClientWebSocketResponse
    requested: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _count: int = 0
    _loaded: int = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a DevTools method and note other messages meanwhile. Raises RuntimeError with the browser's error."""
        self._count += 1
        await self.socket.send_json({"id": self._count, "method": method, "params": parameters})
        while True:
            message = await self.socket.receive_json(timeout=ANSWER_S)
            if message.get("id") == self._count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded += 1
        elif method in {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}:
            self.errors.append(str(parameters))

    async def open(self, page: Path) -> None:
        """Load a file and wait until it is loaded."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        before = self._loaded
        await self.call("Page.navigate", url=page.as_uri())
        while self._loaded == before:
            self._note(await self.socket.receive_json(timeout=ANSWER_S))

    async def look(self, *, width: int, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """Set the width, the colour scheme, and the medium (screen or print)."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression as JSON."""
        message = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in message:
            raise RuntimeError(message["exceptionDetails"]["exception"]["description"])
        return message["result"].get("value")

    async def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the viewport or of the whole page."""
        message = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(message["data"])

    async def paper(self) -> bytes:
        """Return the page as PDF with a dark colour scheme; its own CSS sets size and margins."""
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        await self.call("Emulation.setEmulatedMedia", media="print", features=features)
        message = await self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(message["data"])


@dataclass
class Browser:
    """A headless browser with its own process and profile folder, for one or more tests."""

    folder: Path

    async def __aenter__(self) -> Self:
        command = [str(CHROMIUM), *FLAGS, *QUIET, f"--user-data-dir={self.folder}", "about:blank"]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stderr=pipe, start_new_session=True)
        self._address = await asyncio.wait_for(_address(self._process), ANSWER_S)
        self._drain = asyncio.create_task(_drain(self._process))
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()
        await self._drain

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """Yield a page that is closed afterwards."""
        async with self._session.put(f"http://{self._address}/json/new") as answer:
            target = await answer.json()
        async with self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Tab(socket)
        async with self._session.get(f"http://{self._address}/json/close/{target['id']}") as answer:
            await answer.read()


async def _address(process: Process) -> str:
    assert process.stderr is not None
    message = b""
    async for line in process.stderr:
        message += line
        if found := re.search(rb"DevTools listening on ws://([^/]+)/", line):
            return found.group(1).decode()
    raise RuntimeError(f"chromium ended: {message.decode()}")


async def _drain(process: Process) -> None:
    assert process.stderr is not None
    async for _ in process.stderr:
        pass
