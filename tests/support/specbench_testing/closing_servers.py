"""Closes asyncio servers completely, so that the garbage collector finds no open socket during a later test.

asyncio needs several passes of the event loop to accept a connection. If `Server.close` is called meanwhile, asyncio
neither closes nor reports the accepted socket (https://github.com/python/cpython/issues/109564, open in 3.11 to 3.14).
A client whose process is killed, or whose load is cancelled, often connects at that moment.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer, get_port_socket

if TYPE_CHECKING:
    from _typeshed import HasFileno

PASSES = 3
"""Passes of the event loop after an accept: create the transport, call `connection_made`, start the handler."""


async def finish_accepting(listeners: Iterable[HasFileno]) -> None:
    """Stop accepting, and wait until the server has each connection that asyncio has already accepted."""
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener.fileno())
    for _ in range(PASSES):
        await asyncio.sleep(0)


@asynccontextmanager
async def accepting(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[str]:
    """Handle each connection with this function, and close it when it returns; yields the URL."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # The client closed the connection, or rejected the certificate.
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        await finish_accepting(server.sockets)
        server.close()
        for writer in writers:
            with suppress(AttributeError):  # from Python before 3.11.5, for a TLS transport that was closed twice
                writer.transport.abort()
        await asyncio.sleep(0)  # the event loop closes the sockets in its next pass
        await server.wait_closed()


class ClosingTestServer(TestServer):
    """aiohttp's test server on 127.0.0.1, whose `close` also closes connections that are being accepted."""

    def __init__(self, application: web.Application, **options: Any) -> None:
        super().__init__(application, socket_factory=self._bind, **options)
        self._listeners: list[socket.socket] = []

    def _bind(self, host: str, port: int, family: socket.AddressFamily) -> socket.socket:
        self._listeners.append(get_port_socket(host, port, family))
        return self._listeners[-1]

    async def close(self) -> None:
        if not self.closed:
            await finish_accepting(self._listeners)
        await super().close()
