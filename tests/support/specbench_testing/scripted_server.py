"""A server that follows a script byte by byte, for responses that no correct engine gives."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from specbench_testing.closing_servers import accepting

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


class ScriptAction(Enum):
    """Script actions besides sending bytes. At the end of a script, the connection is closed properly."""

    RESET = "reset"
    STALL = "stall"
    WAIT = "wait"
    """Long enough that the following bytes are read separately."""


Script = Sequence[bytes | ScriptAction]


@dataclass
class ReceivedRequests:
    """The received requests: head and body."""

    requests: list[tuple[bytes, bytes]]


@asynccontextmanager
async def serve_scripts(
    *scripts: Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, ReceivedRequests]]:
    """Serve; the n-th connection gets the n-th script, later ones the last. Yields the URL and all requests."""
    received = ReceivedRequests([])
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        received.requests.append((head, body))
        await _perform(scripts[min(len(received.requests), len(scripts)) - 1], writer, over)

    async with accepting(serve, tls=tls) as url:
        try:
            yield url, received
        finally:
            over.set()


async def _perform(script: Script, writer: asyncio.StreamWriter, over: asyncio.Event) -> None:
    for act in script:
        if act is ScriptAction.STALL:
            await over.wait()
        elif act is ScriptAction.WAIT:
            await asyncio.sleep(0.02)
        elif act is ScriptAction.RESET:
            linger = struct.pack("ii", 1, 0)  # close with a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return
        elif isinstance(act, bytes):
            writer.write(act)
            await writer.drain()


def unused_url(scheme: str = "http") -> str:
    """An address without a server."""
    return f"{scheme}://127.0.0.1:9"


def response(status: int, body: bytes, *headers: bytes) -> bytes:
    """A complete response with its length."""
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"", body])
