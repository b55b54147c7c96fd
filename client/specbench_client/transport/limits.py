"""Limits of time, of an answer's size, of memory for answers that are not parsed yet, and of this machine's sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from pathlib import Path

from specbench_client.errors import BadInput

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0
"""Longest silence, from sending to the first byte and between two reads."""
TOTAL_TIMEOUT_S = 3600.0
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A 131,072-token answer with the widest chunks observed (600 bytes a token) is 80 MB; a longer answer is an error."""
MAX_HEAD_BYTES = 64 * 1024
"""Longest response head, with the interim responses before it; also the longest part of an answer without content, such
as a chunk extension or a trailer."""
READ_OVERHEAD_BYTES = 160
"""Memory of one read besides its bytes: 108 bytes, and up to 104 of a poll pass, which reads share. It counts towards
an answer's size, so that one-byte reads are limited too."""
DEFAULT_HELD_BYTES_MAX = 1024 * 1024 * 1024


class AnswerBudget:
    """Memory for answers that a process has received and not parsed yet, over all its connections."""

    def __init__(self, most: int = DEFAULT_HELD_BYTES_MAX) -> None:
        self.most = most
        self.held = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether the answers take more memory than they may."""
        return self.held > self.most

    def error(self) -> str:
        """Return the message for an answer that was given up because the budget is exceeded."""
        return (
            f"the answers that are not parsed yet take more than {self.most:,} bytes in this client process: the engine"
            " sends more than was requested, or the client needs more memory (placement.client.resources)"
        )


LOCAL_SOCKET_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
"""Errors of connecting that are caused by this machine and not by the engine."""


class OutOfSockets(BadInput):
    """The client cannot open as many connections as the load needs."""


SOCKETS_AHEAD = 8192
"""Entries of a worker's table of files, 64 KiB."""


def raise_socket_limit() -> None:
    """Raise this process's soft limit of open files, often 1,024, to the hard limit, and make its table of files large.

    The kernel doubles the table at 64, 256, … files, and in a process with threads waits about 12 ms each time. So the
    table grows now, before the first thread, and not in a burst of new connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Path(os.devnull).open("rb") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD, min(hard % 2**64, SOCKETS_AHEAD) - 1))


def out_of_sockets_error(error: OSError) -> OutOfSockets:
    """Return the error for a connection that this machine could not open, with a remedy."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OutOfSockets(
        f"this machine has no socket left for another request ({error.strerror}): raise `ulimit -n` (now {limit}) "
        "well above the concurrency, or lower the load"
    )
