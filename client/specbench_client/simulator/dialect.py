"""The seam between the engine and the words of one product: three methods, one folder each.

Only vLLM's words are spoken in this version. SGLang and TensorRT-LLM come as further implementations of the same
protocol; until then they are refused by name, since a dialect that is nearly right would calibrate a client wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from specbench_client.simulator.ask import Ask, Kind, Result
from specbench_client.simulator.engine import Engine


class Wire(Protocol):
    """Writes one response. Every method returns the bytes of whole server-sent events, save ``whole``."""

    def opening(self) -> bytes:
        """Return what comes before the first token; empty where nothing does."""
        ...

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None) -> bytes:
        """Return one content chunk; ``finish_reason`` is given with the last."""
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

    def read(self, kind: Kind, body: bytes, request_id: str, received_ns: int) -> Ask:
        """Read a request's body; RequestError where the engine would refuse it."""
        ...

    def wire(self, ask: Ask) -> Wire:
        """Return the writer of this request's answer."""
        ...

    def scrape(self, engine: Engine) -> str:
        """Return the Prometheus page."""
        ...
