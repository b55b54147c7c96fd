"""Sends one answer: chunks as steps end, the truth before the last word, the injected deaths of a stream in between."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field

from aiohttp import web

from specbench_client.simulator.ask import Result
from specbench_client.simulator.dialect import Wire
from specbench_client.simulator.engine import Engine, Piece, Stream
from specbench_client.simulator.truth import TruthFile, truth_of


class ConnectionCut(Exception):
    """The connection was reset on purpose; there is nobody left to answer."""


@dataclass(slots=True)
class Exchange:
    """One request's answer on its way out."""

    engine: Engine
    stream: Stream
    wire: Wire
    request: web.Request
    truth: TruthFile | None
    sent: list[Piece] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)
    complete: bool = False

    async def run(self) -> web.StreamResponse:
        """Answer; whatever happens, the engine forgets the request and the truth is written once."""
        try:
            if self.stream.ask.delivery.stream:
                return await self._streamed()
            return await self._whole()
        finally:
            if not self.complete:
                self.engine.cancel(self.stream)
                self._tell_truth()

    async def _streamed(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(self.request)
        pending: list[Piece] = []
        async for piece in self.stream:
            if not self.sent and not pending:
                await self._write(response, self.wire.opening())
            pending.append(piece)
            if piece.last or len(pending) == self.engine.config.faults.steps_per_chunk:
                await self._send_chunk(response, pending)
                pending = []
        self._finish()
        for data in self.wire.closing(self._result()):
            await response.write(data)
        await response.write_eof()
        return response

    async def _send_chunk(self, response: web.StreamResponse, pieces: list[Piece]) -> None:
        await self._suffer(len(self.sent_ns))
        words = tuple(word for piece in pieces for word in piece.words)
        before = sum(len(piece.words) for piece in self.sent)
        reason = self.stream.answer.finish_reason if pieces[-1].last else None
        data = self.wire.chunk(words, before, reason, len(self.sent) + len(pieces))
        if self.engine.config.faults.garbles(len(self.sent_ns)):
            data = data[: len(data) // 2] + b"\n\n"
        self.sent_ns.append(self.engine.clock())
        self.sent.extend(pieces)
        await response.write(data)

    async def _whole(self) -> web.StreamResponse:
        pieces = [piece async for piece in self.stream]
        faults = self.engine.config.faults
        if faults.resets(len(pieces)) or faults.stalls(len(pieces)):
            await self._suffer(len(pieces))
        self.sent = pieces
        self.sent_ns.append(self.engine.clock())
        self._finish()
        response = web.json_response(self.wire.whole(self._result()), dumps=_compact)
        await response.prepare(self.request)
        await response.write_eof()
        return response

    async def _suffer(self, chunks_sent: int) -> None:
        """Reset or stall, where this stream's time has come."""
        if self.engine.config.faults.resets(chunks_sent):
            self._reset()
            raise ConnectionCut
        if self.engine.config.faults.stalls(chunks_sent):
            await asyncio.Event().wait()  # until the client leaves or the server stops: both cancel us

    def _reset(self) -> None:
        """Close with a RST instead of a FIN: lingering for 0 seconds makes the kernel send one."""
        transport = self.request.transport
        if transport is not None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data:
            await response.write(data)

    def _finish(self) -> None:
        """All tokens have left: from here on nothing makes the request an aborted one."""
        self.complete = True
        self._tell_truth()

    def _tell_truth(self) -> None:
        if self.truth is not None and self.sent:
            self.truth.write(truth_of(self.stream, self.sent, self.sent_ns, complete=self.complete))

    def _result(self) -> Result:
        words = self.stream.answer.words
        return Result(
            words=words,
            finish_reason=self.stream.answer.finish_reason,
            outcomes=tuple(piece.outcome for piece in self.sent),
            reported_tokens=self.engine.config.faults.reported_tokens(len(words)),
            cached_tokens=self.stream.cached_tokens,
            timing=self.stream.timing,
        )


def _compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
