"""Converts the kernel's receive time stamps to the monotonic clock."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Sequence

SO_TIMESTAMPNS = 35
"""From asm-generic/socket.h; Python does not define it. The resulting control message has the same number."""
_TIMESPEC = struct.Struct("=qq")
_TRIES = 5_000
"""On a loaded machine the kernel was still not ready after 0.2 s; this is at least 5 s."""
_PAUSE_S = 0.001


def await_stamps() -> None:
    """Wait until the kernel adds timestamps, which starts shortly after the first socket enables them."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sending:
        receiving, _ = server.accept()
        with receiving:
            receiving.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            for _ in range(_TRIES):
                sending.send(b"?")
                if receiving.recvmsg(1, socket.CMSG_SPACE(_TIMESPEC.size))[1]:
                    return
                time.sleep(_PAUSE_S)


def arrived_ns(stamps: Sequence[tuple[int, int, bytes]]) -> int:
    """Return the kernel's receive time, converted from wall time to the monotonic clock."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    for level, kind, data in stamps:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, rest = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds * 10**9 + rest + (before + after) // 2 - wall)
    raise OSError(errno.ENOTSUP, "this kernel stamps no arrivals (SO_TIMESTAMPNS)")
