"""One turn of a conversation: builds the request, sends it, parses the answer afterwards, and makes a record of it.

A failed request becomes a record with an error class, never an exception: it must be counted, and others continue.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from specbench_api.outcome.record import Record
from specbench_api.spec.engine import Engine
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.cooperative import CooperativeTask, run_to_completion
from specbench_client.dialects.dialect import BadAnswer, CompletionRequest, Dialect, EngineAnswer
from specbench_client.dialects.openai_stream import parse_json
from specbench_client.load.conversations import request_seed
from specbench_client.transport.error_messages import truncate
from specbench_client.transport.exchange import ErrorClass, HttpExchange, HttpRequest, Transport, UnparsedExchange
from specbench_client.transport.sse import MalformedStream, parse_events
from specbench_client.workload.chat_template.template import AppliedTemplate

_FIELDS_KNOWN_BEFORE = frozenset({
    "request_id", "prompt_id", "category", "conversation_id", "turn", "repeat", "phase", "stream_index", "intended_ns",
    "timestamp_source",
})  # fmt: skip
_RESULT_FIELDS = tuple(one.name for one in fields(Record) if one.name not in _FIELDS_KNOWN_BEFORE)


@dataclass(frozen=True, slots=True)
class RequestConfig:
    """The settings of all requests of a point: plain data that can be sent to a worker."""

    endpoint: str
    engine: Engine
    model: str
    sampling: Sampling
    output: Output
    repeat: int
    started_ns: int
    """The point's start (monotonic, absolute), the zero of the records' times."""
    drafting: bool
    """Whether the arm has a drafter."""
    request_prefix: str
    """Prefix of the point's request ids, `PREFIX-INDEX-TURN`, which makes them unique."""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    keep_text: bool = False
    template: AppliedTemplate | None = None
    """The chat template that the client applies to send token ids; None: messages are sent, the engine applies it."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens that an answer's text must contain."""
        return self.template.special_markers if self.template is not None else ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn to take.

    `intended_ns`: the intended time of sending (monotonic, absolute); `phase` may be set later.
    """

    conversation_index: int
    conversation_id: str
    prompt_id: str
    category: str | None
    turn: int
    messages: tuple[ChatMessage, ...]
    stream_index: int
    intended_ns: int
    phase: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The record, the text of the reply (None: failed), and when the exchange ended (monotonic, absolute)."""

    record: Record
    reply_text: str | None
    ended_ns: int


@dataclass(frozen=True, slots=True)
class HttpTurnClient:
    """Takes the turns of a point over HTTP: the transport, dialect and settings that they share."""

    transport: Transport
    dialect: Dialect
    request_config: RequestConfig

    async def take_turn(self, turn: Turn) -> TurnResult:
        """Take the turn and parse its answer at once. Never raises for a failure of the engine or the network."""
        return run_to_completion(self.read_result(turn, await self.exchange(self.build_request(turn))))

    def build_request(self, turn: Turn) -> HttpRequest:
        """Return the encoded request. It does not depend on the time of sending."""
        config = self.request_config
        seed = request_seed(config.sampling.seed, config.repeat, turn.conversation_id, turn.turn)
        messages = turn.messages if config.template is None else config.template.with_token_ids(turn.messages)
        completion = CompletionRequest(config.model, messages, config.sampling, config.output, seed, config.markers)
        path = self.dialect.path if completion.token_ids is None else self.dialect.tokens_path
        return HttpRequest(
            url=f"{config.endpoint.rstrip('/')}{path}",
            body=json.dumps({**self.dialect.body(completion), **config.extra_body}).encode(),
            headers={**config.headers, "X-Request-Id": _request_id(config, turn)},
        )

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """Send the request and receive its answer. Never raises for a failure of the engine or the network."""
        return await self.transport.exchange(request)

    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
        """Parse an answer in slices and return its record, whether it succeeded or failed."""
        exchange = yield from unread.read()
        record = _with_times(_blank_record(self.request_config, turn), exchange, self.request_config.started_ns)
        try:
            answer = yield from self._read_answer(exchange)
        except BadAnswer as bad:
            failed = replace(record, error_class=str(bad.error_class), error=truncate(str(bad)))
            return TurnResult(failed, None, exchange.ended_ns)
        return TurnResult(_with_answer(record, answer, exchange, self.request_config), answer.text, exchange.ended_ns)

    def _read_answer(self, exchange: HttpExchange) -> CooperativeTask[EngineAnswer]:
        """Parse the answer of an exchange with the dialect. Raises BadAnswer."""
        drafting = self.request_config.drafting
        if exchange.error_class is not None:
            raise BadAnswer(exchange.error or str(exchange.error_class), exchange.error_class)
        if not self.request_config.output.stream:
            body = b"".join(one.data for one in exchange.arrivals)
            return self.dialect.read_whole(parse_json(body, "the answer"), drafting=drafting)
        try:
            events = parse_events(exchange.arrivals)
        except MalformedStream as error:
            raise BadAnswer(str(error), ErrorClass.MALFORMED) from error
        return (yield from self.dialect.read(events, drafting=drafting))


def skipped_after(failed: TurnResult, turn: int) -> Record:
    """Return the record of a later turn of a conversation with a failed turn: it was never sent."""
    record = failed.record
    return replace(
        record,
        request_id=f"{record.request_id.rpartition('-')[0]}-{turn}",
        turn=turn,
        connect_ns=None,
        sent_ns=None,
        first_byte_ns=None,
        error_class=str(ErrorClass.SKIPPED_AFTER_ERROR),
        error=f"turn {record.turn} failed: {record.error_class}",
    )


def _request_id(request_config: RequestConfig, turn: Turn) -> str:
    return f"{request_config.request_prefix}-{turn.conversation_index:06d}-{turn.turn}"


def _blank_record(request_config: RequestConfig, turn: Turn) -> Record:
    """Return the record of a request before it is sent, with all result fields None."""
    figures = dict.fromkeys(_RESULT_FIELDS)
    return Record(
        request_id=_request_id(request_config, turn),
        prompt_id=turn.prompt_id,
        category=turn.category,
        conversation_id=turn.conversation_id,
        turn=turn.turn,
        repeat=request_config.repeat,
        phase=str(turn.phase),
        stream_index=turn.stream_index,
        intended_ns=turn.intended_ns - request_config.started_ns,
        timestamp_source="user",
        **figures,
    )


def _with_times(record: Record, exchange: HttpExchange, started_ns: int) -> Record:
    """Return the record with the times of its exchange, which a failed request has too."""

    def since(ns: int | None) -> int | None:
        return None if ns is None else ns - started_ns

    return replace(
        record,
        connect_ns=since(exchange.connect_ns),
        sent_ns=since(exchange.sent_ns),
        first_byte_ns=since(exchange.first_byte_ns),
        timestamp_source=exchange.timestamp_source,
    )


def _with_answer(record: Record, answer: EngineAnswer, exchange: HttpExchange, request_config: RequestConfig) -> Record:
    """Return the record with the fields of an answer.

    An answer that was not streamed ends with its last byte, and the time of its first token is unknown.
    """
    times = [chunk.ns - request_config.started_ns for chunk in answer.content]
    tokens = [chunk.tokens for chunk in answer.content if chunk.tokens is not None]
    acceptance = answer.acceptance
    output_text = answer.reasoning + answer.text
    return replace(
        record,
        first_token_ns=times[0] if times else None,
        last_token_ns=times[-1] if times else _unstreamed_end_ns(exchange, request_config),
        chunk_ns=times if request_config.output.stream else None,
        chunk_tokens=tokens if request_config.output.stream and len(tokens) == len(times) else None,
        chunk_coalesced=[chunk.coalesced for chunk in answer.content] if request_config.output.stream else None,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        output_tokens_client=answer.output_tokens_client,
        steps=acceptance.steps,
        draft_steps=acceptance.draft_steps,
        drafted_tokens=acceptance.drafted_tokens,
        accepted_tokens=acceptance.accepted_tokens,
        step_accepted=None if acceptance.step_accepted is None else list(acceptance.step_accepted),
        acceptance_source=None if acceptance.source is None else str(acceptance.source),
        cached_tokens=answer.cached_tokens,
        finish_reason=answer.finish_reason,
        output_sha256=hashlib.sha256(output_text.encode()).hexdigest(),
        output_text=output_text if request_config.keep_text else None,
        reasoning_tokens=answer.reasoning_tokens if request_config.output.stream else None,
    )


def _unstreamed_end_ns(exchange: HttpExchange, request_config: RequestConfig) -> int | None:
    return None if request_config.output.stream else exchange.ended_ns - request_config.started_ns
