"""Simulates one streamed response: the engine's outputs as its dialect formats them, with arrival times."""

from __future__ import annotations

from dataclasses import dataclass, field

from specbench_client.simulator import Faults
from specbench_client.simulator.dialect import ResponseFormat
from specbench_client.simulator.engine import StepOutput, TokenStream
from specbench_client.simulator.requests import SimulatedResponse
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import ReceivedBytes
from virtual_time.clock import VirtualClock
from virtual_time.noise import Network

END_TOGETHER = 0.3
"""Share of answers whose end (usage, [DONE]) arrives in the same read as the last chunk."""
IDLE_TIMEOUT_NS = 20_000_000_000
"""The client's timeout without received bytes."""
WRITE_NS = 20_000
"""Time between writing the last chunk and writing the end."""


@dataclass(frozen=True)
class TransportFaults:
    """Faults between client and engine other than the network: a proxy, a gateway, or a late client."""

    chunks_at_once: int = 1
    """Number of chunks that a proxy forwards in one write."""
    late_end_ns: int = 0
    """Delay by the proxy of everything after the last token."""
    dawdling_ns: int = 0
    """Delay before the client sends a request."""
    pause_ns: tuple[int, int] = (0, 0)
    """Start and end of the time in which the client sends nothing, since the launch began."""
    preamble: str = ""
    """Text that a gateway adds before every prompt."""
    silent_cache: bool = False
    """Whether the gateway removes the cached prompt tokens from usage."""

    def send_delay_ns(self, since_launch_ns: int) -> int:
        """Return how long the client delays a request that it should send now."""
        start_ns, end_ns = self.pause_ns
        paused_ns = end_ns - since_launch_ns if start_ns <= since_launch_ns < end_ns else 0
        return self.dawdling_ns + paused_ns


@dataclass
class VirtualResponse:
    """Collects the bytes that arrive; times are monotonic ns."""

    stream: TokenStream
    wire: ResponseFormat
    faults: Faults
    clock: VirtualClock
    network: Network
    between: TransportFaults
    arrivals: list[ReceivedBytes] = field(default_factory=list)
    ended_ns: int = 0
    _sent: list[StepOutput] = field(default_factory=list)
    _chunks: int = 0
    _words: int = 0
    _held: list[bytes] = field(default_factory=list)

    async def come(self) -> ErrorClass | None:
        """Read the response to its end; return how it failed, or None."""
        pending: list[StepOutput] = []
        async for piece in self.stream:
            if not self._sent and not pending:
                self._arrive(self.wire.opening())
            pending.append(piece)
            if piece.last or len(pending) == self.faults.steps_per_chunk:
                if failed := self._failed():
                    return failed
                self._chunk(pending)
                pending = []
        self._end()
        return None

    def _failed(self) -> ErrorClass | None:
        self.ended_ns = self.clock()
        if self.faults.resets(self._chunks):
            return ErrorClass.RESET
        if self.faults.stalls(self._chunks):
            self.ended_ns += IDLE_TIMEOUT_NS
            return ErrorClass.TIMEOUT
        return None

    def _chunk(self, pieces: list[StepOutput]) -> None:
        words = tuple(word for piece in pieces for word in piece.words)
        before, self._words = self._words, self._words + len(words)
        reason = self.stream.answer.finish_reason if pieces[-1].last else None
        data = self.wire.chunk(words, before, reason, len(self._sent) + len(pieces))
        if self.faults.garbles(self._chunks):
            data = data[: len(data) // 2] + b"\n\n"
        self._chunks += 1
        self._sent.extend(pieces)
        self._held.append(data)
        if pieces[-1].last or len(self._held) == self.between.chunks_at_once:
            self._arrive(b"".join(self._held))
            self._held = []

    def _end(self) -> None:
        closing = b"".join(self.wire.closing(self._result()))
        if not self.between.late_end_ns and self.network.rng.random() < END_TOGETHER:
            last = self.arrivals.pop()
            self.arrivals.append(ReceivedBytes(last.ns, last.data + closing))
        else:
            self._arrive(closing, later_ns=WRITE_NS + self.between.late_end_ns)
        self.ended_ns = self.arrivals[-1].ns

    def _arrive(self, data: bytes, later_ns: int = 0) -> None:
        """Record the arrival of bytes, never before bytes that were written earlier."""
        if data:
            ns = self.clock() + later_ns + self.network.delay_ns()
            self.arrivals.append(ReceivedBytes(max(ns, self.arrivals[-1].ns + 1 if self.arrivals else 0), data))

    def _result(self) -> SimulatedResponse:
        words = self.stream.answer.words
        return SimulatedResponse(
            words=words,
            finish_reason=self.stream.answer.finish_reason,
            outcomes=tuple(piece.outcome for piece in self._sent),
            reported_tokens=self.faults.reported_tokens(len(words)),
            cached_tokens=0 if self.between.silent_cache else self.stream.cached_tokens,
            timing=self.stream.timing,
        )
