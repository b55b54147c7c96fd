"""The worker processes of an engine group, and how the main process runs loads on them.

Workers are started once per group. A server process that has imported their modules forks them: importing takes longer
than a short point. The main process uses no measured socket: it sends loads, begins them, receives records, and stops
all workers in the end. If a worker dies, its share of the load is lost and the point is over; this is the client's
fault, never the engine's.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from types import ModuleType, TracebackType
from typing import Any, Self

from specbench_client.documents.record import Record, RecordPhase
from specbench_client.errors import BadInput, ClientError
from specbench_client.load.client_monitor import WorkerDone
from specbench_client.load.shared_state import UNLIMITED, SharedState, create_shared_state
from specbench_client.load.steady_state import LoadTimeline
from specbench_client.load.turns import RequestConfig
from specbench_client.load.worker import (
    BeginLoad,
    PrepareLoad,
    RecordBatch,
    WorkerFailed,
    WorkerReady,
    run_worker,
    unpickle_record,
)
from specbench_client.load.worker_shares import WorkerLoad
from specbench_client.workload.row_parsing import Prompt

JOIN_TIMEOUT_S = 2.0
LOSS_PAUSE_S = 0.2
_SAFE_PATH = "PYTHONSAFEPATH"
BEGIN_DELAY_NS = 20_000_000
"""Time from the decision to begin a load to its begin. A worker that is informed later begins late, which is recorded.
"""
_TEMPORARY_FOLDER_MAX = 75
"""Longest folder for temporary files, in bytes, in which the fork server's socket has a valid path (at most 107)."""


class WorkerLost(ClientError):
    """A worker process died or failed: a bug of the client, or something killed it."""


@dataclass(frozen=True)
class _PipeClosed:
    """Received instead of a message when the pipe is closed."""


@dataclass(frozen=True)
class _WorkerHandle:
    """A worker process and the main process's end of its pipe."""

    process: ForkServerProcess | SpawnProcess
    pipe: Connection[Any, Any]


@dataclass(frozen=True)
class FinishedLoad:
    """A finished load: the final message of each worker, and the timeline of requests in flight."""

    ended: Sequence[WorkerDone]
    timeline: LoadTimeline


RecordsCallback = Callable[[Sequence[Record]], Awaitable[None]]


def _start_method() -> ForkServerContext | SpawnContext:
    """Return the fastest way to start workers: a fork server, or where its socket cannot be made, new interpreters."""
    if len(os.fsencode(tempfile.gettempdir())) > _TEMPORARY_FOLDER_MAX:
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([run_worker.__module__])
    return context


class WorkerPool:
    """`async with WorkerPool(workers) as pool`, then `prepare` and `run` for each load. One load at a time.

    `workers`: the number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._context = _start_method()
        self._shared: SharedState = create_shared_state(self._context, workers)
        self._size = workers
        self._workers: list[_WorkerHandle] = []
        self._messages: asyncio.Queue[tuple[int, object]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stop_workers)
            self._start()
            stack.pop_all()
        loop = asyncio.get_running_loop()
        for number, worker in enumerate(self._workers):
            loop.add_reader(worker.pipe.fileno(), self._receive, number, worker.pipe)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for worker in self._workers:
            loop.remove_reader(worker.pipe.fileno())
        self._stop_workers()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
        return [worker.process.pid or 0 for worker in self._workers]

    async def prepare(
        self, load: WorkerLoad, request_config: RequestConfig, prompts: Sequence[Prompt], phase: RecordPhase | None
    ) -> None:
        """Send each worker its share and wait until all are ready. Raises BadInput, WorkerLost."""
        self._shared.worker_table(load.workers).wipe()
        self._shared.conversation_counter.open(UNLIMITED if load.conversations is None else load.conversations)
        messages = (
            PrepareLoad(request_config, tuple(prompts), share, worker, load.workers, phase)
            for worker, share in enumerate(load.shares)
        )
        await asyncio.gather(*(self._send(worker, message) for worker, message in enumerate(messages)))
        pending = set(range(load.workers))
        async for number, _ in self._received(pending, WorkerReady):
            pending.discard(number)

    async def run(self, load: WorkerLoad, on_records: RecordsCallback) -> FinishedLoad:
        """Begin the prepared load and wait for its end. Raises like `prepare`, and what `on_records` raises."""
        worker_table = self._shared.worker_table(load.workers)
        begin_ns = time.monotonic_ns() + BEGIN_DELAY_NS
        pending, done = set(range(load.workers)), dict[int, WorkerDone]()
        await asyncio.gather(*(self._send(number, BeginLoad(begin_ns)) for number in range(load.workers)))
        async for number, message in self._received(pending, RecordBatch, WorkerDone):
            if isinstance(message, WorkerDone):
                done[number] = message
                pending.discard(number)
            elif isinstance(message, RecordBatch):
                await on_records([unpickle_record(one) for one in message.pickled])
        ended = [done[number] for number in range(load.workers)]
        steady_bounds, begins_ns = load.steady_bounds(worker_table, begin_ns), load.begins_ns(worker_table, begin_ns)
        return FinishedLoad(ended, LoadTimeline([one.log for one in ended], begin_ns, steady_bounds, begins_ns))

    def no_more_conversations(self) -> None:
        """Let a closed loop begin no more conversations, so that it ends with the open ones."""
        self._shared.conversation_counter.close()

    def _start(self) -> None:
        environment = dict(os.environ)
        with _isolated_start():
            for number in range(self._size):
                ours, theirs = self._context.Pipe()
                arguments = (theirs, self._shared, environment)
                process = self._context.Process(target=run_worker, args=arguments, name=f"worker-{number}", daemon=True)
                process.start()
                theirs.close()
                self._workers.append(_WorkerHandle(process, ours))

    def _stop_workers(self) -> None:
        """Close all pipes and wait for all workers; kill those that do not exit within JOIN_TIMEOUT_S."""
        for worker in self._workers:
            worker.pipe.close()
        deadline_s = time.monotonic() + JOIN_TIMEOUT_S
        for worker in self._workers:
            worker.process.join(max(deadline_s - time.monotonic(), 0))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._workers.clear()

    async def _send(self, number: int, message: object) -> None:
        """Send a message in a thread: a large one blocks until the worker reads the pipe."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            await asyncio.to_thread(self._workers[number].pipe.send_bytes, data)
        except OSError:
            await self._raise_lost(number)

    def _receive(self, number: int, pipe: Connection[Any, Any]) -> None:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            message = _PipeClosed()
        self._messages.put_nowait((number, message))

    async def _received(self, pending: set[int], *kinds: type[object]) -> AsyncIterator[tuple[int, object]]:
        """Yield messages of these kinds with their worker while `pending` is not empty. Raises BadInput, WorkerLost."""
        while pending:
            number, message = await self._messages.get()
            if isinstance(message, _PipeClosed):
                await self._raise_lost(number)
            if isinstance(message, WorkerFailed):
                raise _error_of(message)
            if not isinstance(message, kinds):
                raise WorkerLost(f"worker {number} sent an unexpected {type(message).__name__}")
            yield number, message

    async def _raise_lost(self, number: int) -> None:
        """Raise WorkerLost, after a pause.

        Whatever killed the worker may also have sent this process a signal that is still on its way; handling that
        signal gives the better message.
        """
        await asyncio.sleep(LOSS_PAUSE_S)
        process = self._workers[number].process
        raise WorkerLost(
            f"worker {number} (process {process.pid}) ended during the measurement with "
            f"{_exit_description(process.exitcode)}: its share of the load is lost; run the point again"
        )


def _error_of(failed: WorkerFailed) -> ClientError:
    if failed.kind in ("BadInput", "OutOfSockets"):
        return BadInput(failed.message, failed.reason)
    return WorkerLost(f"a worker failed: {failed.kind}: {failed.message}\n{failed.trace}")


def _exit_description(exitcode: int | None) -> str:
    if exitcode is None:
        return "a closed pipe"
    return f"signal {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"


@contextmanager
def _isolated_start() -> Iterator[None]:
    """Start processes that ignore SIGINT (the main process handles it) and import nothing from this program's folders.

    A process imports the main module, found in `sys.modules`: here the whole command line with pandas, of which workers
    use nothing. The fork server would import a `numpy.py` in the working directory instead of the installed one.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    main, safe_path = sys.modules["__main__"], os.environ.get(_SAFE_PATH)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        del os.environ[_SAFE_PATH]
        if safe_path is not None:
            os.environ[_SAFE_PATH] = safe_path
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
