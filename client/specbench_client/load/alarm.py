"""Waking at a moment of the monotonic clock, without the millisecond to which asyncio's timers round up.

Linux has timers that are files: the event loop waits for ours as it waits for a socket, and the kernel makes it
readable at the very moment. Python knows them from 3.13 on; until then the C library is asked. Where there are none,
asyncio's own timers do, and the lateness of the sends tells.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from types import TracebackType
from typing import Any, Self

_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_NS_PER_S = 1_000_000_000


class _Spec(ctypes.Structure):
    """struct itimerspec: the repetition (none), then the moment."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("repeat_s", "repeat_ns", "at_s", "at_ns"))


class Alarm:
    """`async with Alarm() as alarm: await alarm.until(ns)`. For one waiter at a time."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = -1
        self._rung: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        create: Any = getattr(self._libc, "timerfd_create", None)
        self._timer = create(time.CLOCK_MONOTONIC, _TFD_FLAGS) if create else -1
        if self._timer >= 0:
            asyncio.get_running_loop().add_reader(self._timer, self._ring)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer >= 0:
            asyncio.get_running_loop().remove_reader(self._timer)
            os.close(self._timer)
            self._timer = -1

    async def until(self, ns: int) -> None:
        """Return at this moment. Where it is past, everybody else has a turn: who is late starves nobody."""
        left_ns = ns - time.monotonic_ns()
        if left_ns <= 0:
            await asyncio.sleep(0)
            return
        self._rung = asyncio.get_running_loop().create_future()
        if not self._set(ns):
            await asyncio.sleep(left_ns / _NS_PER_S)
            return
        await self._rung

    def _set(self, ns: int) -> bool:
        spec = _Spec(0, 0, *divmod(ns, _NS_PER_S))
        return self._timer >= 0 and self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None) == 0

    def _ring(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return
        if self._rung is not None and not self._rung.done():
            self._rung.set_result(None)
