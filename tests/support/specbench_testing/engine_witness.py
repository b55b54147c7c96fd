"""A second opinion on an engine: its raw answers and counters, read without any code of the product.

As a program, it replaces itself by the engine and leaves a child that forwards every request to it and records the raw
answer:

    python engine_witness.py FOLDER ENGINE [ARGUMENTS] --port 8000

The engine gets another port. Each launch has one file in the folder, with one exchange per line.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import aiohttp
from aiohttp import web

_PR_SET_PDEATHSIG = 1
_FORWARDED = ("content-type", "accept", "authorization", "x-request-id")


@dataclass(frozen=True)
class Exchange:
    """A request and its raw answer. `request_id`: the header X-Request-Id."""

    path: str
    request_id: str | None
    status: int
    text: str

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The chunks of a streamed answer."""
        data = re.findall(r"^data: (\{.*\})\r?$", self.text, flags=re.MULTILINE)
        return [json.loads(one) for one in data]

    @property
    def content(self) -> str:
        """The text of a streamed answer."""
        choices = (choice for chunk in self.chunks for choice in chunk["choices"])
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The name and the arguments of each tool call of a streamed answer."""
        joined: dict[int, list[str]] = {}
        for choice in (choice for chunk in self.chunks for choice in chunk["choices"]):
            for part in choice["delta"].get("tool_calls") or []:
                call = joined.setdefault(part["index"], ["", ""])
                call[0] += part["function"].get("name") or ""
                call[1] += part["function"].get("arguments") or ""
        return [(name, arguments) for name, arguments in joined.values()]

    @property
    def turn(self) -> str:
        """Conversation and turn, the same for the same request of all arms."""
        return "-".join((self.request_id or "").rsplit("-", 2)[1:])

    @property
    def prompt_tokens(self) -> tuple[int, int]:
        """The number of prompt tokens that came from the cache, and of all."""
        usage = self.chunks[-1]["usage"]
        return (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0), usage["prompt_tokens"]


@dataclass(frozen=True)
class WitnessedStep:
    """A step that verified drafts. `cut`: accepted ones that came after the end of the answer."""

    drafted: int
    accepted: int
    cut: int = 0

    @property
    def delivered(self) -> WitnessedStep:
        """The step without the accepted drafts that came after the end of the answer."""
        return WitnessedStep(self.drafted, self.accepted - self.cut)


@dataclass(frozen=True)
class WitnessedLaunch:
    """The exchanges of one launch of an engine, in the order in which they ended, and its log."""

    exchanges: list[Exchange]
    log: str

    @property
    def answers(self) -> list[Exchange]:
        """The answers to requests for text since the first page of counters."""
        first = next(index for index, one in enumerate(self.exchanges) if one.path == "/metrics")
        found = [one for one in self.exchanges[first:] if one.path.endswith("/completions")]
        assert {one.status for one in found} == {200}
        return found

    def during(self, request_ids: Iterable[str]) -> WitnessedLaunch:
        """The part of a point: from the page of counters before its requests to the one after them."""
        wanted = set(request_ids)
        own = [index for index, one in enumerate(self.exchanges) if one.request_id in wanted]
        pages = [index for index, one in enumerate(self.exchanges) if one.path == "/metrics"]
        first, last = max(each for each in pages if each < own[0]), min(each for each in pages if each > own[-1])
        return WitnessedLaunch(self.exchanges[first : last + 1], self.log)

    def answers_to(self, request_ids: Iterable[str]) -> list[Exchange]:
        """The answers to these requests."""
        by_id = {one.request_id: one for one in self.answers}
        return [by_id[name] for name in request_ids]

    def counted(self, name: str, labels: str = "") -> int:
        """How much a counter grew from the first to the last page of counters. Before its first value, it is 0."""
        pages = [one.text for one in self.exchanges if one.path == "/metrics"]
        pattern = re.compile(rf"^{name}(?:{{[^}}]*{labels}[^}}]*}})? (\S+)$", flags=re.MULTILINE)
        first, last = (sum(map(float, pattern.findall(page))) for page in (pages[0], pages[-1]))
        return int(last - first)


def witnessed_launches(folder: Path) -> list[WitnessedLaunch]:
    """Read the launches that were recorded, in the order in which they started."""
    return [
        WitnessedLaunch(
            [Exchange(**json.loads(line)) for line in path.read_text().splitlines()],
            path.with_suffix(".log").read_text(errors="replace"),
        )
        for path in sorted(folder.glob("*.jsonl"))
    ]


def hit_shares_by_depth(
    arm: Iterable[Exchange], baseline: Iterable[Exchange], depths: Sequence[int]
) -> list[tuple[int, float, float]]:
    """Pairs and both hit shares by the depth of the prefix, the larger number of cached tokens of the pair.

    `depths`: the lower bounds of the classes; those without pairs are left out.
    """
    theirs = {answer.turn: answer.prompt_tokens for answer in baseline}
    pairs = [(answer.prompt_tokens, theirs[answer.turn]) for answer in arm]
    found = []
    for low, high in zip(depths, [*depths[1:], sys.maxsize], strict=True):
        sides = list(zip(*(pair for pair in pairs if low <= max(pair[0][0], pair[1][0]) < high), strict=True))
        if sides:
            found.append((len(sides[0]), _hit_share(sides[0]), _hit_share(sides[1])))
    return found


def _hit_share(tokens: Sequence[tuple[int, int]]) -> float:
    return sum(cached for cached, _ in tokens) / sum(prompt for _, prompt in tokens)


def steps_reaching(steps: Sequence[WitnessedStep], position: int) -> int:
    """The number of steps that accepted this many drafts or more."""
    return sum(1 for step in steps if step.accepted >= position)


def joint_rate(steps: Sequence[WitnessedStep], position: int) -> float:
    """The share of steps that accepted this many drafts or more."""
    return steps_reaching(steps, position) / len(steps)


def conditional_rate(steps: Sequence[WitnessedStep], position: int) -> float | None:
    """The share of steps that accepted this draft, of those that drafted it and accepted all before it."""
    tried = sum(1 for step in steps if step.drafted >= position and step.accepted >= position - 1)
    return steps_reaching(steps, position) / tried if tried else None


def witnessed_command(folder: Path, engine: Sequence[str]) -> list[str]:
    """The command that starts an engine and records what it answers."""
    return [sys.executable, __file__, str(folder), *engine]


def main(folder: Path, engine: list[str]) -> None:
    """Start the recorder, then become the engine, whose log goes to the folder."""
    at = engine.index("--port") + 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{len(list(folder.glob('*.log'))):02d}.jsonl"
    with path.with_suffix(".log").open("x") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    recorder = [sys.executable, __file__, "--record", str(path), engine[at], port]
    subprocess.Popen(recorder)
    os.execvp(engine[0], [*engine[:at], port, *engine[at + 1 :]])


async def record(path: Path, outer: int, inner: int) -> None:
    """Forward the requests to one port to the other, until the engine ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connector = aiohttp.TCPConnector(force_close=True)  # An idle connection may be closed by the engine at any time.
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{inner}", connector=connector, timeout=timeout) as session:
        with path.open("x", buffering=1) as file:
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", lambda request: _forward(request, session, file))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", outer).start()
            await asyncio.Event().wait()


async def _forward(request: web.Request, session: aiohttp.ClientSession, file: TextIO) -> web.StreamResponse:
    headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
    body = await request.read() or None
    skipped = ["Accept-Encoding"]
    try:
        async with session.request(
            request.method, request.path_qs, data=body, headers=headers, skip_auto_headers=skipped
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            pieces = []
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                await response.write(piece)
    except aiohttp.ClientConnectionError:
        return web.Response(status=502)
    # Written before the end of the answer is sent, because the engine may be stopped right after it.
    exchange = Exchange(request.path, headers.get("x-request-id"), answer.status, b"".join(pieces).decode())
    file.write(json.dumps(asdict(exchange)) + "\n")
    await response.write_eof()
    return response


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        asyncio.run(record(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
