"""The kernel's receive times, brought to the monotonic clock.

SO_TIMESTAMPNS stamps a segment with the wall clock when it comes from the network, before any process is woken. The
distance between the wall clock and the monotonic one is measured again while reading (a slewed clock drifts by at most
500 µs a second, so within `FRESH_NS` by 10 µs). Where the distance jumped, the clock was set: what was stamped before
and read after cannot be mapped, and those reads get our own time and the lower grade.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence

import numpy as np

SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
"""35 on all of Linux' architectures that run engines (asm-generic/socket.h); Python has no name for it before 3.14."""
STAMP_SPACE = socket.CMSG_SPACE(16)
"""One struct timespec of two int64."""
FRESH_NS = 20_000_000
STEPPED_NS = 1_000_000
"""A distance that changed by more between two measurements was a clock that was set, not one that was slewed."""
_STAMP_BYTES = 16
_TRIES = 4
_CLOSE_NS = 2_000
_STAMP_TRIES = 100
_STAMP_PAUSE_S = 0.001


class Look:
    """One pass over the readable sockets, from `seen_ns` until `until_ns` (monotonic).

    `offset_ns`: wall clock less monotonic; None: the clock was set just now.
    """

    __slots__ = ("offset_ns", "seen_ns", "until_ns")

    def __init__(self, seen_ns: int, offset_ns: int | None, until_ns: int | None = None) -> None:
        self.seen_ns = seen_ns
        self.offset_ns = offset_ns
        self.until_ns = seen_ns if until_ns is None else until_ns


class KernelClock:
    """Looks at both clocks, seldom."""

    def __init__(self) -> None:
        self._offset_ns = distance_ns()
        self._measured_ns = time.monotonic_ns()

    def look(self) -> Look:
        """Now."""
        now_ns = time.monotonic_ns()
        if now_ns - self._measured_ns < FRESH_NS:
            return Look(now_ns, self._offset_ns)
        before_ns, self._offset_ns = self._offset_ns, distance_ns()
        self._measured_ns = now_ns
        stepped = abs(self._offset_ns - before_ns) > STEPPED_NS
        return Look(now_ns, None if stepped else self._offset_ns)


async def keep_stamping() -> socket.socket:
    """Have the kernel stamp what comes; it does while a socket that asks for it is open, from a moment later on.

    That moment is waited for, so that the first answer is stamped as the last one is. A kernel that never stamps is
    not an error: every read then gets our own time.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        sending = socket.create_connection(server.getsockname())
        keeper, _ = server.accept()
    with sending:
        keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for _ in range(_STAMP_TRIES):
            sending.send(b"?")
            if keeper.recvmsg(1, STAMP_SPACE)[1]:
                break
            await asyncio.sleep(_STAMP_PAUSE_S)
    return keeper


def distance_ns() -> int:
    """Wall clock less monotonic: the reading whose bracket was the narrowest of a few."""
    best_ns, distance = 1 << 62, 0
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_ns:
            best_ns, distance = after - before, wall - (before + after) // 2
        if best_ns <= _CLOSE_NS:
            break
    return distance


def arrival_times(stamps: Sequence[bytes], looks: Sequence[Look], since_ns: int = 0) -> tuple[list[int], bool]:
    """Each read's arrival (monotonic ns), and whether all of them are the kernel's.

    `stamps`: struct timespec, or nothing. `since_ns`: when the request was sent, which no answer precedes. A stamp that
    is missing, lies before that or after the look that gave us the bytes (the clock was set, and we have not seen it
    yet) is replaced by the look's own time. Times of one connection never run backwards.
    """
    rows = [(look.seen_ns, look.until_ns, look.offset_ns or 0, look.offset_ns is not None) for look in looks]
    seen, until, offsets, known = np.array(rows, np.int64).reshape(-1, 4).T
    raw = b"".join(stamp if len(stamp) == _STAMP_BYTES else bytes(_STAMP_BYTES) for stamp in stamps)
    seconds, rest = np.frombuffer(raw, np.int64).reshape(-1, 2).T
    kernel = seconds * 1_000_000_000 + rest - offsets
    trusted = known.astype(bool) & (seconds > 0) & (kernel >= since_ns) & (kernel <= until)
    times = np.maximum.accumulate(np.where(trusted, kernel, seen))
    return times.tolist(), bool(trusted.all())
