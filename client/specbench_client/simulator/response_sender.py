"""Sends one response: chunks as steps end, injected stream faults, and the truth file's line before the last event."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from aiohttp import web

from specbench_client.openai_server_formats import compact_json
from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.dialect import ResponseFormat
from specbench_client.simulator.engine import SimulatedEngine, StepOutput, TokenStream
from specbench_client.simulator.errors import ConfigError
from specbench_client.simulator.requests import SimulatedResponse


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
            if not self.sent and not pending and (opening := self.wire.opening()):
                await response.write(opening)
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
        response = web.json_response(self.wire.whole(self._result()), dumps=compact_json)
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


def truth_record(stream: TokenStream, sent: list[StepOutput], sent_ns: list[int], *, complete: bool) -> dict[str, Any]:
    """Return the line of a request. ``sent``: steps whose tokens were sent; ``sent_ns``: one timestamp per chunk."""
    steps = [piece.outcome for piece in sent if not piece.outcome.prefill]
    drafting = [step for step in steps if step.drafted]
    return {
        "request_id": stream.ask.request_id,
        "model": MODEL_NAME,
        "category": stream.category,
        "prompt_tokens": stream.sequence.prompt_tokens,
        "cached_tokens": stream.cached_tokens,
        "output_tokens": sum(len(piece.words) for piece in sent),
        "steps": len(steps),
        "step_accepted": [step.delivered_accepted for step in steps],
        "step_drafted": [step.drafted for step in steps],
        "draft_steps": len(drafting),
        "drafted_tokens": sum(step.drafted for step in steps),
        "accepted_tokens": sum(step.delivered_accepted for step in steps),
        "reported": {
            "draft_steps": len(drafting),
            "step_accepted": [step.accepted for step in drafting],
            "accepted_tokens": sum(step.accepted for step in drafting),
        },
        "text_faults": list(stream.answer.faults),
        "finish_reason": stream.answer.finish_reason if complete else "abort",
        "received_ns": stream.ask.received_ns,
        "scheduled_ns": stream.timing.scheduled_ns,
        "sent_ns": sent_ns,
    }


# The truth file has one JSON line per request with what the engine really did, for calibrating a client.
#
# ``step_accepted``, ``accepted_tokens`` and ``output_tokens`` count *delivered* tokens: ``output_tokens = 1 +
# sum(step_accepted + 1)`` holds exactly over all decode steps, with or without drafts. The counts that vLLM and SGLang
# *report* (before the last step is cut, without the steps that had no drafts) are under ``reported``. ``cached_tokens``
# of the prompt were not computed, and ``text_faults`` names the faults that changed the answer. An aborted
# request has the ``finish_reason`` ``abort`` and counts the tokens handed to the socket; a request without any token
# has no line. Times are this machine's monotonic clock in ns, taken just before sending, so no client can have received
# earlier.


class TruthFile:
    """Appends lines and flushes each one, so that a killed engine loses none and a restarted one keeps earlier ones."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIO = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"truth file {path}: {error}") from error

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
