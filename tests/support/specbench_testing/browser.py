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
    """One page. `asked`: every address it fetched; `complained`: what its console and its engine said of errors."""

    socket: aiohttp.ClientWebSocketResponse
    asked: list[str] = field(default_factory=list)
    complained: list[str] = field(default_factory=list)
    _count: int = 0
    _loaded: int = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser, and note what it tells meanwhile. Raises RuntimeError with what it refuses."""
        self._count += 1
        await self.socket.send_json({"id": self._count, "method": method, "params": parameters})
        while True:
            told = await self.socket.receive_json(timeout=ANSWER_S)
            if told.get("id") == self._count:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        method, parameters = told.get("method"), told.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded += 1
        elif method in {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}:
            self.complained.append(str(parameters))

    async def open(self, page: Path) -> None:
        """Load a file and wait until it is loaded."""
        for room in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{room}.enable")
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
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"]["description"])
        return told["result"].get("value")

    async def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the viewport or of the whole page."""
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(told["data"])

    async def paper(self) -> bytes:
        """Return the page as PDF, as a reader who prefers dark prints it: its own CSS decides on size and margins."""
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        await self.call("Emulation.setEmulatedMedia", media="print", features=features)
        told = await self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(told["data"])


@dataclass
class Browser:
    """The browser, for one test or many: a process of its own and a folder of its own."""

    folder: Path

    async def __aenter__(self) -> Self:
        command = [str(CHROMIUM), *FLAGS, *QUIET, f"--user-data-dir={self.folder}", "about:blank"]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stderr=pipe, start_new_session=True)
        self._address = await asyncio.wait_for(_address(self._process), ANSWER_S)
        self._drain = asyncio.create_task(_emptied(self._process))
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
    told = b""
    async for line in process.stderr:
        told += line
        if found := re.search(rb"DevTools listening on ws://([^/]+)/", line):
            return found.group(1).decode()
    raise RuntimeError(f"chromium ended: {told.decode()}")


async def _emptied(process: Process) -> None:
    assert process.stderr is not None
    async for _ in process.stderr:
        pass
