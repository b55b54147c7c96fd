"""The record of one request: its times, and the fields that are parsed from its answer.

A failed request becomes a record with an error class, never an exception: it must be counted, and others continue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.engine_answer import BadAnswer, EngineAnswer
from specbench_client.dialects.openai_stream import parse_document
from specbench_client.documents.record import AnswerFlaw, Record
from specbench_client.load.answer_rules import flaw_of, unmet_demand
from specbench_client.load.request import RequestConfig, Turn, request_id, split_reply
from specbench_client.sliced_tasks import CooperativeTask
from specbench_client.transport.error_messages import ADDRESS_REMEDY, truncate
from specbench_client.transport.exchange import ErrorClass, HttpExchange, UnparsedExchange
from specbench_client.transport.sse import MalformedStream, NotAnEventStream, parse_events

_MAX_CONTENT_TYPE_CHARS = 80
_MISSING = {field.name: None for field in fields(Record) if field.default is MISSING}
"""The fields of a record that have no default, missing."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The record, the text of the reply (None: failed), and when the exchange ended (monotonic, absolute).

    `unjudged`: the answer if it must still be judged against a schema, see `judge_parent`; the record is not judged.
    """

    record: Record
    reply_text: str | None
    ended_ns: int
    unjudged: EngineAnswer | None = None


def read_result(
    config: RequestConfig, dialect: Dialect, turn: Turn, unread: UnparsedExchange
) -> CooperativeTask[TurnResult]:
    """Parse the answer to a turn's request in slices and return its record, whether it succeeded or failed."""
    exchange = unread.read()
    yield
    try:
        answer = yield from _read_answer(config, dialect, exchange)
    except BadAnswer as bad:
        error = {"error_class": str(bad.error_class), "error": truncate(str(bad))}
        return TurnResult(_record(config, turn, exchange, error), None, exchange.ended_ns)
    flaw, unjudged = _judge(config, turn, answer)
    fields_of_answer = _answer_fields(answer, exchange, config)
    judgement = {"flaw": None if flaw is None else str(flaw), "judged": unjudged is None}
    record = _record(config, turn, exchange, fields_of_answer | judgement)
    return TurnResult(record, answer.text, exchange.ended_ns, unjudged)


def _judge(config: RequestConfig, turn: Turn, answer: EngineAnswer) -> tuple[AnswerFlaw | None, EngineAnswer | None]:
    """Return what is wrong with an answer, and the answer without its chunks if it must be judged against a schema.

    Its reasoning may be part of its text: not all engines separate it.
    """
    split, called = split_reply(config.template, turn.messages, answer.text), bool(answer.tool_calls)
    reasoning = answer.reasoning + split.reasoning
    flaw = flaw_of(split.final, reasoning, answer.finish_reason, answer.output_tokens, called=called)
    if flaw is not None or config.answers is None:
        return flaw, None
    final = replace(answer, text=split.final, content=())
    if config.answers.has_schemas:
        return None, final
    return unmet_demand(config.answers, turn.expected, final), None


def _read_answer(config: RequestConfig, dialect: Dialect, exchange: HttpExchange) -> CooperativeTask[EngineAnswer]:
    """Parse the answer of an exchange with the dialect. Raises BadAnswer."""
    if exchange.error_class is not None:
        raise BadAnswer(exchange.error or str(exchange.error_class), exchange.error_class)
    if not config.output.stream:
        body = b"".join(one.data for one in exchange.arrivals)
        return dialect.read_whole(parse_document(body, "the answer"), drafting=config.drafting)
    try:
        events = parse_events(exchange.arrivals)
    except NotAnEventStream as error:
        content_type = truncate(exchange.headers.get("content-type", "none"), _MAX_CONTENT_TYPE_CHARS)
        message = f"the answer is not an event stream (Content-Type: {content_type}): {error}: {ADDRESS_REMEDY}"
        raise BadAnswer(message, ErrorClass.MALFORMED) from error
    except MalformedStream as error:
        raise BadAnswer(str(error), ErrorClass.MALFORMED) from error
    yield
    return (yield from dialect.read(events, drafting=config.drafting))


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
        connection=None,
        error_class=str(ErrorClass.SKIPPED_AFTER_ERROR),
        error=f"turn {record.turn} failed: {record.error_class}",
    )


def _record(config: RequestConfig, turn: Turn, exchange: HttpExchange, results: Mapping[str, Any]) -> Record:
    """Return the record of a request, with the times of its exchange. `results`: its other fields that are known."""

    def since(ns: int | None) -> int | None:
        return None if ns is None else ns - config.started_ns

    known: dict[str, Any] = {
        "request_id": request_id(config, turn),
        "prompt_id": turn.prompt_id,
        "category": turn.category,
        "conversation_id": turn.conversation_id,
        "turn": turn.turn,
        "repeat": config.repeat,
        "phase": str(turn.phase),
        "stream_index": turn.stream_index,
        "intended_ns": turn.intended_ns - config.started_ns,
        "connect_ns": since(exchange.connect_ns),
        "sent_ns": since(exchange.sent_ns),
        "first_byte_ns": since(exchange.first_byte_ns),
        "timestamp_source": exchange.timestamp_source,
        "connection": exchange.connection,
        "max_tokens": turn.output_tokens,
    }
    return Record(**{**_MISSING, **known, **results})


def _answer_fields(answer: EngineAnswer, exchange: HttpExchange, request_config: RequestConfig) -> dict[str, Any]:
    """Return the fields of a record that its answer gives.

    An answer that was not streamed ends with its last byte, and the time of its first token is unknown.
    """
    times = [chunk.ns - request_config.started_ns for chunk in answer.content]
    tokens = [chunk.tokens for chunk in answer.content if chunk.tokens is not None]
    acceptance = answer.acceptance
    if not request_config.counts_drafts:
        acceptance = replace(acceptance, drafted_tokens=None, step_drafted=None)
    output_text = answer.reasoning + answer.text
    return {
        "first_token_ns": times[0] if times else None,
        "last_token_ns": times[-1] if times else _unstreamed_end_ns(exchange, request_config),
        "chunk_ns": times if request_config.output.stream else None,
        "chunk_tokens": tokens if request_config.output.stream and len(tokens) == len(times) else None,
        "chunk_coalesced": [chunk.coalesced for chunk in answer.content] if request_config.output.stream else None,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "output_tokens_client": answer.output_tokens_client,
        "steps": acceptance.steps,
        "draft_steps": acceptance.draft_steps,
        "drafted_tokens": acceptance.drafted_tokens,
        "accepted_tokens": acceptance.accepted_tokens,
        "step_accepted": None if acceptance.step_accepted is None else list(acceptance.step_accepted),
        "step_drafted": None if acceptance.step_drafted is None else list(acceptance.step_drafted),
        "cut_tokens": acceptance.cut_tokens,
        "acceptance_source": None if acceptance.source is None else str(acceptance.source),
        "cached_tokens": answer.cached_tokens,
        "finish_reason": answer.finish_reason,
        "output_sha256": hashlib.sha256(output_text.encode()).hexdigest(),
        "output_text": output_text if request_config.keep_text else None,
        "reasoning_tokens": answer.reasoning_tokens if request_config.output.stream else None,
    }


def _unstreamed_end_ns(exchange: HttpExchange, request_config: RequestConfig) -> int | None:
    return None if request_config.output.stream else exchange.ended_ns - request_config.started_ns
