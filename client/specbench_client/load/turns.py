"""One turn: ask, keep the times, read the answer afterwards, and make a record of it, whatever happened.

A failed request is a record with an error class, never an exception: it has to be counted, and its neighbours go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import orjson

from specbench_api.outcome.record import Record
from specbench_api.spec.engine import Engine
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import Message
from specbench_client.dialects.dialect import Answer, Ask, BadAnswer, Dialect
from specbench_client.load.conversations import request_seed
from specbench_client.slices import Slices, finish
from specbench_client.transport.exchange import ErrorClass, Exchange, HttpRequest, Transport, Unread
from specbench_client.transport.sse import MalformedStream, events
from specbench_client.transport.words import cut
from specbench_client.workload.chat_template.applied import AppliedTemplate

_KNOWN_BEFORE = frozenset({
    "request_id", "prompt_id", "category", "conversation_id", "turn", "repeat", "phase", "stream", "intended_ns",
    "clock",
})  # fmt: skip
_FIGURES = tuple(one.name for one in fields(Record) if one.name not in _KNOWN_BEFORE)


@dataclass(frozen=True, slots=True)
class Manner:
    """How every request of a point is asked: plain data, which can be sent to a worker."""

    endpoint: str
    engine: Engine
    model: str
    sampling: Sampling
    output: Output
    repeat: int
    started_ns: int
    """The point's start (monotonic, absolute), from which the records' times count."""
    drafting: bool
    """Whether the arm has a drafter."""
    request_prefix: str
    """Makes the point's request ids its own: `PREFIX-INDEX-TURN`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    keep_text: bool = False
    template: AppliedTemplate | None = None
    """What makes token ids of messages; None: messages are sent, and the engine does."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens that an answer's text must hold."""
        return self.template.special_markers if self.template is not None else ()


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What all turns of a point share."""

    transport: Transport
    dialect: Dialect
    manner: Manner


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn to take.

    `intended_ns`: when the schedule wanted it sent (monotonic, absolute); `phase` may be set later.
    """

    conversation_index: int
    conversation_id: str
    prompt_id: str
    category: str | None
    turn: int
    messages: tuple[Message, ...]
    stream: int
    intended_ns: int
    phase: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The record, the reply as it was said (None: failed), and when the exchange ended (monotonic, absolute)."""

    record: Record
    reply_text: str | None
    ended_ns: int


async def take_turn(context: TurnContext, turn: Turn) -> TurnResult:
    """Take the turn and read its answer at once. Never raises because of what the engine or the network does."""
    unread = await context.transport.exchange(prepare(context, turn))
    return finish(reading(context, turn, unread))


def prepare(context: TurnContext, turn: Turn) -> HttpRequest:
    """The request, ready to be sent. Nothing of it depends on when that will be."""
    dialect, manner = context.dialect, context.manner
    seed = request_seed(manner.sampling.seed, manner.repeat, turn.conversation_id, turn.turn)
    messages = turn.messages if manner.template is None else manner.template.asked(turn.messages)
    ask = Ask(manner.model, messages, manner.sampling, manner.output, seed, manner.markers)
    path = dialect.path if ask.token_ids is None else dialect.tokens_path
    return HttpRequest(
        url=f"{manner.endpoint.rstrip('/')}{path}",
        body=json.dumps({**dialect.body(ask), **manner.extra_body}).encode(),
        headers={**manner.headers, "X-Request-Id": _request_id(manner, turn)},
    )


def reading(context: TurnContext, turn: Turn, unread: Unread) -> Slices[TurnResult]:
    """Read what came, in slices: the record, whatever it was."""
    exchange = yield from unread.read()
    record = _sent(_blank(context.manner, turn), exchange, context.manner.started_ns)
    try:
        answer = yield from _answer(context, exchange)
    except BadAnswer as bad:
        failed = replace(record, error_class=str(bad.error_class), error=cut(str(bad)))
        return TurnResult(failed, None, exchange.ended_ns)
    return TurnResult(_answered(record, answer, exchange, context.manner), answer.text, exchange.ended_ns)


def skipped_after(failed: TurnResult, turn: int) -> Record:
    """The record of a later turn of a conversation whose turn failed: it was never sent."""
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


def _request_id(manner: Manner, turn: Turn) -> str:
    return f"{manner.request_prefix}-{turn.conversation_index:06d}-{turn.turn}"


def _answer(context: TurnContext, exchange: Exchange) -> Slices[Answer]:
    """Raises BadAnswer."""
    if exchange.error_class is not None:
        raise BadAnswer(exchange.error or str(exchange.error_class), exchange.error_class)
    if not context.manner.output.stream:
        return context.dialect.read_whole(_json(exchange), drafting=context.manner.drafting)
    try:
        came = events(exchange.arrivals)
    except MalformedStream as error:
        raise BadAnswer(str(error), ErrorClass.MALFORMED) from error
    return (yield from context.dialect.read(came, drafting=context.manner.drafting))


def _json(exchange: Exchange) -> Any:
    body = b"".join(one.data for one in exchange.arrivals)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadAnswer(f"the answer is no JSON: {cut(body.decode(errors='replace'))}", ErrorClass.MALFORMED) from error


def _blank(manner: Manner, turn: Turn) -> Record:
    """The record of a request of which nothing is known yet: every figure is missing."""
    figures = dict.fromkeys(_FIGURES)
    return Record(
        request_id=_request_id(manner, turn),
        prompt_id=turn.prompt_id,
        category=turn.category,
        conversation_id=turn.conversation_id,
        turn=turn.turn,
        repeat=manner.repeat,
        phase=str(turn.phase),
        stream=turn.stream,
        intended_ns=turn.intended_ns - manner.started_ns,
        clock="user",
        **figures,
    )


def _sent(record: Record, exchange: Exchange, started_ns: int) -> Record:
    """With the exchange's own times, which a failed request has too."""

    def since(ns: int | None) -> int | None:
        return None if ns is None else ns - started_ns

    return replace(
        record,
        connect_ns=since(exchange.connect_ns),
        sent_ns=since(exchange.sent_ns),
        first_byte_ns=since(exchange.first_byte_ns),
        clock=exchange.clock,
    )


def _answered(record: Record, answer: Answer, exchange: Exchange, manner: Manner) -> Record:
    """An answer that was not streamed ends with its last byte, and nobody saw when its first token came."""
    times = [chunk.ns - manner.started_ns for chunk in answer.content]
    tokens = [chunk.tokens for chunk in answer.content if chunk.tokens is not None]
    acceptance = answer.acceptance
    said = answer.reasoning + answer.text
    return replace(
        record,
        first_token_ns=times[0] if times else None,
        last_token_ns=times[-1] if times else _ended(exchange, manner),
        chunk_ns=times if manner.output.stream else None,
        chunk_tokens=tokens if manner.output.stream and len(tokens) == len(times) else None,
        chunk_gathered=[chunk.gathered for chunk in answer.content] if manner.output.stream else None,
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
        output_sha256=hashlib.sha256(said.encode()).hexdigest(),
        output_text=said if manner.keep_text else None,
        thought_tokens=answer.thought_tokens if manner.output.stream else None,
    )


def _ended(exchange: Exchange, manner: Manner) -> int | None:
    return None if manner.output.stream else exchange.ended_ns - manner.started_ns
