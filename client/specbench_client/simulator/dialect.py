"""The interface between the simulated engine and the HTTP API of one product; one module per product.

A dialect parses request bodies, formats responses and errors, and has its own pages (health, models, metrics, …). It
rejects what it cannot imitate, because a client calibrated with an almost correct dialect would be wrong.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from specbench_client.openai_server_formats import RejectedRequest, compact_json, usage_totals
from specbench_client.simulator.config import MODEL_NAME, SimulatorConfig
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.requests import ReceivedRequest, SimulatedRequest, SimulatedResponse

PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"

PageRenderer = Callable[[SimulatedEngine], web.Response]


class ResponseFormat(ABC):
    """Formats one response. A product has a subclass, for both routes.

    Every method except ``whole`` returns complete server-sent events as bytes.
    """

    call_prefix = "chatcmpl-tool-"
    """The prefix of a tool call's id."""

    def __init__(self, config: SimulatorConfig, ask: SimulatedRequest) -> None:
        self._config = config
        self._ask = ask
        self._created = int(time.time())
        self._called = False  # whether the tool has been named

    def opening(self) -> bytes:
        """Return the event before the first token; empty if there is none."""
        return b""

    @abstractmethod
    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:
        """Return one content chunk; ``finish_reason`` is set for the last one.

        ``iterations``: the engine's iterations for this request so far, including the prefill and this chunk's.
        """

    @abstractmethod
    def closing(self, result: SimulatedResponse) -> list[bytes]:
        """Return the events after the last content chunk."""

    @abstractmethod
    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        """Return the response that is not streamed."""

    def _head_of(self, response_id: str, kind: str) -> dict[str, Any]:
        """Return the first fields of every chunk."""
        return {"id": response_id, "object": kind, "created": self._created, "model": MODEL_NAME}

    def _totals(self, completion_tokens: int) -> dict[str, int]:
        """Return the token counts of a usage."""
        return usage_totals(self._ask.prompt.tokens, completion_tokens)

    def _call(self, arguments: str) -> dict[str, Any]:
        """Return the tool call of an answer that is not streamed."""
        self._called = True
        return {"id": self._call_id, "type": "function", "function": self._function(arguments)}

    def _call_delta(self, arguments: str) -> dict[str, Any]:
        """Return the next part of the tool call; only the first one names the tool."""
        if self._called:
            return {"index": 0, "function": {"arguments": arguments}}
        self._called = True
        return {"id": self._call_id, "type": "function", "index": 0, "function": self._function(arguments)}

    def _function(self, arguments: str) -> dict[str, Any]:
        return {"name": self._ask.form.tool, "arguments": arguments}

    @property
    def _call_id(self) -> str:
        return f"{self.call_prefix}{self._ask.request_id}"

    def _reason(self, finish_reason: str | None) -> str | None:
        """Return the finish reason, which names a complete tool call."""
        return "tool_calls" if finish_reason == "stop" and self._called else finish_reason

    def _calls(self, text: str) -> bool:
        """Return whether the text is that of a tool call; an empty answer calls no tool."""
        return self._ask.form.tool is not None and bool(text)


CHAT_PATH = "/v1/chat/completions"
OPENAI_PATHS = (CHAT_PATH, "/v1/completions")


class ServerDialect(ABC):
    """The HTTP API of one engine, with OpenAI's two routes; by default with the error objects of SGLang."""

    response_format: type[ResponseFormat]
    pages: Mapping[str, PageRenderer]
    """Pages for GET."""
    commands: Mapping[str, PageRenderer] = {}
    """Actions for GET or POST."""

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config

    @abstractmethod
    def read(self, arrival: ReceivedRequest) -> SimulatedRequest:
        """Parse a request's body. Raises RejectedRequest if the engine would reject it."""

    def wire(self, ask: SimulatedRequest) -> ResponseFormat:
        """Return the formatter of this request's response."""
        return self.response_format(self._config, ask)

    def error(self, refused: RejectedRequest) -> dict[str, Any]:
        """Return the body of an error response."""
        about = {"type": refused.kind, "param": refused.param, "code": refused.status}
        return {"object": "error", "message": refused.message, **about}

    def lost(self, status: int, reason: str) -> dict[str, Any]:  # noqa: ARG002 -- only vLLM's body has the status
        """Return the body of the response to a request without a matching route."""
        return {"detail": reason}


def json_page(document: Any) -> web.Response:
    """Return a JSON page."""
    return web.Response(body=compact_json(document).encode(), content_type="application/json")


def metrics_page(lines: Iterable[str]) -> web.Response:
    """Return a page in Prometheus' text format."""
    text = "".join(f"{line}\n" for line in lines)
    return web.Response(body=text.encode(), headers={"Content-Type": PROMETHEUS})


def health_page(_engine: SimulatedEngine) -> web.Response:
    """Return an empty page with status 200."""
    return web.Response()


def models_page(engine: SimulatedEngine, models: Mapping[str, dict[str, Any]]) -> web.Response:
    """Return the list of models: for each name what a product adds to the fields that all have."""
    about = {"object": "model", "created": int(engine.counters.created_s), "owned_by": "specbench"}
    return json_page({"object": "list", "data": [{"id": name, **about, **own} for name, own in models.items()]})
