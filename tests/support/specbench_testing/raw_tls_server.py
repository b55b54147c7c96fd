"""A TLS server whose test sends each byte of ciphertext itself, for records that no server's library would send."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from specbench_testing.closing_servers import end_connections, finish_accepting

_PAUSE_S = 0.02
"""Long enough that the following bytes are read separately."""


class RawTlsConnection:
    """The server's side of one connection. What is encrypted is not sent before the test sends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: ssl.SSLContext) -> None:
        self.writer = writer
        self._reader = reader
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, piece_bytes: int = 1 << 20) -> bytes:
        """Perform the handshake, with at most so many bytes in a send; return what follows it: session tickets."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._outgoing.read(), piece_bytes)
                self._incoming.write(await self._read())
            else:
                return self._outgoing.read()

    async def receive_request(self) -> bytes:
        """Return the head and the body of the next request."""
        received = b""
        while True:
            head, end, body = received.partition(b"\r\n\r\n")
            if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split()[0]):
                return received
            try:
                received += self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                self._incoming.write(await self._read())

    def encrypt(self, *contents: bytes) -> bytes:
        """Return one record for each content."""
        for content in contents:
            self._tls.write(content)
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the record that ends the session."""
        with suppress(ssl.SSLWantReadError):  # It would wait for the client's.
            self._tls.unwrap()
        return self._outgoing.read()

    async def ends_with_close_notify(self) -> bool:
        """Read until the client closes the connection; return whether it ended the session before."""
        self._incoming.write(await self._reader.read())
        with suppress(ssl.SSLWantReadError):
            return self._tls.read(1) == b""
        return False

    async def send(self, ciphertext: bytes, piece_bytes: int = 1 << 20) -> None:
        """Send in pieces of this size."""
        for start in range(0, len(ciphertext), piece_bytes):
            self.writer.write(ciphertext[start : start + piece_bytes])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def pause(self) -> None:
        """Wait until the client has read what was sent."""
        await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> bytes:
        data = await self._reader.read(1 << 16)
        if not data:
            raise ConnectionResetError
        return data


@asynccontextmanager
async def serve_raw_tls(
    tls: ssl.SSLContext, serve: Callable[[RawTlsConnection], Awaitable[None]]
) -> AsyncIterator[str]:
    """Serve each connection with this function, which closes it by returning; yields the URL."""
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await serve(RawTlsConnection(reader, writer, tls))
        except (ConnectionError, ssl.SSLError):
            pass  # The client closed the connection, or rejected the certificate.
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await finish_accepting(server.sockets)
        server.close()
        await end_connections(writers)
        await server.wait_closed()
