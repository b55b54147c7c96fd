"""What this machine lends every transport: sockets, and as much memory as an answer may take."""

from __future__ import annotations

import errno
import resource

from specbench_client.errors import BadInput

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A 131,072-token answer with the widest chunks seen (600 bytes a token) is 80 MB; more is no answer."""
OURS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
"""Errors of connecting that are this machine's, not the engine's."""


class OutOfSockets(BadInput):
    """The client cannot open as many connections as it was asked to."""


def lend_all() -> None:
    """Allow this process as many sockets as the system lets it: the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def out_of_sockets(error: OSError) -> OutOfSockets:
    """What to tell the user."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OutOfSockets(
        f"this machine has no socket left for another request ({error.strerror}): raise `ulimit -n` (now {limit}) "
        "well above the concurrency, or ask for less"
    )
