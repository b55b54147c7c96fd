"""The simulator's HTTP server: routes, readiness, responses with injected faults, and the truth file.

Every response has the header ``X-Specbench-Simulated: true`` and a model name (with vLLM also a fingerprint) that marks
it too. The request's ``X-Request-Id`` is returned and written to the truth file. If the client sent none, the truth
file has the id that is part of the response's ``id``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import struct
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from aiohttp import web

from specbench_client.openai_server_formats import (
    MAX_BODY_BYTES,
    REQUEST_ID_HEADER,
    RejectedRequest,
    compact_json,
    http_url,
)
from specbench_client.simulator.config import MODEL_NAME, PromptCategories, SimulatorConfig, read_categories
from specbench_client.simulator.dialect import CHAT_PATH, OPENAI_PATHS, PageRenderer, ResponseFormat, ServerDialect
from specbench_client.simulator.engine import SimulatedEngine, StepOutput, TokenStream
from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.requests import ReceivedRequest, SimulatedResponse
from specbench_client.simulator.sglang import SglangServerDialect
from specbench_client.simulator.tensorrt_llm import TensorrtLlmServerDialect
from specbench_client.simulator.vllm import VllmServerDialect

SIMULATED_HEADER = "X-Specbench-Simulated"
DIALECTS: Mapping[str, Callable[[SimulatorConfig], ServerDialect]] = {
    "vllm": VllmServerDialect,
    "sglang": SglangServerDialect,
    "tensorrt-llm": TensorrtLlmServerDialect,
}

_log = logging.getLogger(__name__)


def choose_dialect(name: str, config: SimulatorConfig) -> ServerDialect:
    """Return the dialect with this name. Raises ConfigError with the known names."""
    if name.lower() not in DIALECTS:
        raise ConfigError(f"--dialect {name}: unknown dialect: give one of {', '.join(DIALECTS)}")
    return DIALECTS[name.lower()](config)


class ConnectionDropped(Exception):
    """The connection was reset on purpose, so no response can be sent."""


@dataclass(slots=True)
class ResponseSender:
    """Sends the response to one request."""

    engine: SimulatedEngine
    stream: TokenStream
    wire: ResponseFormat
    request: web.Request
    truth: TruthFile | None
    sent: list[StepOutput] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)
    complete: bool = False

    async def run(self) -> web.StreamResponse:
        """Send the response. In every case the engine drops the request and the truth file gets one line."""
        try:
            if self.stream.ask.delivery.stream:
                return await self._streamed()
            return await self._whole()
        finally:
            if not self.complete:
                self.engine.cancel(self.stream)
                self._write_truth()

    async def _streamed(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(self.request)
        pending: list[StepOutput] = []
        async for piece in self.stream:
            if not self.sent and not pending and (opening := self.wire.opening()):
                await response.write(opening)
            pending.append(piece)
            if piece.last or len(pending) == self.engine.config.faults.steps_per_chunk:
                await self._send_chunk(response, pending)
                pending = []
        self._finish()
        for data in self.wire.closing(self._result()):
            await response.write(data)
        await response.write_eof()
        return response

    async def _send_chunk(self, response: web.StreamResponse, pieces: list[StepOutput]) -> None:
        await self._apply_stream_faults(len(self.sent_ns))
        words = tuple(word for piece in pieces for word in piece.words)
        before = sum(len(piece.words) for piece in self.sent)
        reason = self.stream.answer.finish_reason if pieces[-1].last else None
        data = self.wire.chunk(words, before, reason, len(self.sent) + len(pieces))
        if self.engine.config.faults.garbles(len(self.sent_ns)):
            data = data[: len(data) // 2] + b"\n\n"
        self.sent_ns.append(self.engine.clock())
        self.sent.extend(pieces)
        await response.write(data)

    async def _whole(self) -> web.StreamResponse:
        pieces = [piece async for piece in self.stream]
        faults = self.engine.config.faults
        if faults.resets(len(pieces)) or faults.stalls(len(pieces)):
            await self._apply_stream_faults(len(pieces))
        self.sent = pieces
        self.sent_ns.append(self.engine.clock())
        self._finish()
        response = web.json_response(self.wire.whole(self._result()), dumps=compact_json)
        await response.prepare(self.request)
        await response.write_eof()
        return response

    async def _apply_stream_faults(self, chunks_sent: int) -> None:
        """Reset or stall the stream if a fault is due."""
        if self.engine.config.faults.resets(chunks_sent):
            self._reset()
            raise ConnectionDropped
        if self.engine.config.faults.stalls(chunks_sent):
            await asyncio.Event().wait()  # until the client leaves or the server stops, which both cancel this task

    def _reset(self) -> None:
        """Close with a RST instead of a FIN, which the kernel sends for a linger time of 0."""
        transport = self.request.transport
        if transport is not None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    def _finish(self) -> None:
        """Mark the request as complete, since all tokens are sent and it can no longer be aborted."""
        self.complete = True
        self._write_truth()

    def _write_truth(self) -> None:
        if self.truth is not None and self.sent:
            self.truth.write(truth_record(self.stream, self.sent, self.sent_ns, complete=self.complete))

    def _result(self) -> SimulatedResponse:
        words = self.stream.answer.words
        return SimulatedResponse(
            words=words,
            finish_reason=self.stream.answer.finish_reason,
            outcomes=tuple(piece.outcome for piece in self.sent),
            reported_tokens=self.engine.config.faults.reported_tokens(len(words)),
            cached_tokens=self.stream.cached_tokens,
            timing=self.stream.timing,
        )


def truth_record(stream: TokenStream, sent: list[StepOutput], sent_ns: list[int], *, complete: bool) -> dict[str, Any]:
    """Return the line of a request. ``sent``: steps whose tokens were sent; ``sent_ns``: one timestamp per chunk."""
    steps = [piece.outcome for piece in sent if not piece.outcome.prefill]
    drafting = [step for step in steps if step.drafted]
    return {
        "request_id": stream.ask.request_id,
        "model": MODEL_NAME,
        "category": stream.category,
        "prompt_tokens": stream.sequence.prompt_tokens,
        "cached_tokens": stream.cached_tokens,
        "output_tokens": sum(len(piece.words) for piece in sent),
        "steps": len(steps),
        "step_accepted": [step.delivered_accepted for step in steps],
        "step_drafted": [step.drafted for step in steps],
        "draft_steps": len(drafting),
        "drafted_tokens": sum(step.drafted for step in steps),
        "accepted_tokens": sum(step.delivered_accepted for step in steps),
        "reported": {
            "draft_steps": len(drafting),
            "step_accepted": [step.accepted for step in drafting],
            "accepted_tokens": sum(step.accepted for step in drafting),
        },
        "text_faults": list(stream.answer.faults),
        "finish_reason": stream.answer.finish_reason if complete else "abort",
        "received_ns": stream.ask.received_ns,
        "scheduled_ns": stream.timing.scheduled_ns,
        "sent_ns": sent_ns,
    }


# The truth file has one JSON line per request with what the engine really did, for calibrating a client.
#
# ``step_accepted``, ``accepted_tokens`` and ``output_tokens`` count *delivered* tokens: ``output_tokens = 1 +
# sum(step_accepted + 1)`` holds exactly over all decode steps, with or without drafts. The counts that vLLM and SGLang
# *report* (before the last step is cut, without the steps that had no drafts) are under ``reported``. ``cached_tokens``
# of the prompt were not computed, and ``text_faults`` names the faults that changed the answer. An aborted
# request has the ``finish_reason`` ``abort`` and counts the tokens handed to the socket; a request without any token
# has no line. Times are this machine's monotonic clock in ns, taken just before sending, so no client can have received
# earlier.


class TruthFile:
    """Appends lines and flushes each one, so that a killed engine loses none and a restarted one keeps earlier ones."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIO = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"truth file {path}: {error}") from error

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def exit_at_once(code: int) -> None:
    """End this process without clean-up, like a crash; 137 sends a SIGKILL like the OOM killer."""
    if code == 128 + signal.SIGKILL:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(code)


@dataclass(slots=True)
class SimulatorServer:
    """The HTTP handlers for one engine. A fatal fault calls ``die`` with the exit code."""

    engine: SimulatedEngine
    dialect: ServerDialect
    truth: TruthFile | None = None
    die: Callable[[int], None] = exit_at_once
    arrived: int = 0
    answered: int = 0
    started_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.started_ns = self.engine.clock()

    def application(self) -> web.Application:
        """Build the aiohttp application; the engine runs as long as the application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.on_response_prepare.append(self._mark)
        app.cleanup_ctx.append(self._drive)
        for path in OPENAI_PATHS:
            app.router.add_post(path, self._answer)
        for path, view in self.dialect.pages.items():
            app.router.add_get(path, self._show(view))
        for path, view in self.dialect.commands.items():
            app.router.add_get(path, self._show(view))
            app.router.add_post(path, self._show(view))
        return app

    # -- around every request --------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Reject requests during startup, and convert errors to the dialect's error objects."""
        try:
            self._reject_while_starting()
            return await handler(request)
        except RejectedRequest as error:
            return web.json_response(self.dialect.error(error), status=error.status)
        except web.HTTPException as error:
            if error.status < web.HTTPBadRequest.status_code:
                raise
            return web.json_response(self.dialect.lost(error.status, error.reason), status=error.status)

    def _reject_while_starting(self) -> None:
        if not self.engine.config.faults.ready((self.engine.clock() - self.started_ns) / 1e9):
            raise RejectedRequest("The simulated engine is still starting.", HTTPStatus.SERVICE_UNAVAILABLE)

    async def _mark(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers[SIMULATED_HEADER] = "true"
        if REQUEST_ID_HEADER in request.headers:
            response.headers[REQUEST_ID_HEADER] = request.headers[REQUEST_ID_HEADER]

    async def _drive(self, _app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self.engine.run())
        task.add_done_callback(self._engine_died)
        yield
        task.cancel()
        await asyncio.wait([task])
        if self.truth is not None:
            self.truth.close()

    def _engine_died(self, task: asyncio.Task[None]) -> None:
        """End the process if the engine's loop failed, as vLLM does: all requests would wait forever."""
        if not task.cancelled() and task.exception() is not None:
            _log.error("simulator: the engine's loop failed", exc_info=task.exception())
            self.die(1)

    # -- the routes ------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        received_ns = self.engine.clock()
        faults = self.engine.config.faults
        self.arrived += 1
        index = self.arrived
        if faults.runs_out_of_memory(index):
            self.die(128 + signal.SIGKILL)
        body = await request.read()
        request_id = request.headers.get(REQUEST_ID_HEADER) or uuid.uuid4().hex[:16]
        ask = self.dialect.read(ReceivedRequest(request.path == CHAT_PATH, body, request_id, received_ns))
        if faults.refuses(self.engine.config.seed, index):
            message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            raise RejectedRequest(message, HTTPStatus.INTERNAL_SERVER_ERROR)
        exchange = ResponseSender(self.engine, self.engine.submit(ask), self.dialect.wire(ask), request, self.truth)
        try:
            response = await exchange.run()
        except (ConnectionDropped, ConnectionResetError) as error:
            _log.info("simulator: request %s lost its connection: %r", ask.request_id, error)
            return web.Response(status=499)  # not read by anyone; nginx's status for a closed connection
        self.answered += 1
        if faults.restarts_counters(self.answered):
            self.engine.restart_counters()
        if faults.crashes(self.answered):
            self.die(1)
        return response

    def _show(self, view: PageRenderer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the handler for one of the dialect's pages."""

        async def handler(_request: web.Request) -> web.StreamResponse:
            return view(self.engine)

        return handler


# Time for requests in flight to end after SIGTERM, because a stalled one never would. aiohttp waits twice: before and
# after it cancels the handlers.
GRACE_SECONDS = 1.0


async def run_simulator(
    config: SimulatorConfig,
    dialect: ServerDialect,
    announce: Callable[[str], None],
    *,
    host: str,
    port: int,
    port_file: Path | None,
    prompts: Path | None,
    truth: Path | None,
) -> None:
    """Serve until SIGTERM or SIGINT; call ``announce`` with the URL. Raises ConfigError if it cannot start.

    ``port``: 0 for a free one, which is written to ``port_file``.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    categories = read_categories(prompts) if prompts else PromptCategories()
    server = SimulatorServer(SimulatedEngine(config, categories), dialect, TruthFile(truth) if truth else None)
    runner = web.AppRunner(
        server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=GRACE_SECONDS
    )
    await runner.setup()
    try:
        port = await _listen(runner, host, port)
        if port_file:
            _write_atomically(port_file, f"{port}\n")
        announce(http_url(host, port))
        await stop.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> int:
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    bound: int = runner.addresses[0][1]
    return bound


def _write_atomically(path: Path, text: str) -> None:
    """Write a file atomically, so that a process waiting for it never reads a part of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# A worker node of a simulated multi-node engine computes nothing and runs as long as its leader, like a worker of a
# real engine. It checks the leader with a bare TCP connection, because the leader might count a health request.

PERIOD_S = 1.0
TIMEOUT_S = 5.0


def follow_leader(leader: str, report: Callable[[str], None], period_s: float = PERIOD_S) -> None:
    """Wait for the leader without a limit, and return when it stops listening. Raises ConfigError."""
    host, port = _address(leader)
    pause = threading.Event()
    report(f"waiting for the simulated engine at {leader}")
    while not _listens(host, port):
        pause.wait(period_s)
    report(f"joined the simulated engine at {leader}")
    while _listens(host, port):
        pause.wait(period_s)
    report(f"the simulated engine at {leader} has stopped")


def _address(leader: str) -> tuple[str, int]:
    try:
        parts = urlsplit(leader)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ConfigError(f"--follow {leader}: is not an address: give one such as http://127.0.0.1:8000")
    return host, port


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return True
    except OSError:
        return False
