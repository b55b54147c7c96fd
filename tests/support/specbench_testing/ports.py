"""TCP ports for servers that tests start: nobody else gets one between its choice and the server's bind, or while the
server is away.

Each is held by a socket of ours that is bound and never listens. Linux lets a second socket bind to the same port
where both allow it (SO_REUSEADDR, as servers set it; SO_REUSEPORT, as some set it instead) and one of them at most
listens. It gives such a port to nobody who asks for any; and who connects to it is refused as where nobody is.
"""

from __future__ import annotations

import socket

LOCALHOST = "127.0.0.1"


def free_port() -> int:
    """A TCP port of 127.0.0.1 at which nobody listens, held until this process ends."""
    holder = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        holder.setsockopt(socket.SOL_SOCKET, option, 1)
    holder.bind((LOCALHOST, 0))
    port: int = holder.getsockname()[1]
    holder.detach()  # it stays open, without an object that would have to be kept
    return port
