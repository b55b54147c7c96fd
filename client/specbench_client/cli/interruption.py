"""Runs a coroutine to its end from a command or a notebook, and lets signals cancel it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from specbench_client.errors import Interrupted

T = TypeVar("T")


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. SIGTERM, SIGINT and KeyboardInterrupt cancel it, and raise Interrupted.

    Signals are handled only if this is the main thread and has no event loop. In a notebook, whose thread has a running
    event loop, the coroutine runs in a thread of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_until_signalled(work))
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    cancel: Future[Callable[[], object]] = Future()

    async def run() -> T:
        task = asyncio.ensure_future(work)
        cancel.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        return await task

    outcome: Future[T] = Future()

    def target() -> None:
        try:
            outcome.set_result(asyncio.run(run()))
        except BaseException as error:  # noqa: BLE001 -- raised again in the thread that waits
            outcome.set_exception(error)

    try:  # begins before the start, during which the interrupt may arrive
        threading.Thread(target=target, name="measurement").start()
        return outcome.result()
    except KeyboardInterrupt as interrupted:
        cancel.result()()
        outcome.exception()  # waits until the coroutine has ended
        raise Interrupted from interrupted


async def _until_signalled(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine; in the main thread, SIGTERM and SIGINT cancel it, and raise Interrupted."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    earlier = {number: signal.getsignal(number) for number in numbers}
    # Not with loop.add_signal_handler: its counterpart sets the default handler first, and a signal that arrives before
    # the earlier handler is back would end the process without a message.
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        return await task
    except asyncio.CancelledError as cancelled:
        raise Interrupted from cancelled
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
