"""S3 servers that are hostile: each answers every request in one way that could hold or kill the reader."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import unquote

from specbench_testing.operator_builders import UID

DRIP_S = 0.05
"""Pause between two bytes of a dripping answer. Any pause below the timeout of one request shows the same."""
GIANT_BYTES = 256 * 1024 * 1024

Send = Callable[[bytes], None]
Behaviour = Callable[[str, Send, threading.Event], None]
"""Answers one request, given its target; the event is set when the server stops."""


def head(status: int = 200, *lines: str) -> bytes:
    """The head of an answer."""
    return "\r\n".join([f"HTTP/1.1 {status} X", "Connection: close", *lines, "", ""]).encode()


def page(rows: str, token: str = "") -> bytes:
    """A page of a listing, complete with its head. With a token, another page follows."""
    more = f"<IsTruncated>true</IsTruncated><NextMarker>{token}</NextMarker>" if token else ""
    body = f"<ListBucketResult>{rows}{more}</ListBucketResult>".encode()
    return head(200, f"Content-Length: {len(body)}") + body


def row(key: str) -> str:
    """One object of a listing."""
    time = "2026-01-02T12:00:00.000Z"
    return f'<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>"{key}"</ETag></Contents>'


def lists(target: str) -> bool:
    """Whether the request is for a listing."""
    return "marker=" in target


def listing_of(*names: str) -> Callable[[str], bytes]:
    """Answer listings of a run's root with these objects, and other listings with nothing."""

    def answer(target: str) -> bytes:
        prefix = unquote(target.partition("prefix=")[2].partition("&")[0])
        return page("".join(row(f"{prefix}{name}") for name in names) if prefix.endswith(f"/{UID}/") else "")

    return answer


def _sends(answer: bytes) -> Behaviour:
    """The same answer to every request."""

    def send_it(_target: str, send: Send, _stopped: threading.Event) -> None:
        send(answer)

    return send_it


def _drips(begin: bytes, piece: bytes) -> Behaviour:
    """The begin of an answer, and then a piece after the other without end."""

    def drip(_target: str, send: Send, stopped: threading.Event) -> None:
        send(begin)
        while not stopped.wait(DRIP_S):
            send(piece)

    return drip


def _answers_nothing(_target: str, _send: Send, stopped: threading.Event) -> None:
    stopped.wait()


def _pages_without_end(target: str, send: Send, _stopped: threading.Event) -> None:
    token = target.partition("marker=")[2].partition("&")[0]
    number = int(token or 0) + 1
    send(page("".join(row(f"k{number}-{each}") for each in range(100)), str(number)))


def _pages_of_long_keys(target: str, send: Send, _stopped: threading.Event) -> None:
    token = target.partition("marker=")[2].partition("&")[0]
    number = int(token or 0) + 1
    send(page("".join(row(f"k{number}-{each}-{'x' * 100_000}") for each in range(15)), str(number)))


def _many_folders(target: str, send: Send, _stopped: threading.Event) -> None:
    """List 20,000 folders of points; each has a manifest."""
    if not lists(target):
        send(head(200, "Content-Length: 0"))
        return
    token = int(target.partition("marker=")[2].partition("&")[0] or 0)
    rows = (f"<CommonPrefixes><Prefix>points/{token}-{each}/</Prefix></CommonPrefixes>" for each in range(1000))
    send(page("".join(rows) if "points" in target else "", str(token + 1) if token < 19 and "points" in target else ""))


def _large_error(target: str, send: Send, _stopped: threading.Event) -> None:
    if lists(target):
        send(listing_of("status.json")(target))
    else:
        body = b"<a>" + b"<a/>" * 2_000_000 + b"</a>"
        send(head(500, f"Content-Length: {len(body)}") + body)


def _giant_listing(_target: str, send: Send, _stopped: threading.Event) -> None:
    send(head(200, f"Content-Length: {GIANT_BYTES}"))
    _giant(send)


def _giant_status(target: str, send: Send, _stopped: threading.Event) -> None:
    if lists(target):
        send(listing_of("status.json")(target))
    else:
        send(head(200, "Transfer-Encoding: chunked") + f"{GIANT_BYTES:x}\r\n".encode())
        _giant(send)


def _giant(send: Send) -> None:
    block = b" " * 1024 * 1024
    for _ in range(GIANT_BYTES // len(block)):
        send(block)


def _header_flood(_target: str, send: Send, _stopped: threading.Event) -> None:
    send(b"HTTP/1.1 200 OK\r\n")
    for number in range(20_000):
        send(f"X-{number}: {'a' * 1000}\r\n".encode())
    send(b"\r\n")


def _continues(_target: str, send: Send, _stopped: threading.Event) -> None:
    for _ in range(100_000):
        send(b"HTTP/1.1 100 Continue\r\n\r\n")


def _long_chunk_size(_target: str, send: Send, _stopped: threading.Event) -> None:
    send(head(200, "Transfer-Encoding: chunked"))
    for _ in range(64):
        send(b"0" * 1024 * 1024)


def _xml(body: bytes) -> Behaviour:
    return _sends(head(200, f"Content-Length: {len(body)}") + body)


def _status(body: bytes, *lines: str) -> Behaviour:
    def answer(target: str, send: Send, _stopped: threading.Event) -> None:
        if lists(target):
            send(listing_of("status.json")(target))
        else:
            send(head(200, f"Content-Length: {len(body)}", *lines) + body)

    return answer


_ENTITIES = b"<!DOCTYPE a [<!ENTITY b0 'xxxxxxxxxx'>%s]><ListBucketResult>&b9;</ListBucketResult>" % b"".join(
    b"<!ENTITY b%d '%s'>" % (number, b"&b%d;" % (number - 1) * 10) for number in range(1, 10)
)

_REDIRECT = head(307, "Content-Length: 0", "Location: http://169.254.169.254/latest/meta-data/")
_IMPOSSIBLE_TIME = f"<ListBucketResult>{row('k')}</ListBucketResult>".replace("12:00", "99:99").encode()

BEHAVIOURS: dict[str, tuple[Behaviour, str]] = {
    "drips a body": (_drips(head(200, "Content-Length: 100000"), b"<"), "S3Slow"),
    "drips a head": (_drips(b"HTTP/1.1 200 OK\r\nX: ", b"a"), "S3Slow"),
    "drips chunks": (_drips(head(200, "Transfer-Encoding: chunked"), b"1\r\n<\r\n"), "S3Slow"),
    "answers nothing": (_answers_nothing, "S3Slow"),
    "pages without end": (_pages_without_end, "AnswerTooLarge"),
    "repeats its token": (_sends(page(row("k"), "again")), "AnswerTooLarge"),
    "pages of long keys": (_pages_of_long_keys, "AnswerTooLarge"),
    "page of many elements": (_xml(b"<a>" + b"<a/>" * 1_000_000 + b"</a>"), "AnswerTooLarge"),
    "many folders": (_many_folders, "AnswerTooLarge"),
    "large error": (_large_error, "AnswerTooLarge"),
    "giant listing": (_giant_listing, "AnswerTooLarge"),
    "giant status": (_giant_status, "AnswerTooLarge"),
    "redirects to a metadata address": (_sends(_REDIRECT), "RedirectRefused"),
    "redirects to nowhere": (_sends(head(307, "Content-Length: 0")), "RedirectRefused"),
    "names another region": (_sends(head(400, "Content-Length: 0", "x-amz-bucket-region: elsewhere")), "StoreRefused"),
    "header flood": (_header_flood, "AnswerTooLarge"),
    "endless 100 Continue": (_continues, "AnswerTooLarge"),
    "long chunk size": (_long_chunk_size, "S3Away"),
    "garbage": (_xml(b"\x00\xffSECRET-OF-ANOTHER-SERVICE"), "S3Away"),
    "no HTTP": (_sends(b"-ERR SECRET-OF-ANOTHER-SERVICE\r\n"), "S3Away"),
    "deep XML": (_xml(b"<a>" * 200_000 + b"</a>" * 200_000), ""),
    "XML entities": (_xml(_ENTITIES), "S3Away"),
    "row without a key": (_xml(b"<ListBucketResult><Contents/></ListBucketResult>"), "StoreRefused"),
    "impossible time": (_xml(_IMPOSSIBLE_TIME), "StoreRefused"),
    "truncated": (_sends(head(200, "Content-Length: 500") + b"<ListBucketResult>"), "S3Away"),
    "deep JSON": (_status(b"[" * 200_000), "StatusUnreadable"),
    "many values": (_status(b'{"arms": [' + b"{}," * 80_000 + b"{}]}"), "StatusUnreadable"),
    "gzip bomb": (_status(gzip.compress(b" " * 64 * 1024 * 1024), "Content-Encoding: gzip"), "StatusUnreadable"),
}  # fmt: skip
"""What a store does → how, and the reason that is reported. Empty: any reason, or none."""


class HostileStore:
    """A server on 127.0.0.1 with one behaviour. Counts its requests."""

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self._behaviour = behaviour
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        self.requests: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listening.getsockname()[1]}"

    def stop(self) -> None:
        """End all answers, and accept no more."""
        self._stopped.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the listening socket was closed
            while True:
                connected, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connected,), daemon=True).start()

    def _answer(self, accepted: socket.socket) -> None:
        with ExitStack() as stack:
            stack.enter_context(accepted)
            stack.enter_context(suppress(OSError))  # the client closed the connection
            connected = (
                stack.enter_context(self._tls.wrap_socket(accepted, server_side=True)) if self._tls else accepted
            )
            request = b""
            while b"\r\n\r\n" not in request:
                received = connected.recv(65536)
                if not received:
                    return
                request += received
            target = request.split(b" ", 2)[1].decode()
            self.requests.append(target)
            self._behaviour(target, connected.sendall, self._stopped)


@contextmanager
def hostile_store(name: str, tls: ssl.SSLContext | None = None) -> Iterator[HostileStore]:
    """A running store with one of BEHAVIOURS, or an honest one where nothing is stored."""
    store = HostileStore(_sends(page("")) if name == "nothing stored" else BEHAVIOURS[name][0], tls)
    try:
        yield store
    finally:
        store.stop()
