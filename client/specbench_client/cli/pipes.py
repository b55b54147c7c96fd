"""Output that goes nowhere: to a full disk, or to a reader that went away.

Readers go away in `specbench report … | head -1`: then the program ends quietly, as if of SIGPIPE.

The signal itself stays off, as Python has it: it would end a measurement because of any connection that breaks.
"""

from __future__ import annotations

import errno
import os
import select
import signal

UNREAD = 128 + signal.SIGPIPE
"""The exit code, as shells report a program that died of it."""


def close_unread() -> bool:
    """Whether stdout or stderr has no reader any more. What is still to be written there goes nowhere from now on."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    unread = [stream for stream, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    for stream in unread:
        _to_nowhere(stream)
    return bool(unread)


def close_full(error: OSError) -> bool:
    """Whether stdout has no room for what was printed, and then nothing is written there from now on.

    A file of the program's own that is full has a name, which the error tells.
    """
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None
    if full:
        _to_nowhere(1)
    return full


def _to_nowhere(stream: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)
