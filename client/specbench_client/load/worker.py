"""A worker: one process with one event loop that runs its share of a load.

For each load it prepares its first requests, reports that it is ready, begins at the time it receives, sends its
records, and reports that it is done. It exits at once when its pipe is closed, also if the main process was killed: it
holds nothing but sockets. It must not import pandas, pyarrow or boto3, which would make the first one slow to start.

Its messages are frozen dataclasses over the pipe:

    main → worker    PrepareLoad; BeginLoad when all workers are ready
    worker → main    WorkerReady; RecordBatch repeatedly; WorkerDone; or WorkerFailed at any time

Records are sent in batches by a thread: writing to a full pipe blocks, and the main process may be busy with a Parquet
part. The thread waits without holding the interpreter's lock, and the event loop only enqueues. A failed request is
sent at once, because the main process counts failures to decide whether to give up.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from operator import attrgetter
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self

from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.errors import ClientError
from specbench_client.known_secrets import keep_headers_secret
from specbench_client.load.client_monitor import EventLoopMonitor, WorkerDone
from specbench_client.load.conversation_runner import (
    MAX_UNREAD,
    ConversationRunner,
    ParsingQueue,
    thinking_users,
)
from specbench_client.load.judge_parent import AnswerJudge
from specbench_client.load.loops import ClosedLoop, FillerSender, OpenLoop, PreciseTimer, sleep_until
from specbench_client.load.machine_limits import held_bytes_of_worker
from specbench_client.load.request_buffer import (
    REQUESTS_AHEAD,
    RequestBuffer,
    prepare_conversations,
    shared_requests_ahead,
)
from specbench_client.load.shared_state import SharedState
from specbench_client.load.steady_state import InFlightRecorder
from specbench_client.load.turns import RequestConfig, TurnClient
from specbench_client.load.worker_shares import ClosedLoopShare, OpenLoopShare
from specbench_client.transport.exchange import ConnectionsAhead
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.limits import raise_socket_limit
from specbench_client.workload.row_parsing import Prompt


@dataclass(frozen=True, slots=True)
class PrepareLoad:
    """One load to prepare. `phase`: the phase of all records (warm-up); None: ramp, steady or drain, as measured."""

    request_config: RequestConfig
    prompts: tuple[Prompt, ...]
    share: ClosedLoopShare | OpenLoopShare
    worker: int
    """Number of the worker."""
    workers: int
    """Number of workers of this load, which are the first ones of the pool."""
    phase: RecordPhase | None = None


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """The load begins at this time (monotonic, absolute)."""

    begin_ns: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The load is prepared, with its first requests."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in the order of parsing, each pickled on its own: pickling a whole batch would block the event loop."""

    pickled: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker raised an error. `kind`: the class of the error; `reason`: set for a ClientError."""

    kind: str
    reason: str | None
    message: str
    trace: str


BATCH_RECORDS = 64
FLUSH_INTERVAL_S = 0.25
_record_values = attrgetter(*(field.name for field in fields(Record)))


def pickle_record(record: Record) -> bytes:
    """Pickle a record's values only: pickling a dataclass looks up its fields each time."""
    return pickle.dumps(_record_values(record), pickle.HIGHEST_PROTOCOL)


def unpickle_record(data: bytes) -> Record:
    """Return the record of these bytes, which must come from a worker process."""
    return Record(*pickle.loads(data))  # noqa: S301


class WritablePipe(Protocol):
    """The writing end of a multiprocessing connection."""

    def send_bytes(self, buf: bytes, /) -> None: ...


class PipeSender:
    """Sends messages in order from a background thread. Messages that cannot be sent any more are dropped."""

    def __init__(self, pipe: WritablePipe) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._send_on, name="sender", daemon=True).start()

    def send(self, message: object) -> None:
        """Enqueue a message."""
        self._messages.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _send_on(self) -> None:
        with suppress(OSError):  # The main process is gone, and this worker exits too.
            while True:
                self._pipe.send_bytes(self._messages.get())


class RecordSender:
    """`async with RecordSender(send) as sender`, then `add`. Remaining records are sent at the end."""

    def __init__(self, send: Callable[[RecordBatch], None]) -> None:
        self._send = send
        self._batch: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._flushing = asyncio.create_task(self._flush_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        self.flush()

    def add(self, record: Record) -> None:
        """Add a record; sends the batch if it is full or the record failed."""
        self._batch.append(pickle_record(record))
        if len(self._batch) >= BATCH_RECORDS or record.error_class is not None:
            self.flush()

    def flush(self) -> None:
        """Send the current batch, if there is one."""
        if self._batch:
            self._send(RecordBatch(tuple(self._batch)))
            self._batch.clear()

    async def _flush_on(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            self.flush()


GC_THRESHOLD = 200_000
"""Garbage collection threshold. At the default of 700, a third of the time of parsing answers was spent in collections.
A collection that has something to free takes 0.1 s, in which no socket is read. Reference counts free almost
everything; only failed requests leave cycles."""


def run_worker(pipe: Connection[Any, Any], shared: SharedState, environment: Mapping[str, str]) -> None:
    """Run a worker until its pipe is closed. This is the main function of the process.

    `environment`: that of the main process, which may have changed since the fork server was started.
    """
    os.environ.clear()
    os.environ.update(environment)
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    raise_socket_limit()
    asyncio.run(_serve(pipe, shared))


async def _serve(pipe: Connection[Any, Any], shared: SharedState) -> None:
    inbox = asyncio.Queue[Any]()

    def receive() -> None:
        try:
            inbox.put_nowait(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)

    asyncio.get_running_loop().add_reader(pipe.fileno(), receive)
    await _Worker(shared, inbox, PipeSender(pipe)).serve()


SPARE_CONNECTIONS = 2
"""Spare connections of a closed loop: one that replaces a lost one, and one more, see `transport.http_transport`."""
SPARE_CONNECTIONS_OPEN_LOOP = 8
"""Spare connections of an open loop or of recorded sessions, for requests that are sent together."""


def _connections_ahead(load: PrepareLoad) -> ConnectionsAhead:
    """Return the connections to open before the load begins: one for each stream, and the spare ones."""
    first = 0 if isinstance(load.share, OpenLoopShare) else len(load.share.streams)
    together = isinstance(load.share, OpenLoopShare) or any(prompt.starts for prompt in load.prompts)
    spare = SPARE_CONNECTIONS_OPEN_LOOP if together else SPARE_CONNECTIONS
    return ConnectionsAhead(load.request_config.endpoint, first, spare)


@dataclass(frozen=True)
class _Worker:
    shared: SharedState
    inbox: asyncio.Queue[Any]
    sender: PipeSender
    keeping: dict[str, bool] = field(default_factory=dict)
    """See `KernelTransport`: what one load has learned of a server, the next one knows."""

    async def serve(self) -> None:
        """Run one load after the other. A failure is sent to the main process, which decides what happens next."""
        while True:
            load = await self.inbox.get()
            try:
                await self._run_load(load)
            except Exception as error:  # noqa: BLE001 -- sent to the main process, which raises it there
                self.sender.send(_failure_message(error))

    async def _run_load(self, load: PrepareLoad) -> None:
        async with (
            KernelTransport(
                held_bytes_max=held_bytes_of_worker(load.workers),
                ahead=_connections_ahead(load),
                keeping=self.keeping,
            ) as transport,
            PreciseTimer() as timer,
            RecordSender(self.sender.send) as record_sender,
            _answer_judge(load, record_sender) as judge,
            ParsingQueue(_unread_limit(load)) as parsing_queue,
        ):
            keep_headers_secret(load.request_config.headers)
            turn_client = TurnClient(transport, dialect_of(load.request_config.engine), load.request_config)
            recorder = InFlightRecorder(load.share.phases(self.shared.worker_table(load.workers), load.worker))
            runner = ConversationRunner(
                turn_client,
                parsing_queue,
                recorder,
                record_sender.add,
                thinking_users(load.request_config, sleep_until),
                load.phase,
                template=load.request_config.template,
                judge_later=judge.submit if judge else None,
            )
            loop = self._loop(load, runner, timer)
            gc.unfreeze()
            gc.collect()
            gc.freeze()  # Prompts and buffered requests live to the end: exclude them from collections while measuring.
            self.sender.send(WorkerReady())
            begin: BeginLoad = await self.inbox.get()
            await timer.sleep_until(begin.begin_ns)
            async with EventLoopMonitor() as monitor:
                await loop.run(begin.begin_ns)
                await parsing_queue.drained()
            if judge is not None:
                await judge.drained()
        self.sender.send(WorkerDone(recorder.log, monitor.lag_p99_ms, monitor.lag_max_ms, monitor.cpu_share))

    def _loop(self, load: PrepareLoad, runner: ConversationRunner, timer: PreciseTimer) -> ClosedLoop | OpenLoop:
        """Return the loop, with its first conversations prepared."""
        share = load.share
        if isinstance(share, OpenLoopShare):
            buffer = RequestBuffer(
                prepare_conversations(runner.turn_client, load.prompts, share.conversations), REQUESTS_AHEAD
            )
            buffer.fill(REQUESTS_AHEAD)
            slots = nullcontext() if share.slots is None else asyncio.Semaphore(share.slots)
            fillers = None
            if share.fillers is not None:
                table = self.shared.worker_table(load.workers)
                fillers = FillerSender(share.fillers, runner, table, timer, share.last_ns, slots)
            return OpenLoop(share, runner, buffer, timer, fillers, slots)
        ahead = REQUESTS_AHEAD if load.workers == 1 else shared_requests_ahead(len(share.streams))
        counter = self.shared.conversation_counter
        buffer = RequestBuffer(
            prepare_conversations(runner.turn_client, load.prompts, counter), ahead, counter.is_closed
        )
        buffer.fill(len(share.streams))
        return ClosedLoop(share, runner, buffer)


def _answer_judge(load: PrepareLoad, record_sender: RecordSender) -> AbstractAsyncContextManager[AnswerJudge | None]:
    """Return the judge of the answers, or None if they are not judged against schemas."""
    answers = load.request_config.answers
    return AnswerJudge(answers, record_sender.add) if answers and answers.has_schemas else nullcontext()


def _unread_limit(load: PrepareLoad) -> int:
    """Return the limit of unread answers: at least one per stream.

    Streams whose answers end in the same engine step must not wait for each other's parsing before they send again.
    """
    return max(MAX_UNREAD, len(load.share.streams)) if isinstance(load.share, ClosedLoopShare) else MAX_UNREAD


def _failure_message(error: Exception) -> WorkerFailed:
    reason = error.reason if isinstance(error, ClientError) else None
    return WorkerFailed(type(error).__name__, reason, str(error), "".join(traceback.format_exception(error)))
