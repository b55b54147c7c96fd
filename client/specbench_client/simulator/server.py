"""The HTTP server: the dialect's routes, readiness, and the marks that say *simulated* on every answer.

Each answer carries ``X-Specbench-Simulated: true``, the model name (and vLLM's fingerprint) says so again, and the
request's ``X-Request-Id`` comes back and stands in the truth file. Where the client gave none, the truth has the one
that is part of the answer's ``id``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from specbench_client.simulator.ask import Arrival
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.dialect import Dialect, View
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.errors import ConfigError, EngineBroken, NotReady, RequestError
from specbench_client.simulator.exchange import ConnectionCut, Exchange
from specbench_client.simulator.sglang import SglangDialect
from specbench_client.simulator.tensorrt_llm import TensorrtLlmDialect
from specbench_client.simulator.truth import TruthFile
from specbench_client.simulator.vllm import VllmDialect

SIMULATED_HEADER = "X-Specbench-Simulated"
REQUEST_ID_HEADER = "X-Request-Id"
MAX_BODY_BYTES = 64 * 1024 * 1024
DIALECTS: Mapping[str, Callable[[SimulatorConfig], Dialect]] = {
    "vllm": VllmDialect,
    "sglang": SglangDialect,
    "tensorrt-llm": TensorrtLlmDialect,
}

_log = logging.getLogger(__name__)


def choose_dialect(name: str, config: SimulatorConfig) -> Dialect:
    """Return the dialect; ConfigError names those that exist."""
    if name not in DIALECTS:
        raise ConfigError(f"no dialect is called {name!r}; there are: {', '.join(DIALECTS)}")
    return DIALECTS[name](config)


def exit_at_once(code: int) -> None:
    """End this process as a crash does, with no clean-up; 137 is a SIGKILL, as the OOM killer sends."""
    if code == 128 + signal.SIGKILL:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(code)


@dataclass(slots=True)
class Server:
    """The handlers, over one engine. ``die`` is what a fatal fault calls with the exit code."""

    engine: Engine
    dialect: Dialect
    truth: TruthFile | None = None
    die: Callable[[int], None] = exit_at_once
    arrived: int = 0
    answered: int = 0
    started_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.started_ns = self.engine.clock()

    def application(self) -> web.Application:
        """Return the aiohttp application; the engine runs while it does."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.on_response_prepare.append(self._mark)
        app.cleanup_ctx.append(self._drive)
        for path in self.dialect.paths:
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
        """Refuse while starting; turn our errors into the engine's error objects."""
        try:
            if not self.engine.config.faults.ready((self.engine.clock() - self.started_ns) / 1e9):
                raise NotReady("The simulated engine is still starting.")
            return await handler(request)
        except RequestError as error:
            return web.json_response(self.dialect.error(error), status=error.status)
        except web.HTTPException as error:
            if error.status < web.HTTPBadRequest.status_code:
                raise
            return web.json_response(self.dialect.lost(error.status, error.reason), status=error.status)

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
        """End the process where the loop broke, as vLLM does: every request would wait for ever."""
        if not task.cancelled() and task.exception() is not None:
            _log.error("simulator: the engine's loop died", exc_info=task.exception())
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
        ask = self.dialect.read(Arrival(self.dialect.paths[request.path], body, request_id, received_ns))
        if faults.refuses(self.engine.config.seed, index):
            raise EngineBroken("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        exchange = Exchange(self.engine, self.engine.submit(ask), self.dialect.wire(ask), request, self.truth)
        try:
            response = await exchange.run()
        except (ConnectionCut, ConnectionResetError) as error:
            _log.info("simulator: request %s lost its connection: %r", ask.request_id, error)
            return web.Response(status=499)  # nobody reads it; nginx' number for a client that has gone
        self.answered += 1
        if faults.restarts_counters(self.answered):
            self.engine.restart_counters()
        if faults.crashes(self.answered):
            self.die(1)
        return response

    def _show(self, view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the handler of one of the dialect's pages."""

        async def handler(_request: web.Request) -> web.StreamResponse:
            page = view(self.engine)
            headers = {"Content-Type": page.content_type} if page.body else {}
            return web.Response(body=page.body, status=page.status, headers=headers)

        return handler
