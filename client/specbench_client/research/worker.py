"""Generates in one thread, one request at a time; other requests wait in order of arrival.

Research runtimes do not batch, so at a concurrency above 1 their latency is mostly waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from specbench_client.research.metrics import ResearchCounters
from specbench_client.research.responses import ResponseTimes
from specbench_client.research.runtime import GenerationRequest, GenerationRuntime, GenerationStep


class GenerationWorker:
    """Runs generation requests. The counters are only accessed on the event loop."""

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
