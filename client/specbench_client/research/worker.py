"""One thread that generates, for one request at a time: the others wait in the order in which they came.

That is what a research runtime does: it batches nothing, and at a concurrency above 1 its latency is mostly waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from specbench_client.research.metrics import Counters
from specbench_client.research.runtime import Job, Runtime, Step
from specbench_client.research.wire import Times


class Worker:
    """Runs jobs; its counters are touched on the event loop alone."""

    def __init__(self, runtime: Runtime) -> None:
        self.counters = Counters(runtime.model_name, runtime.speculative_tokens)
        self._runtime = runtime
        self._thread = ThreadPoolExecutor(1, "generate")
        self._closing = threading.Event()

    async def steps(self, job: Job, times: Times) -> AsyncGenerator[Step, None]:
        """Every step of the job, counted as it comes. Whoever leaves early ends the job with its current step."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Step | None]()
        left = threading.Event()

        def work() -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(self._begin, job, times, left)
                self._runtime.generate(
                    job,
                    lambda step: post(step, time.monotonic_ns()),
                    lambda: left.is_set() or self._closing.is_set(),
                )

        def post(step: Step, now_ns: int) -> None:
            loop.call_soon_threadsafe(self._count, step, now_ns, times)
            loop.call_soon_threadsafe(arrived.put_nowait, step)

        self.counters.waiting += 1
        running = loop.run_in_executor(self._thread, work)
        running.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while (step := await arrived.get()) is not None:
                yield step
            await running  # its exception, where it failed
        finally:
            left.set()
            self._end(times)

    def close(self) -> None:
        """End what runs with its current step, and take nothing more."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, job: Job, times: Times, left: threading.Event) -> None:
        if left.is_set():  # between the thread's look and this one
            return
        times.begun_ns = time.monotonic_ns()
        self.counters.waiting -= 1
        self.counters.running += 1
        self.counters.prompt_tokens += len(job.prompt)

    def _count(self, step: Step, now_ns: int, times: Times) -> None:
        times.first_ns = times.first_ns or now_ns
        times.last_ns = now_ns
        self.counters.count(step)

    def _end(self, times: Times) -> None:
        if times.begun_ns:
            self.counters.running -= 1
        else:
            self.counters.waiting -= 1
