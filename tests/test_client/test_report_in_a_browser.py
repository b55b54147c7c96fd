"""report.html in headless Chromium: no sideways scrolling, overlaps, faint text, hidden print content or requests."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import pytest

from specbench_client.documents.summary import RunSummary
from specbench_client.report.html import render_html
from specbench_testing.summary_variants import invalid, many_cells, with_long_recommendation, without_baseline
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

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


pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"), pytest.mark.long]

LOOKS = (Path(__file__).parents[1] / "support/specbench_testing/looks.js").read_text(encoding="utf-8")
DESK, TELEPHONE = {"width": 1280}, {"width": 400}
PAPER = {"width": 1039, "media": "print"}
"""A4 landscape without the page's margins: 275 mm at 96 pixels per inch."""
VIEWS: Mapping[str, dict[str, Any]] = {
    "desk, light": {**DESK, "scheme": "light"},
    "desk, dark": {**DESK, "scheme": "dark"},
    "telephone, light": {**TELEPHONE, "scheme": "light"},
    "telephone, dark": {**TELEPHONE, "scheme": "dark"},
    "paper": {**PAPER, "scheme": "dark"},
}
LONG = "a-drafter-with-a-long-name-of-32"
"""The maximum length of a name."""
WORKLOADS = [{"name": name, "dataset": {"source": "jsonl", "uri": f"{name}.jsonl"}} for name in ("qualitative", "b")]
WORLDS = {
    "plain": SyntheticRun(prompts=20, concurrency=(1, 2), drafters=("ngram", "suffix")),
    "long": SyntheticRun(
        prompts=12,
        drafters=(LONG,),
        categories=("a category whose name is quite as long as that of any drafter may be", None),
        step_ms={"none": 900.0, LONG: 1700.0},  # latencies with six digits
        edits={"spec.workloads": WORKLOADS},
    ),
    "open": SyntheticRun(prompts=20, rate=(4, 0.5), repeats=1),
}


@dataclass(frozen=True)
class Seen:
    """Observations of one page: per view, and over all views."""

    views: Mapping[str, dict[str, Any]]
    requests: list[str]
    console_messages: list[str]
    paper: bytes


def summaries() -> dict[str, tuple[SyntheticRun, RunSummary]]:
    plain, summary = WORLDS["plain"], run_of_world(WORLDS["plain"])
    return {
        "plain": (plain, run_of_world(plain, Corruptions(simulated=True))),
        "long names": (WORLDS["long"], run_of_world(WORLDS["long"])),
        "open loop": (WORLDS["open"], run_of_world(WORLDS["open"])),
        "seven arms at two loads": (plain, many_cells(summary, arms=7, loads=2)),
        "all invalid": (plain, with_long_recommendation(invalid(summary))),
        "no baseline": (plain, without_baseline(summary)),
        "eight arms at twelve loads": (plain, many_cells(summary, arms=8, loads=12)),
        "nothing measured": (plain, run_of_world(plain, Corruptions(measured=lambda _: False))),
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return asyncio.run(_observe_pages(tmp_path_factory.mktemp("browser")))


async def _observe_pages(folder: Path) -> dict[str, Seen]:
    found = {}
    async with Browser(folder / "profile") as browser:
        pages = {name: render_html(world.plan, summary) for name, (world, summary) in summaries().items()}
        for name, text in pages.items():
            page = folder / f"{name}.html"
            page.write_text(text, encoding="utf-8")
            async with browser.tab() as tab:
                await tab.open(page)
                views = {}
                for view, settings in VIEWS.items():
                    await tab.look(**settings)
                    views[view] = await tab.value(LOOKS)
                found[name] = Seen(views, tab.requested, tab.errors, await tab.paper())
    return found


def violations(seen: dict[str, Seen], what: str) -> dict[str, Any]:
    """Return one kind of observation for every page and view that has it."""
    return {
        f"{name}, {view}": looks[what]
        for name, page in seen.items()
        for view, looks in page.views.items()
        if looks[what]
    }


def test_tables_and_plots_do_not_scroll_on_a_desk_or_get_cut_on_paper(seen: dict[str, Seen]) -> None:
    scrolling = violations(seen, "scrolling")
    assert {view: found for view, found in scrolling.items() if "telephone" not in view} == {}


def test_printed_page_shows_collapsed_sections(seen: dict[str, Seen]) -> None:
    folded = violations(seen, "folded")
    assert {view for view in folded if "paper" in view} == set()
    assert "plain, desk, light" in folded
    assert all(page.paper.startswith(b"%PDF-") for page in seen.values())


@pytest.mark.parametrize("what", ["sideways", "tall", "faint", "overlapping", "outside", "unnamed", "ids"])
def test_no_view_of_a_page_has_a_flaw(seen: dict[str, Seen], what: str) -> None:
    """Sideways scrolling, tall rows, a contrast below 4.5 : 1 (WCAG 2), labels over or outside plots, no name or id."""
    assert violations(seen, what) == {}


def test_page_requests_only_itself_and_has_its_plots(seen: dict[str, Seen]) -> None:
    for name, page in seen.items():
        assert [address.rpartition("/")[2].replace("%20", " ") for address in page.requests] == [f"{name}.html"]
        assert page.console_messages == []
    assert [seen[name].views["paper"]["plots"] for name in ("plain", "nothing measured")] == [6, 0]


MARKS = """[...document.querySelectorAll('[data-arm] > title')].map((title) => {
  const box = title.parentNode.getBoundingClientRect();
  return [title.textContent, box.x + box.width / 2, box.y + box.height / 2];
})"""
SHOWN = """[...new Set([...document.querySelectorAll('.answer [data-arm]')]
  .filter((part) => part.getBoundingClientRect().width > 0).map((part) => part.dataset.arm))]"""


def test_a_mark_that_is_pointed_at_shows_its_value_and_an_arm_can_be_hidden(tmp_path: Path) -> None:
    asyncio.run(_use_the_chart(tmp_path))


async def _use_the_chart(folder: Path) -> None:
    page = folder / "page.html"
    page.write_text(render_html(WORLDS["plain"].plan, run_of_world(WORLDS["plain"])), encoding="utf-8")
    async with Browser(folder / "profile") as browser, browser.tab() as tab:
        await tab.look(width=DESK["width"])
        await tab.open(page)
        marks = await tab.value(MARKS)
        assert len(marks) == 4
        for text, x, y in marks:
            await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            assert await tab.value("document.querySelector('output').textContent") == text
        for expected in (["suffix"], ["ngram", "suffix"]):
            await tab.value("document.querySelector('.controls input').click()")
            assert await tab.value(SHOWN) == expected
