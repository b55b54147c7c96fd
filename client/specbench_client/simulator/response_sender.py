"""Sends one response: chunks as steps end, injected stream faults, and the truth file's line before the last event."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field

from aiohttp import web

from specbench_client.simulator.dialect import ResponseFormat
from specbench_client.simulator.engine import SimulatedEngine, StepOutput, TokenStream
from specbench_client.simulator.requests import SimulatedResponse
from specbench_client.simulator.truth_file import TruthFile, truth_record


class ConnectionDropped(Exception):
    """The connection was reset on purpose, so no response can be sent."""


@dataclass(slots=True)
class ResponseSender:
    """Sends the response to one request."""

    engine: SimulatedEngine
    stream: TokenStream
    wire: ResponseFormat
    request: web.Request
    truth: TruthFile | None
    sent: list[StepOutput] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)
    complete: bool = False

    async def run(self) -> web.StreamResponse:
        """Send the response. In every case the engine drops the request and the truth file gets one line."""
        try:
            if self.stream.ask.delivery.stream:
                return await self._streamed()
            return await self._whole()
        finally:
            if not self.complete:
                self.engine.cancel(self.stream)
                self._write_truth()

    async def _streamed(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(self.request)
        pending: list[StepOutput] = []
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

    async def _send_chunk(self, response: web.StreamResponse, pieces: list[StepOutput]) -> None:
        await self._apply_stream_faults(len(self.sent_ns))
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
            await self._apply_stream_faults(len(pieces))
        self.sent = pieces
        self.sent_ns.append(self.engine.clock())
        self._finish()
        response = web.json_response(self.wire.whole(self._result()), dumps=_compact)
        await response.prepare(self.request)
        await response.write_eof()
        return response

    async def _apply_stream_faults(self, chunks_sent: int) -> None:
        """Reset or stall the stream if a fault is due."""
        if self.engine.config.faults.resets(chunks_sent):
            self._reset()
            raise ConnectionDropped
        if self.engine.config.faults.stalls(chunks_sent):
            await asyncio.Event().wait()  # until the client leaves or the server stops, which both cancel this task

    def _reset(self) -> None:
        """Close with a RST instead of a FIN, which the kernel sends for a linger time of 0."""
        transport = self.request.transport
        if transport is not None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data:
            await response.write(data)

    def _finish(self) -> None:
        """Mark the request as complete, since all tokens are sent and it can no longer be aborted."""
        self.complete = True
        self._write_truth()

    def _write_truth(self) -> None:
        if self.truth is not None and self.sent:
            self.truth.write(truth_record(self.stream, self.sent, self.sent_ns, complete=self.complete))

    def _result(self) -> SimulatedResponse:
        words = self.stream.answer.words
        return SimulatedResponse(
            words=words,
            finish_reason=self.stream.answer.finish_reason,
            outcomes=tuple(piece.outcome for piece in self.sent),
            reported_tokens=self.engine.config.faults.reported_tokens(len(words)),
            cached_tokens=self.stream.cached_tokens,
            timing=self.stream.timing,
        )


def _compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
