"""The crew: the worker processes of an engine group, and the main process's way of leading them.

They are started once a group, since starting costs more than a short point. The main process touches no measured
socket: it hands out orders, says when to begin, takes what comes, and ends them all, whatever happens. A worker that
dies takes its share of the load with it, so the point is over; that is a fault of ours, never the engine's.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType, TracebackType
from typing import Any, Self

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.errors import BadInput, ClientError
from specbench_client.load.board import ENDLESS, Shared, shared_memory
from specbench_client.load.conversations import Prompt
from specbench_client.load.flight import Flown
from specbench_client.load.orders import Ended, Failed, Go, Order, Ready, Records
from specbench_client.load.outbox import unpacked
from specbench_client.load.shares import Load
from specbench_client.load.turns import Manner
from specbench_client.load.worker import work

HEAD_START_NS = 20_000_000
"""From saying when to begin to that moment: a worker that is told later begins late, and says so."""
CLOSING_S = 2.0
LOSS_PAUSE_S = 0.2


class WorkerLost(ClientError):
    """A worker process died or gave up: a bug of ours, or somebody killed it."""


@dataclass(frozen=True)
class _Lost:
    """In place of a message: the pipe is closed."""


@dataclass(frozen=True)
class _Hand:
    """One worker as the main process holds it."""

    process: SpawnProcess
    pipe: Connection[Any, Any]


@dataclass(frozen=True)
class Worked:
    """A load that is over: what each worker said at its end, and what was in flight."""

    ended: Sequence[Ended]
    flown: Flown


OnRecords = Callable[[Sequence[Record]], Awaitable[None]]


class Crew:
    """`async with Crew(workers) as crew`, then for each load `ready` and `work`. One load at a time."""

    def __init__(self, workers: int) -> None:
        context = get_context("spawn")
        self._context = context
        self._shared: Shared = shared_memory(context, workers)
        self._size = workers
        self._hands: list[_Hand] = []
        self._said: asyncio.Queue[tuple[int, object]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._let_go)
            self._start()
            stack.pop_all()
        loop = asyncio.get_running_loop()
        for number, hand in enumerate(self._hands):
            loop.add_reader(hand.pipe.fileno(), self._hear, number, hand.pipe)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for hand in self._hands:
            loop.remove_reader(hand.pipe.fileno())
        self._let_go()

    @property
    def pids(self) -> list[int]:
        """Of the workers, in their order."""
        return [hand.process.pid or 0 for hand in self._hands]

    async def ready(self, load: Load, manner: Manner, prompts: Sequence[Prompt], phase: RecordPhase | None) -> None:
        """Give each worker its order, and wait until all could begin. Raises BadInput, WorkerLost."""
        self._shared.board(load.workers).wipe()
        self._shared.turnstile.open(ENDLESS if load.conversations is None else load.conversations)
        orders = [Order(manner, tuple(prompts), share, load.workers, phase) for share in load.shares]
        await asyncio.gather(*(self._tell(number, order) for number, order in enumerate(orders)))
        waited = set(range(load.workers))
        async for number, _ in self._heard(waited, Ready):
            waited.discard(number)

    async def work(self, load: Load, on_records: OnRecords) -> Worked:
        """Have those who are ready begin, and see them to their end. Raises as `ready` does, and `on_records`."""
        begin_ns = time.monotonic_ns() + HEAD_START_NS
        await asyncio.gather(*(self._tell(number, Go(begin_ns)) for number in range(load.workers)))
        waited, ended = set(range(load.workers)), dict[int, Ended]()
        async for number, message in self._heard(waited, Records, Ended):
            if isinstance(message, Ended):
                ended[number] = message
                waited.discard(number)
            elif isinstance(message, Records):
                await on_records([unpacked(one) for one in message.pickled])
        told = [ended[number] for number in range(load.workers)]
        board = self._shared.board(load.workers)
        borders, begins_ns = load.borders(board, begin_ns), load.begins_ns(board, begin_ns)
        return Worked(told, Flown([one.log for one in told], begin_ns, borders, begins_ns))

    def no_more_conversations(self) -> None:
        """A closed loop begins no more conversations, and ends with those that are open."""
        self._shared.turnstile.close()

    def _start(self) -> None:
        with _workers_alone():
            for number in range(self._size):
                ours, theirs = self._context.Pipe()
                arguments = (number, theirs, self._shared)
                process = self._context.Process(target=work, args=arguments, name=f"worker-{number}", daemon=True)
                process.start()
                theirs.close()
                self._hands.append(_Hand(process, ours))

    def _let_go(self) -> None:
        """Close all pipes, and see every worker end."""
        for hand in self._hands:
            hand.pipe.close()
        give_up_s = time.monotonic() + CLOSING_S
        for hand in self._hands:
            hand.process.join(max(give_up_s - time.monotonic(), 0))
            if hand.process.is_alive():
                hand.process.kill()
                hand.process.join()
            hand.process.close()
        self._hands.clear()

    async def _tell(self, number: int, message: object) -> None:
        """A large order fills the pipe until the worker reads it, so a thread waits for that."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            await asyncio.to_thread(self._hands[number].pipe.send_bytes, data)
        except OSError:
            await self._raise_lost(number)

    def _hear(self, number: int, pipe: Connection[Any, Any]) -> None:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            message = _Lost()
        self._said.put_nowait((number, message))

    async def _heard(self, waited: set[int], *kinds: type[object]) -> AsyncIterator[tuple[int, object]]:
        """What the workers say, as long as any is waited for. Raises BadInput, WorkerLost."""
        while waited:
            number, message = await self._said.get()
            if isinstance(message, _Lost):
                await self._raise_lost(number)
            if isinstance(message, Failed):
                raise _error_of(message)
            if not isinstance(message, kinds):
                raise WorkerLost(f"worker {number} said {type(message).__name__} where nobody asked for it")
            yield number, message

    async def _raise_lost(self, number: int) -> None:
        """Whoever killed it may have killed us too, with a signal that is on its way and says more."""
        await asyncio.sleep(LOSS_PAUSE_S)
        process = self._hands[number].process
        raise WorkerLost(
            f"worker {number} (process {process.pid}) ended in mid-measurement with {_ending(process.exitcode)}; "
            "its part of the load is lost, so the point is"
        )


def _error_of(failed: Failed) -> ClientError:
    if failed.kind in ("BadInput", "OutOfSockets"):
        return BadInput(failed.message, failed.reason)
    return WorkerLost(f"a worker gave up: {failed.kind}: {failed.message}\n{failed.trace}")


def _ending(exitcode: int | None) -> str:
    if exitcode is None:
        return "its pipe closed"
    return f"signal {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"


@contextmanager
def _workers_alone() -> Iterator[None]:
    """Processes started inside hear no SIGINT (the main process decides), and import no main module.

    `spawn` would import it into each of them to find what was defined there: the whole command line, with pandas, and
    nothing of it is used. It looks for it in `sys.modules`.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
