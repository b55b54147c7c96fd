"""TCP ports for test servers: no other process gets a port between its choice and the server's bind, or while the
server is down.

A bound socket that never listens holds each port. Linux lets a second socket bind to the same port if both allow it
(SO_REUSEADDR, as servers set it; SO_REUSEPORT, as some set it instead) and at most one of them listens. It does not
assign such a port to a socket that requests any port, and it refuses connections to it while no server listens.
"""

from __future__ import annotations

import socket

LOCALHOST = "127.0.0.1"


def free_port() -> int:
    """A free TCP port of 127.0.0.1, held until this process ends."""
    holder = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        holder.setsockopt(socket.SOL_SOCKET, option, 1)
    holder.bind((LOCALHOST, 0))
    port: int = holder.getsockname()[1]
    holder.detach()  # the socket stays open without a Python object
    return port
