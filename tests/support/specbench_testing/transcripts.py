"""The exact output of a real engine as a file: recorded once, read wherever that engine is not available.

Tests of real engines write transcripts into the folder SPECBENCH_RECORD; those in tests/recorded are from our own
runs, with one folder per engine and release.
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
        """The stream's events; their arrival times are not stored."""
        return [SseEvent(number, data) for number, data in enumerate(self.data)]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a transcript from a file."""
        return cls(**json.loads(path.read_text()))

    def keep(self, name: str) -> None:
        """Write the transcript if SPECBENCH_RECORD is set."""
        if folder := os.environ.get(VARIABLE):
            path = Path(folder) / self.engine / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


async def record_transcript(url: str, engine: str, kind: str, body: Mapping[str, Any], *, drafting: bool) -> Transcript:
    """Send a request and record the response."""
    async with aiohttp.ClientSession(url) as session:
        before = await _counters(session)
        async with session.post("/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            lines = (await answer.text()).splitlines()
        after = await _counters(session)
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return Transcript(engine, kind, drafting, dict(body), data, before, after)


async def _counters(session: aiohttp.ClientSession) -> str:
    """The counters of tokens and drafts: only those that are read, of hundreds of lines."""
    async with session.get("/metrics") as answer:
        page = await answer.text()
    names = ("spec_decode", "tokens_total", "tokens_cached_total", "tokens_predicted_total", "process_start_time")
    lines = [line for line in page.splitlines() if not line.startswith("#") and "_created" not in line]
    return "\n".join(line for line in lines if any(name in line for name in names)) + "\n"
