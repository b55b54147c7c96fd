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
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web

from specbench_api.spec.engine import RESEARCH_RUNTIME
from specbench_client.openai_server_formats import MetricSamples, PrometheusExposition, error_object, sse_event
from specbench_client.research.messages import Detokenizer, ParsedRequest, ResearchResponse, ResponseTimes, read_request
from specbench_client.research.runtime import GenerationRequest, GenerationRuntime, GenerationStep, ResearchRequestError

REQUEST_ID = "X-Request-Id"
MAX_BODY_BYTES = 64 * 1024 * 1024
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
        except ResearchRequestError as error:
            return _error(error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 -- the library raises many types: out of memory, mismatched shapes
            _log.exception("research: generation failed")
            return _error(ResearchRequestError(f"{type(error).__name__}: {error}"))

    async def _close(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self._worker.close()

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        times = ResponseTimes(time.monotonic_ns())
        request_id = request.headers.get(REQUEST_ID) or uuid.uuid4().hex[:16]
        parsed = read_request(self._runtime, await request.read(), request_id, chat=chat)
        runtime = self._runtime
        fingerprint = f"transformers-{runtime.version}"
        wire = ResearchResponse(parsed, runtime.model_name, fingerprint, runtime.speculative_tokens, times)
        reason = "error"
        try:
            async with aclosing(self._texts(parsed, times)) as texts:
                response, reason = await (_stream(request, wire, texts) if parsed.stream else _whole(wire, texts))
        except (asyncio.CancelledError, ConnectionError):
            reason = "abort"
            raise
        finally:
            self._worker.counters.finished[reason] += 1
        return response

    async def _texts(self, parsed: ParsedRequest, times: ResponseTimes) -> AsyncGenerator[StepText, None]:
        """Yield every step with its text. The last one has a finish reason and any text that was held back."""
        detokenizer, produced = Detokenizer(self._runtime.decode), 0
        async with aclosing(self._worker.steps(parsed.job, times)) as steps:
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
        page = self._worker.counters.page()
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _stream(
    request: web.Request, wire: ResearchResponse, texts: AsyncIterator[StepText]
) -> tuple[web.StreamResponse, str]:
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
    except Exception as error:  # the status is already sent, so the error is sent as an event
        if not response.prepared:
            raise
        _log.exception("research: generation failed in mid-stream")
        failed = ResearchRequestError(f"{type(error).__name__}: {error}")
        await response.write(sse_event(error_object(str(failed), failed.kind, failed.status)))
    await response.write_eof()
    return response, reason


async def _whole(wire: ResearchResponse, texts: AsyncIterator[StepText]) -> tuple[web.StreamResponse, str]:
    parts, reason = [], "error"
    async for step, text, finish in texts:
        wire.steps.append(step)
        parts.append(text)
        reason = finish or reason
    return web.json_response(wire.whole("".join(parts), reason)), reason


def _error(error: ResearchRequestError) -> web.Response:
    return web.json_response(error_object(str(error), error.kind, error.status), status=error.status)


async def _return_request_id(request: web.Request, response: web.StreamResponse) -> None:
    if REQUEST_ID in request.headers:
        response.headers[REQUEST_ID] = request.headers[REQUEST_ID]


class GenerationWorker:
    """Generates in one thread, one request at a time. The counters are only accessed on the event loop."""

    def __init__(self, runtime: GenerationRuntime) -> None:
        self.counters = ResearchCounters(runtime.model_name, runtime.speculative_tokens)
        self._runtime = runtime
        self._thread = ThreadPoolExecutor(1, "generate")
        self._closing = threading.Event()

    async def steps(self, job: GenerationRequest, times: ResponseTimes) -> AsyncGenerator[GenerationStep, None]:
        """Yield and count every step of a request. Closing the iterator ends generation after the current step."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[GenerationStep | None]()
        left = threading.Event()

        def work() -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(self._begin, job, times, left)
                self._runtime.generate(
                    job,
                    lambda step: post(step, time.monotonic_ns()),
                    lambda: left.is_set() or self._closing.is_set(),
                )

        def post(step: GenerationStep, now_ns: int) -> None:
            loop.call_soon_threadsafe(self._count, step, now_ns, times)
            loop.call_soon_threadsafe(arrived.put_nowait, step)

        self.counters.waiting += 1
        running = loop.run_in_executor(self._thread, work)
        running.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while (step := await arrived.get()) is not None:
                yield step
            await running  # raises its exception if it failed
        finally:
            left.set()
            self._end(times)

    def close(self) -> None:
        """End the running request after its current step, and accept no more requests."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, job: GenerationRequest, times: ResponseTimes, left: threading.Event) -> None:
        if left.is_set():  # the caller left after the thread's check
            return
        times.begun_ns = time.monotonic_ns()
        self.counters.waiting -= 1
        self.counters.running += 1
        self.counters.prompt_tokens += len(job.prompt)

    def _count(self, step: GenerationStep, now_ns: int, times: ResponseTimes) -> None:
        times.first_ns = times.first_ns or now_ns
        times.last_ns = now_ns
        self.counters.count(step)

    def _end(self, times: ResponseTimes) -> None:
        if times.begun_ns:
            self.counters.running -= 1
        else:
            self.counters.waiting -= 1


FINISH_REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class ResearchCounters:
    """The server's counters, with vLLM's names, accessed only on the event loop.

    `depth`: maximum draft tokens per step; 0 without a drafter, whose counters are then left out.
    """

    model: str
    depth: int
    started_s: float = field(default_factory=time.time)
    prompt_tokens: int = 0
    output_tokens: int = 0
    draft_steps: int = 0
    drafted: int = 0
    accepted_at: list[int] = field(init=False)
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    running: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        self.accepted_at = [0] * self.depth

    def count(self, step: GenerationStep) -> None:
        """Count a step."""
        self.output_tokens += len(step.tokens)
        if step.drafted:
            self.draft_steps += 1
            self.drafted += step.drafted
            for position in range(step.accepted):
                self.accepted_at[position] += 1

    def page(self) -> str:
        """Return the page in Prometheus' text format."""
        page = PrometheusExposition("vllm:", {"engine": "0", "model_name": self.model})
        started = {"process_start_time_seconds": ("Start of the process, in seconds since 1970.", self.started_s)}
        gauges: dict[str, tuple[str, float]] = {
            "num_requests_running": ("Number of requests that are generated.", self.running),
            "num_requests_waiting": ("Number of requests waiting to be generated.", self.waiting),
        }
        counters: dict[str, tuple[str, MetricSamples]] = {
            "request_success": (
                "Count of processed requests.",
                [({"finished_reason": reason}, count) for reason, count in self.finished.items()],
            ),
            "prompt_tokens": ("Number of prompt tokens.", [({}, self.prompt_tokens)]),
            "prompt_tokens_cached": ("Number of cached prompt tokens: there is no prefix cache.", [({}, 0)]),
            "generation_tokens": ("Number of generated tokens.", [({}, self.output_tokens)]),
            **(self._speculation() if self.depth else {}),
        }
        lines = [*PrometheusExposition("", {}).gauges(started), *page.gauges(gauges), *page.counters(counters)]
        return "".join(f"{line}\n" for line in lines)

    def _speculation(self) -> dict[str, tuple[str, MetricSamples]]:
        accepted: MetricSamples = [({"position": str(position)}, n) for position, n in enumerate(self.accepted_at)]
        return {
            "spec_decode_num_drafts": ("Number of steps with drafts.", [({}, self.draft_steps)]),
            "spec_decode_num_draft_tokens": ("Number of draft tokens.", [({}, self.drafted)]),
            "spec_decode_num_accepted_tokens": ("Number of accepted tokens.", [({}, sum(self.accepted_at))]),
            "spec_decode_num_accepted_tokens_per_pos": ("Accepted tokens per draft position.", accepted),
        }
