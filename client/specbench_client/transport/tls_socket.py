"""TLS over a plain TCP socket: decrypts the bytes that the kernel has timestamped.

The kernel timestamps ciphertext when it arrives. A TLS record can be decrypted once its last byte is there, so its
plaintext has the time of the read that completed it, whenever it is decrypted. The ssl module's own sockets hide these
reads; so records pass through memory BIOs here, and the socket is read with `recvmsg` as for http.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from typing import Any

from specbench_client.transport.error_messages import handshake_error_message, tls_error_message

Received = tuple[bytes, list[tuple[int, int, bytes]], int, Any]
"""What `recvmsg` returns: bytes, control messages, flags and address."""

_RECORD_BYTES = 16 * 1024
"""Longest plaintext of a record (RFC 8446, section 5.1): reading this much returns one whole record."""
_HANDSHAKE_READ_BYTES = 64 * 1024


class TlsError(OSError):
    """The peer's certificate, handshake or records are not valid. The message is for users."""


def client_context() -> ssl.SSLContext:
    """Return a context that verifies certificates against SSL_CERT_FILE, else against the system's authorities."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsSocket:
    """A connected, non-blocking TCP socket with TLS. Use it after `shake_hands`.

    `host`: the name that the certificate must have, sent as SNI.
    """

    __slots__ = ("_closed", "_failure", "_incoming", "_outgoing", "_read", "_recvmsg", "_sock", "_tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._recvmsg = sock.recvmsg
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._read = self._tls.read
        self._closed = False
        """Whether a close_notify was received."""
        self._failure: OSError | None = None
        """Why the rest cannot be decrypted. It is raised after the plaintext before it was returned."""

    async def shake_hands(self) -> None:
        """Perform the TLS handshake. Raises OSError with a message for users."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(self._sock, self._outgoing.read())
            except ssl.SSLError as error:
                self._send_rest()  # An alert, with which the server can log why.
                raise TlsError(handshake_error_message(error)) from error
            else:
                await loop.sock_sendall(self._sock, self._outgoing.read())
                return
            data = await loop.sock_recv(self._sock, _HANDSHAKE_READ_BYTES)
            if not data:
                raise ConnectionResetError(
                    errno.ECONNRESET, "the server closed the connection during the TLS handshake"
                )
            self._incoming.write(data)

    def recvmsg(self, size: int, ancillary_size: int) -> Received:
        """Receive ciphertext; return the plaintext of all records that it completed, and its control messages.

        Returns `b""` after a close_notify. Raises BlockingIOError if no record with content is complete, and OSError if
        a record is invalid or the server closed without a close_notify: what ends only with the connection may then be
        incomplete (RFC 9112, section 9.8).
        """
        data, ancillary, flags, address = self._recvmsg(size, ancillary_size)
        if data and not self._closed and self._failure is None:
            plaintext = self._decrypt(data)
            if plaintext:
                return plaintext, ancillary, flags, address
            if not self._closed and self._failure is None:
                raise BlockingIOError
        if self._failure is not None:
            raise self._failure
        if not self._closed:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection without a TLS close_notify")
        return b"", ancillary, flags, address

    def _decrypt(self, data: bytes) -> bytes:
        """Return the plaintext of the records that are complete. This is on the hot path."""
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            while part := self._read(_RECORD_BYTES):
                if not self._incoming.pending:  # Reading in vain would cost an exception for each read.
                    if not parts:
                        return part
                    parts.append(part)
                    break
                parts.append(part)
            else:
                self._closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failure = TlsError(tls_error_message(error))
        if self._closed or self._failure is not None:
            with suppress(OSError):  # The socket may be closed by the peer already.
                self._sock.shutdown(socket.SHUT_RD)  # Makes it readable once more, so that `recvmsg` reports the end.
        return b"".join(parts)

    def encrypt(self, data: bytes) -> bytes:
        """Return the records that contain `data`. All of them must be sent, in this order."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def send(self, data: memoryview, /) -> int:
        """Send records from `encrypt`; return the number of bytes sent. Raises OSError."""
        return self._sock.send(data)

    def fileno(self) -> int:
        """Return the file descriptor; -1 after `close`."""
        return self._sock.fileno()

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option of the TCP socket."""
        return self._sock.getsockopt(level, option, size)

    def close(self) -> None:
        """Send a close_notify if possible, and close the socket."""
        if self._sock.fileno() >= 0:
            with suppress(ssl.SSLError):  # It wants to read the server's close_notify, which nobody waits for.
                self._tls.unwrap()
            self._send_rest()
        self._sock.close()

    def _send_rest(self) -> None:
        with suppress(OSError):
            self._sock.send(self._outgoing.read())


StreamSocket = socket.socket | TlsSocket
"""A non-blocking socket, plain or with TLS. `recvmsg` returns plaintext with the timestamp of its arrival."""
