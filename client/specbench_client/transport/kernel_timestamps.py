"""Converts the kernel's receive timestamps to the monotonic clock.

SO_TIMESTAMPNS stamps a segment with the wall clock when it arrives from the network, before any process is woken. The
offset between wall clock and monotonic clock is measured again while reading: a slewed clock drifts by at most 500 µs a
second, so by 10 µs within OFFSET_MAX_AGE_NS. If the offset jumped, the clock was stepped. Bytes stamped before
the step and read after it cannot be converted: they get the time of their poll pass, and the exchange is marked
`TimestampSource.USER`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator, Sequence

SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
"""35 on all Linux architectures that run engines (asm-generic/socket.h); the name exists in Python from 3.14 on."""
TIMESTAMP_SPACE = socket.CMSG_SPACE(16)
"""Space for one struct timespec, two int64."""
OFFSET_MAX_AGE_NS = 20_000_000
CLOCK_STEP_NS = 1_000_000
"""An offset that changed by more than this between two measurements means a stepped clock, not a slewed one."""
_TIMESPEC = struct.Struct("qq")
_TRIES = 4
_PRECISE_ENOUGH_NS = 2_000
_STAMP_TRIES = 100
_STAMP_PAUSE_S = 0.001


class PollPass:
    """One pass over the readable sockets, from `started_ns` until `until_ns` (monotonic).

    `offset_ns`: wall clock minus monotonic clock; None: the wall clock was stepped since the previous measurement.
    """

    __slots__ = ("offset_ns", "started_ns", "until_ns")

    def __init__(self, started_ns: int, offset_ns: int | None, until_ns: int | None = None) -> None:
        self.started_ns = started_ns
        self.offset_ns = offset_ns
        self.until_ns = started_ns if until_ns is None else until_ns


class KernelClock:
    """Keeps the offset between wall clock and monotonic clock up to date."""

    def __init__(self) -> None:
        self._offset_ns = wall_clock_offset_ns()
        self._measured_ns = time.monotonic_ns()

    def start_pass(self) -> PollPass:
        """Return a poll pass that starts now. The offset is measured again after OFFSET_MAX_AGE_NS."""
        now_ns = time.monotonic_ns()
        if now_ns - self._measured_ns < OFFSET_MAX_AGE_NS:
            return PollPass(now_ns, self._offset_ns)
        before_ns, self._offset_ns = self._offset_ns, wall_clock_offset_ns()
        self._measured_ns = now_ns
        stepped = abs(self._offset_ns - before_ns) > CLOCK_STEP_NS
        return PollPass(now_ns, None if stepped else self._offset_ns)


async def enable_kernel_timestamps() -> socket.socket:
    """Make the kernel timestamp received segments for as long as the returned socket is open.

    The kernel starts a moment after the socket option is set; this function waits until a test byte is stamped, so that
    the first answer is stamped like the last one. A kernel that never stamps is not an error: reads then get the time
    of their poll pass.
    """
    try:
        server = socket.create_server(("127.0.0.1", 0))
    except OSError:  # IPv6 alone, even on the loopback interface
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    with server:
        sending = socket.create_connection(server.getsockname()[:2])
        timestamp_socket, _ = server.accept()
    with sending:
        timestamp_socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for _ in range(_STAMP_TRIES):
            sending.send(b"?")
            if timestamp_socket.recvmsg(1, TIMESTAMP_SPACE)[1]:
                break
            await asyncio.sleep(_STAMP_PAUSE_S)
    return timestamp_socket


def wall_clock_offset_ns() -> int:
    """Return wall clock minus monotonic clock, from the reading with the narrowest bracket of a few."""
    best_ns, offset = 1 << 62, 0
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_ns:
            best_ns, offset = after - before, wall - (before + after) // 2
        if best_ns <= _PRECISE_ENOUGH_NS:
            break
    return offset


def arrival_times(
    stamps: Sequence[bytes], poll_passes: Sequence[PollPass], since_ns: int = 0
) -> tuple[list[int], bool]:
    """Return the arrival time of each read (monotonic ns), and whether all of them are kernel timestamps.

    `stamps`: one struct timespec for each read, or empty bytes. `since_ns`: when the request was sent; no answer is
    earlier. A stamp that is missing, or outside `since_ns` to the end of its poll pass (the clock was stepped and the
    step is not detected yet), is replaced by the start of the poll pass. Times never decrease.
    """
    times: list[int] = []
    latest_ns, all_kernel = since_ns, True
    for (seconds, rest), poll_pass in zip(_unpack(stamps), poll_passes, strict=True):
        offset_ns = poll_pass.offset_ns
        ns = -1 if offset_ns is None else seconds * 1_000_000_000 + rest - offset_ns
        if not latest_ns <= ns <= poll_pass.until_ns or not seconds:
            is_kernel = seconds > 0 and since_ns <= ns <= poll_pass.until_ns
            all_kernel = all_kernel and is_kernel
            ns = max(latest_ns, ns if is_kernel else poll_pass.started_ns)
        latest_ns = ns
        times.append(ns)
    return times, all_kernel


def _unpack(stamps: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield seconds and nanoseconds of each stamp; zeros for one that is missing."""
    joined = b"".join(stamps)
    if len(joined) != _TIMESPEC.size * len(stamps):
        joined = b"".join([stamp if len(stamp) == _TIMESPEC.size else bytes(_TIMESPEC.size) for stamp in stamps])
    return _TIMESPEC.iter_unpack(joined)
