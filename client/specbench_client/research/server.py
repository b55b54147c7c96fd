"""The HTTP server: vLLM's routes over one worker. It listens once the model is loaded, so /health says 200 at once."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from aiohttp import web

from specbench_api.spec.engine import RESEARCH_RUNTIME
from specbench_client.research.detokenizer import Detokenizer
from specbench_client.research.errors import RequestError
from specbench_client.research.request import Asked, read_request
from specbench_client.research.runtime import Runtime, Step
from specbench_client.research.wire import Times, Wire, error_object, event
from specbench_client.research.worker import Worker

REQUEST_ID = "X-Request-Id"
MAX_BODY_BYTES = 64 * 1024 * 1024
Said = tuple[Step, str, str | None]
"""A step, its text, and why the answer ended with it."""
_log = logging.getLogger(__name__)


class Server:
    """The handlers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._worker = Worker(runtime)
        self._created = int(time.time())

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.on_response_prepare.append(_answer_to)
        app.cleanup_ctx.append(self._close)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/facts", self._facts)
        app.router.add_get("/metrics", self._metrics)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turn our errors into the engine's error objects."""
        try:
            return await handler(request)
        except RequestError as error:
            return _error(error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 -- of the library's own kinds: out of memory, shapes that do not fit
            _log.exception("research: generating failed")
            return _error(RequestError(f"{type(error).__name__}: {error}"))

    async def _close(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._worker.close()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        times = Times(time.monotonic_ns())
        request_id = request.headers.get(REQUEST_ID) or uuid.uuid4().hex[:16]
        asked = read_request(self._runtime, await request.read(), request_id, chat=chat)
        runtime = self._runtime
        fingerprint = f"transformers-{runtime.version}"
        wire = Wire(asked, runtime.model_name, fingerprint, runtime.speculative_tokens, times)
        reason = "error"
        try:
            async with aclosing(self._texts(asked, times)) as texts:
                response, reason = await (_stream(request, wire, texts) if asked.stream else _whole(wire, texts))
        except (asyncio.CancelledError, ConnectionError):
            reason = "abort"
            raise
        finally:
            self._worker.counters.finished[reason] += 1
        return response

    async def _texts(self, asked: Asked, times: Times) -> AsyncGenerator[Said, None]:
        """Every step with its text; the last one, which alone has a finish reason, with what was held back."""
        detokenizer, produced = Detokenizer(self._runtime.decode), 0
        async with aclosing(self._worker.steps(asked.job, times)) as steps:
            async for step in steps:
                produced += len(step.tokens)
                finish = self._finish(asked, step, produced)
                text = detokenizer.push(step.tokens)
                yield step, text + detokenizer.flush() if finish else text, finish

    def _finish(self, asked: Asked, step: Step, produced: int) -> str | None:
        if not asked.job.ignore_eos and step.tokens[-1] in self._runtime.eos:
            return "stop"
        return "length" if produced >= asked.job.max_tokens else None

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _request: web.Request) -> web.Response:
        about = {"object": "model", "created": self._created, "owned_by": "specbench"}
        row = {"id": self._runtime.model_name, **about, "max_model_len": self._runtime.max_length}
        return web.json_response({"object": "list", "data": [row]})

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": f"transformers-{self._runtime.version} ({RESEARCH_RUNTIME})"})

    async def _facts(self, _request: web.Request) -> web.Response:
        return web.json_response(dict(self._runtime.facts()))

    async def _metrics(self, _request: web.Request) -> web.Response:
        page = self._worker.counters.page()
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _stream(request: web.Request, wire: Wire, texts: AsyncIterator[Said]) -> tuple[web.StreamResponse, str]:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    reason = "error"
    try:
        async for step, text, finish in texts:
            if not response.prepared:
                await response.prepare(request)
                await response.write(wire.opening())
            await response.write(wire.chunk(step, text, finish))
            reason = finish or reason
        await response.write(wire.closing())
    except ConnectionError:
        raise
    except Exception as error:  # the status is sent: only an event can still tell it
        if not response.prepared:
            raise
        _log.exception("research: generating failed in mid-stream")
        failed = RequestError(f"{type(error).__name__}: {error}")
        await response.write(event(error_object(str(failed), failed.kind, failed.status)))
    await response.write_eof()
    return response, reason


async def _whole(wire: Wire, texts: AsyncIterator[Said]) -> tuple[web.StreamResponse, str]:
    parts, reason = [], "error"
    async for step, text, finish in texts:
        wire.steps.append(step)
        parts.append(text)
        reason = finish or reason
    return web.json_response(wire.whole("".join(parts), reason)), reason


def _error(error: RequestError) -> web.Response:
    return web.json_response(error_object(str(error), error.kind, error.status), status=error.status)


async def _answer_to(request: web.Request, response: web.StreamResponse) -> None:
    if REQUEST_ID in request.headers:
        response.headers[REQUEST_ID] = request.headers[REQUEST_ID]
