"""Readers that go away, as in `specbench report … | head -1`: then the program ends quietly, as if of SIGPIPE.

The signal itself stays off, as Python has it: it would end a measurement because of any connection that breaks.
"""

from __future__ import annotations

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
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream)
        os.close(nowhere)
    return bool(unread)
