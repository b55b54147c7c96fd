"""The server's side of TLS, without a socket, so that encrypting can be finished before a send time is taken."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

CERTIFICATE, KEY = "certificate.pem", "key.pem"
_RECORD_BYTES = 16 * 1024


def make_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1 and its key into the folder; return the certificate's path."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=clockserver", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(folder / CERTIFICATE), "-keyout", str(folder / KEY)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return folder / CERTIFICATE


def server_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a server with the certificate that `make_certificate` wrote."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context


class TlsSession:
    """One connection's session."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_established = False

    def receive(self, ciphertext: bytes) -> tuple[bytes, bytes]:
        """Return the plaintext, and ciphertext to be sent for the handshake. Raises ssl.SSLError."""
        self._incoming.write(ciphertext)
        plaintext = b""
        with suppress(ssl.SSLWantReadError):
            if not self._is_established:
                self._tls.do_handshake()
                self._is_established = True
            while data := self._tls.read(_RECORD_BYTES):
                plaintext += data
        return plaintext, self._outgoing.read()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the records that contain these bytes."""
        rest = memoryview(plaintext)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()
