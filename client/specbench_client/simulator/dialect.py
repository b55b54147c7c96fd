"""The seam between the engine and the words of one product: one folder each.

A dialect reads a body, writes an answer, words an error, and has pages of its own (health, models, metrics, …). What it
cannot imitate it refuses: a dialect that is nearly right would calibrate a client wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from specbench_client.simulator.ask import Arrival, Ask, Kind, Result
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import RequestError

PLAIN = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """What a GET shows; without a body, the status alone."""

    body: bytes = b""
    content_type: str = PLAIN
    status: int = HTTPStatus.OK


View = Callable[[Engine], Page]


class Wire(Protocol):
    """Writes one response. Every method returns the bytes of whole server-sent events, save ``whole``."""

    def opening(self) -> bytes:
        """Return what comes before the first token; empty where nothing does."""
        ...

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:
        """Return one content chunk; ``finish_reason`` is given with the last.

        ``iterations`` are the engine's for this request so far, the prefill and this chunk's among them.
        """
        ...

    def closing(self, result: Result) -> list[bytes]:
        """Return the events after the last content chunk."""
        ...

    def whole(self, result: Result) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        ...


class Dialect(Protocol):
    """One engine's HTTP."""

    paths: Mapping[str, Kind]
    """Where completions are asked for."""
    pages: Mapping[str, View]
    """What can be got."""
    commands: Mapping[str, View]
    """What can be got or posted, and does something."""

    def read(self, arrival: Arrival) -> Ask:
        """Read a request's body; RequestError where the engine would refuse it."""
        ...

    def wire(self, ask: Ask) -> Wire:
        """Return the writer of this request's answer."""
        ...

    def error(self, refused: RequestError) -> dict[str, Any]:
        """Return the body of an answer that refuses."""
        ...

    def lost(self, status: int, reason: str) -> dict[str, Any]:
        """Return the body of an answer to what no route takes."""
        ...


def shown(document: Any) -> Page:
    """Return a page of JSON."""
    return Page(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), "application/json")


def healthy(_engine: Engine) -> Page:
    """Return 200 and nothing else."""
    return Page()
