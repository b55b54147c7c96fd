"""The HTTP server: vLLM's routes over one worker thread. It starts after loading the model, so /health is 200 at once.

One request is generated at a time; others wait in order of arrival. Research runtimes do not batch, so at a concurrency
above 1 their latency is mostly waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from http import HTTPStatus

from aiohttp import web

from specbench_api.spec.engine import RESEARCH_RUNTIME
from specbench_client.openai_server_formats import (
    MAX_BODY_BYTES,
    REQUEST_ID_HEADER,
    PrometheusExposition,
    RejectedRequest,
    RequestTiming,
    ServedCounters,
    sse_event,
    vllm_counters,
    vllm_gauges,
)
from specbench_client.research.messages import Detokenizer, ParsedRequest, ResearchResponse, read_request
from specbench_client.research.runtime import GenerationRequest, GenerationRuntime, GenerationStep

StepText = tuple[GenerationStep, str, str | None]
"""A step, its text, and the finish reason if it is the last one."""
_log = logging.getLogger(__name__)


class ResearchServer:
    """The HTTP handlers."""

    def __init__(self, runtime: GenerationRuntime) -> None:
        self._runtime = runtime
        self._worker = GenerationWorker(runtime)
        self._created = int(time.time())

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.on_response_prepare.append(_return_request_id)
        app.cleanup_ctx.append(self._close)
        app.router.add_post("/v1/chat/completions", partial(self._answer, chat=True))
        app.router.add_post("/v1/completions", partial(self._answer, chat=False))
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
        """Convert errors to vLLM's error objects."""
        try:
            return await handler(request)
        except RejectedRequest as error:
            return _error(error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 -- the library raises many types: out of memory, mismatched shapes
            _log.exception("research: generation failed")
            return _error(_generation_failure(error))

    async def _close(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._worker.close()

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        timing = RequestTiming(time.monotonic_ns())
        request_id = request.headers.get(REQUEST_ID_HEADER) or uuid.uuid4().hex[:16]
        parsed = read_request(self._runtime, await request.read(), request_id, chat=chat)
        wire = ResearchResponse(parsed, self._runtime.speculative_tokens, timing)
        reason = "error"
        try:
            async with aclosing(self._texts(parsed, timing)) as texts:
                response, reason = await (_stream(request, wire, texts) if parsed.stream else _whole(wire, texts))
        except (asyncio.CancelledError, ConnectionError):
            reason = "abort"
            raise
        finally:
            self._worker.counters.finished[reason] += 1
        return response

    async def _texts(self, parsed: ParsedRequest, timing: RequestTiming) -> AsyncGenerator[StepText, None]:
        """Yield every step with its text. The last one has a finish reason and any text that was held back."""
        detokenizer, produced = Detokenizer(self._runtime.decode), 0
        async with aclosing(self._worker.steps(parsed.job, timing)) as steps:
            async for step in steps:
                produced += len(step.tokens)
                finish = self._finish(parsed, step, produced)
                text = detokenizer.push(step.tokens)
                yield step, text + detokenizer.flush() if finish else text, finish

    def _finish(self, parsed: ParsedRequest, step: GenerationStep, produced: int) -> str | None:
        if not parsed.job.ignore_eos and step.tokens[-1] in self._runtime.eos:
            return "stop"
        return "length" if produced >= parsed.job.max_tokens else None

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
        page = PrometheusExposition("vllm:", {"engine": "0", "model_name": self._runtime.model_name})
        worker, counters = self._worker, self._worker.counters
        started = {"process_start_time_seconds": ("Start of the process, in seconds since 1970.", counters.created_s)}
        lines = [
            *PrometheusExposition("", {}).gauges(started),
            *page.gauges(vllm_gauges(worker.running, worker.waiting)),
            *page.counters(vllm_counters(counters)),
        ]
        text = "".join(f"{line}\n" for line in lines)
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _stream(
    request: web.Request, wire: ResearchResponse, texts: AsyncIterator[StepText]
) -> tuple[web.StreamResponse, str]:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    reason = "error"
    try:
        async for step, text, finish in texts:
            if not response.prepared:
                await response.prepare(request)
                await response.write(wire.parsed.vllm.opening())
            await response.write(wire.chunk(step, text, finish))
            reason = finish or reason
        await response.write(wire.closing())
    except ConnectionError:
        raise
    except Exception as error:  # the status is already sent, so the error is sent as an event
        if not response.prepared:
            raise
        _log.exception("research: generation failed in mid-stream")
        await response.write(sse_event(_generation_failure(error).vllm_body))
    await response.write_eof()
    return response, reason


async def _whole(wire: ResearchResponse, texts: AsyncIterator[StepText]) -> tuple[web.StreamResponse, str]:
    parts, reason = [], "error"
    async for step, text, finish in texts:
        wire.add(step)
        parts.append(text)
        reason = finish or reason
    return web.json_response(wire.whole("".join(parts), reason)), reason


def _generation_failure(error: Exception) -> RejectedRequest:
    return RejectedRequest(f"{type(error).__name__}: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)


def _error(error: RejectedRequest) -> web.Response:
    return web.json_response(error.vllm_body, status=error.status)


async def _return_request_id(request: web.Request, response: web.StreamResponse) -> None:
    if REQUEST_ID_HEADER in request.headers:
        response.headers[REQUEST_ID_HEADER] = request.headers[REQUEST_ID_HEADER]


class GenerationWorker:
    """Generates in one thread, one request at a time. The counters are only accessed on the event loop."""

    def __init__(self, runtime: GenerationRuntime) -> None:
        depth = runtime.speculative_tokens
        self.counters = ServedCounters(time.time(), [0] * depth if depth else None)
        self.running = 0
        self.waiting = 0
        self._runtime = runtime
        self._thread = ThreadPoolExecutor(1, "generate")
        self._closing = threading.Event()

    async def steps(self, job: GenerationRequest, timing: RequestTiming) -> AsyncGenerator[GenerationStep, None]:
        """Yield and count every step of a request. Closing the iterator ends generation after the current step."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[GenerationStep | None]()
        left = threading.Event()

        def work() -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(self._begin, job, timing, left)
                self._runtime.generate(
                    job,
                    lambda step: post(step, time.monotonic_ns()),
                    lambda: left.is_set() or self._closing.is_set(),
                )

        def post(step: GenerationStep, now_ns: int) -> None:
            loop.call_soon_threadsafe(self._count, step, now_ns, timing)
            loop.call_soon_threadsafe(arrived.put_nowait, step)

        self.waiting += 1
        running = loop.run_in_executor(self._thread, work)
        running.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while (step := await arrived.get()) is not None:
                yield step
            await running  # raises its exception if it failed
        finally:
            left.set()
            self._end(timing)

    def close(self) -> None:
        """End the running request after its current step, and accept no more requests."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, job: GenerationRequest, timing: RequestTiming, left: threading.Event) -> None:
        if left.is_set():  # the caller left after the thread's check
            return
        timing.scheduled_ns = time.monotonic_ns()
        self.waiting -= 1
        self.running += 1
        self.counters.admitted(len(job.prompt), 0)

    def _count(self, step: GenerationStep, now_ns: int, timing: RequestTiming) -> None:
        timing.first_ns = timing.first_ns or now_ns
        timing.last_ns = now_ns
        self.counters.stepped(len(step.tokens), step.drafted, step.accepted)

    def _end(self, timing: RequestTiming) -> None:
        if timing.scheduled_ns:
            self.running -= 1
        else:
            self.waiting -= 1
