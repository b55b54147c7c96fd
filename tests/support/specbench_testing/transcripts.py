"""What a real engine sent, word for word, as a file: asked once, read again wherever there is no such engine.

Tests of real engines write them into the folder that SPECBENCH_RECORD names; those under tests/recorded are our own
runs, a folder an engine and release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from specbench_client.transport.sse import SseEvent

RECORDED = Path(__file__).parents[2] / "recorded"
VARIABLE = "SPECBENCH_RECORD"


@dataclass(frozen=True)
class Transcript:
    """One streamed answer, with the engine's counters before and after it."""

    engine: str
    kind: str
    drafting: bool
    body: dict[str, Any]
    data: list[str]
    metrics_before: str
    metrics_after: str

    @property
    def events(self) -> list[SseEvent]:
        """The stream's events; when each came is not kept."""
        return [SseEvent(number, data) for number, data in enumerate(self.data)]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read one back."""
        return cls(**json.loads(path.read_text()))

    def keep(self, name: str) -> None:
        """Write it, where somebody wants it."""
        if folder := os.environ.get(VARIABLE):
            path = Path(folder) / self.engine / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


async def record_transcript(url: str, engine: str, kind: str, body: Mapping[str, Any], *, drafting: bool) -> Transcript:
    """Ask, and write down what comes."""
    async with aiohttp.ClientSession(url) as session:
        before = await _counters(session)
        async with session.post("/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            lines = (await answer.text()).splitlines()
        after = await _counters(session)
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return Transcript(engine, kind, drafting, dict(body), data, before, after)


async def _counters(session: aiohttp.ClientSession) -> str:
    """The counters of tokens and drafts: of hundreds of lines, those that are read."""
    async with session.get("/metrics") as answer:
        page = await answer.text()
    wanted = ("spec_decode", "tokens_total", "tokens_cached_total", "tokens_predicted_total", "process_start_time")
    lines = [line for line in page.splitlines() if not line.startswith("#") and "_created" not in line]
    return "\n".join(line for line in lines if any(name in line for name in wanted)) + "\n"
