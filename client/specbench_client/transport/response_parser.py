"""Parses an HTTP/1.1 response with httptools (Node's llhttp): each read once, while the answer arrives or after it.

A hostile server must not exhaust time or memory: each byte is parsed once, and parts of a response that are not content
have a maximum length.
"""

from __future__ import annotations

from http import HTTPStatus

import httptools

from specbench_client.transport.limits import MAX_HEAD_BYTES


class ResponseParser:
    """The response parsed from the reads so far. The `on_…` names are required by httptools.

    `contents`: the content of each read that has any, and the number of the read. `complete`: the message ended where
    its framing declares. `broken`: why the bytes are not valid HTTP, or None. `stays_open`: whether the server keeps
    the connection after the response, as far as its head and the bytes after it show.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.head_read: int | None = None
        """Number of the read with the end of the head."""
        self.contents: list[tuple[int, bytes]] = []
        self.complete = False
        self.broken: str | None = None
        self.stays_open = False
        self.reads = 0
        """Number of reads that are parsed."""
        self._parser = httptools.HttpResponseParser(self)
        self._content = bytearray()
        self._contentless_bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether the response is complete or invalid; what follows is ignored."""
        return self.complete or self.broken is not None

    @property
    def is_chunked(self) -> bool:
        """Whether the head has arrived, and announces a body in chunks."""
        return self.head_read is not None and "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def ends_with_connection(self) -> bool:
        """Whether the head has arrived, and only the end of the connection ends the body."""
        return self.head_read is not None and not self._is_framed and not self.is_over

    def feed(self, data: bytes) -> None:
        """Parse the next read."""
        if not self.is_over:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                self.complete, self.stays_open = True, False  # Bytes after a 101 belong to another protocol.
            except httptools.HttpParserError as error:
                self.stays_open = False
                if not self.complete:
                    self.broken = f"not HTTP/1.1: {error}"
            if self._content:
                self.contents.append((self.reads, bytes(self._content)))
                self._content.clear()
                self._contentless_bytes = 0
            else:
                self._count_contentless(len(data))
        self.reads += 1

    def _count_contentless(self, count: int) -> None:
        """Mark the response as invalid if too many bytes in a row had no content.

        httptools joins a header or trailer from its pieces, in a time that grows with the square of its length.
        """
        self._contentless_bytes += count
        if self._contentless_bytes > MAX_HEAD_BYTES and not self.is_over:
            self.stays_open = False
            part = "the response head has" if self.head_read is None else "the response has"
            self.broken = f"{part} more than {MAX_HEAD_BYTES:,} bytes in a row that are not content"

    def drop_after(self, reads: int) -> None:
        """Drop what came after the first reads."""
        if self.head_read is not None and self.head_read >= reads:
            self.head_read = self.status = None
        self.contents = [(number, content) for number, content in self.contents if number < reads]

    def end(self, *, closed: bool) -> None:
        """Finish after the last read. `closed`: the server closed the connection, which ends a body without a length.

        Nothing can be fed afterwards.
        """
        del self._parser  # It refers back to this object, and collecting hundreds of answers as garbage takes 0.1 s.
        if closed and self.ends_with_connection:
            self.complete = True

    @property
    def _is_framed(self) -> bool:
        return "content-length" in self.headers or self.is_chunked

    def on_message_begin(self) -> None:
        if self.complete:
            self.stays_open = False  # Bytes after the response, which nothing requested.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_read is None:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if HTTPStatus.CONTINUE <= status < HTTPStatus.OK and status != HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers.clear()
        elif self.head_read is None:
            self.status, self.head_read = status, self.reads
            self.stays_open = self._is_framed and self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._content += data

    def on_message_complete(self) -> None:
        if self.head_read is not None:
            self.complete = True
