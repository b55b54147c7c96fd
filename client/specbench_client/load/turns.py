"""One turn of a conversation: its request as it is sent, and the record of its answer.

A failed request becomes a record with an error class, never an exception: it must be counted, and others continue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from specbench_api.spec.engine import Engine, PromptCache, route_url
from specbench_api.spec.workload import TOKEN_LIMIT, Answers, Output, Sampling, ThinkTime, renames_token_limit
from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import CooperativeTask, run_to_completion
from specbench_client.dialects.dialect import CompletionRequest, Dialect, with_extra_fields
from specbench_client.dialects.engine_answer import BadAnswer, EngineAnswer
from specbench_client.dialects.openai_stream import parse_document
from specbench_client.documents.record import AnswerFlaw, Record, RecordPhase, answer_digest
from specbench_client.known_secrets import without_known_secrets
from specbench_client.load.answer_rules import flaw_of, unmet_demand
from specbench_client.load.conversations import Conversation, request_seed
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import (
    ADDRESS_REMEDY,
    MAX_ERROR_BODY_BYTES,
    compression_error,
    replay_error,
    truncate,
)
from specbench_client.transport.exchange import HttpExchange, HttpRequest, Transport, UnparsedExchange
from specbench_client.transport.retry_after import retry_after_s
from specbench_client.transport.sse import MalformedStream, NotAnEventStream, parse_events
from specbench_client.workload.chat_template.reasoning import SplitAnswer, split_channels
from specbench_client.workload.chat_template.template import AppliedTemplate

_MAX_CONTENT_TYPE_CHARS = 80
_NOT_STREAMED = "a stream was requested, but the answer was not streamed: measure without streams (output.stream)"
_STREAMED = "no stream was requested (output.stream), but the answer was streamed: measure this server with streams"
_MISSING = {field.name: None for field in fields(Record) if field.default is MISSING}
"""The fields of a record that have no default, missing."""


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
    counts_drafts: bool = True
    """False: the engine does not count the draft tokens that were verified, so the records have none."""
    keep_text: bool = False
    prompt_cache: PromptCache = PromptCache.DISABLED
    think_time: ThinkTime | None = None
    answers: Answers | None = None
    """What the answers are checked for."""
    template: AppliedTemplate | None = None
    """The chat template that the client applies to send token ids; None: messages are sent, the engine applies it."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens that an answer's text must contain."""
        return self.template.special_markers if self.template is not None else ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation. Stream, intended time and phase are placeholders until it is sent.

    `messages`: all messages of its request. `intended_ns`: the intended time of sending (monotonic, absolute).
    """

    conversation: Conversation
    number: int
    messages: tuple[ChatMessage, ...]
    stream_index: int = 0
    intended_ns: int = 0
    phase: RecordPhase = RecordPhase.STEADY

    @property
    def expected(self) -> str | None:
        """The expected answer, see `extract_answer`; None: it is not compared."""
        prompt = self.conversation.prompt
        return prompt.expected if self.number == len(prompt.turns) - 1 else None


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The record, the text of the reply (None: failed), and when the exchange ended (monotonic, absolute).

    `unjudged`: the answer if it must still be judged against a schema, see `judge_parent`; the record is not judged.
    """

    record: Record
    reply_text: str | None
    ended_ns: int
    unjudged: EngineAnswer | None = None
    retry_after_s: float | None = None
    """How long a server that refused the request asks to wait."""
    served_by: str | None = None
    """See `EngineAnswer`."""


@dataclass(frozen=True)
class TurnClient:
    """Takes the turns of a point over HTTP: the transport, dialect and settings that they share."""

    transport: Transport
    dialect: Dialect
    request_config: RequestConfig

    async def take_turn(self, turn: Turn) -> TurnResult:
        """Take the turn and parse its answer at once. Never raises for a failure of the engine or the network."""
        return run_to_completion(self.read_result(turn, await self.exchange(self.build_request(turn))))

    def build_request(self, turn: Turn) -> HttpRequest:
        """Return the encoded request, which does not depend on the time of sending.

        The transport adds the headers that HTTP needs, such as Content-Length, unless the request has them already.
        """
        config, conversation = self.request_config, turn.conversation
        seed = request_seed(config.sampling.seed, config.repeat, conversation.id, turn.number)
        messages = turn.messages if config.template is None else config.template.with_token_ids(turn.messages)
        output = config.output
        if conversation.prompt.output_tokens is not None:
            longer = {"max_tokens": conversation.prompt.output_tokens, "ignore_eos": True}
            output = output.model_copy(update=longer)
        may_reuse = config.prompt_cache is PromptCache.AS_SERVED
        completion = CompletionRequest(
            config.model, messages, config.sampling, output, seed, config.markers, may_reuse, config.answers
        )
        path = self.dialect.path if completion.token_ids is None else self.dialect.tokens_path
        return HttpRequest(
            url=route_url(config.endpoint, path),
            body=json.dumps(with_extra_fields(self.dialect.body(completion), config.extra_body)).encode(),
            headers={**config.headers, "X-Request-Id": _request_id(config, turn)},
        )

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """Send the request and receive its answer. Never raises for a failure of the engine or the network."""
        return await self.transport.exchange(request)

    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
        """Parse an answer in slices and return its record, whether it succeeded or failed."""
        config, exchange = self.request_config, unread.read()
        end = {"ended_ns": unread.ended_ns - config.started_ns}
        yield
        try:
            answer = yield from _read_answer(config, self.dialect, exchange, _token_limit(config, turn))
        except BadAnswer as bad:
            error = {"error_class": str(bad.error_class), "error": truncate(str(bad)), **end}
            record = _record(config, turn, exchange, error)
            return TurnResult(record, None, exchange.ended_ns, retry_after_s=retry_after_s(exchange.headers))
        flaw, unjudged = _judge(config, turn, answer)
        fields_of_answer = _answer_fields(answer, exchange, config)
        judgement = {"flaw": None if flaw is None else str(flaw), "judged": unjudged is None}
        record = _record(config, turn, exchange, fields_of_answer | judgement | end)
        return TurnResult(record, answer.text, exchange.ended_ns, unjudged, served_by=answer.served_by)


def _request_id(config: RequestConfig, turn: Turn) -> str:
    """Return the id of a turn's request, which is a header of the request and a field of its record."""
    return f"{config.request_prefix}-{turn.conversation.index:06d}-{turn.number}"


def split_reply(template: AppliedTemplate | None, messages: tuple[ChatMessage, ...], text: str) -> SplitAnswer:
    """Split the text of an answer to these messages into reasoning and final text."""
    return split_channels(text) if template is None else template.split_answer(messages, text)


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


def _token_limit(config: RequestConfig, turn: Turn) -> int | None:
    """Return the most tokens that the answer may have; None if no limit is sent."""
    if TOKEN_LIMIT in config.extra_body and not renames_token_limit(config.extra_body):
        return None
    return turn.conversation.prompt.output_tokens or config.output.max_tokens


def _read_answer(
    config: RequestConfig, dialect: Dialect, exchange: HttpExchange, max_tokens: int | None
) -> CooperativeTask[EngineAnswer]:
    """Parse the answer of an exchange with the dialect. Raises BadAnswer."""
    if exchange.error_class is not None:
        raise BadAnswer(exchange.error or str(exchange.error_class), exchange.error_class)
    unusable = compression_error(exchange.headers) or replay_error(exchange.headers)
    if unusable is not None:
        raise BadAnswer(unusable, ErrorClass.MALFORMED)
    if not config.output.stream:
        return _read_whole(config, dialect, exchange, max_tokens)
    try:
        events = parse_events(exchange.arrivals)
    except NotAnEventStream as error:
        content_type = truncate(exchange.headers.get("content-type", "none"), _MAX_CONTENT_TYPE_CHARS)
        if content_type.lower().startswith("application/json"):
            _read_whole(config, dialect, exchange, max_tokens)  # Raises the error that it may contain.
            raise BadAnswer(_NOT_STREAMED, ErrorClass.MALFORMED) from error
        message = f"the answer is not an event stream (Content-Type: {content_type}): {error}: {ADDRESS_REMEDY}"
        raise BadAnswer(message, ErrorClass.MALFORMED) from error
    except MalformedStream as error:
        raise BadAnswer(str(error), ErrorClass.MALFORMED) from error
    yield
    predicted = bool(config.extra_body.get("prediction"))
    return (yield from dialect.read(events, drafting=config.drafting, max_tokens=max_tokens, predicted=predicted))


def _read_whole(
    config: RequestConfig, dialect: Dialect, exchange: HttpExchange, max_tokens: int | None
) -> EngineAnswer:
    """Parse an answer that was not streamed. Raises BadAnswer."""
    body = b"".join(arrival.data for arrival in exchange.arrivals)
    if body.lstrip().startswith((b"data:", b"event:", b"id:", b":")):
        raise BadAnswer(
            f"{_STREAMED}: {truncate(body[:MAX_ERROR_BODY_BYTES].decode(errors='replace'))}", ErrorClass.MALFORMED
        )
    document = parse_document(body, "the answer")
    return dialect.read_whole(document, drafting=config.drafting, max_tokens=max_tokens)


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
        ended_ns=None,
        connection=None,
        error_class=str(ErrorClass.SKIPPED_AFTER_ERROR),
        error=f"turn {record.turn} failed: {record.error_class}",
    )


def _record(config: RequestConfig, turn: Turn, exchange: HttpExchange, results: Mapping[str, Any]) -> Record:
    """Return the record of a request, with the times of its exchange. `results`: its other fields that are known."""

    def since(ns: int | None) -> int | None:
        return None if ns is None else ns - config.started_ns

    known: dict[str, Any] = {
        "request_id": _request_id(config, turn),
        "prompt_id": turn.conversation.prompt.id,
        "category": turn.conversation.prompt.category,
        "conversation_id": turn.conversation.id,
        "turn": turn.number,
        "repeat": config.repeat,
        "phase": str(turn.phase),
        "stream_index": turn.stream_index,
        "intended_ns": turn.intended_ns - config.started_ns,
        "connect_ns": since(exchange.connect_ns),
        "sent_ns": since(exchange.sent_ns),
        "first_byte_ns": since(exchange.first_byte_ns),
        "timestamp_source": exchange.timestamp_source,
        "connection": exchange.connection,
        "max_tokens": turn.conversation.prompt.output_tokens,
    }
    return Record(**{**_MISSING, **known, **results})


def _answer_fields(answer: EngineAnswer, exchange: HttpExchange, request_config: RequestConfig) -> dict[str, Any]:
    """Return the fields of a record that its answer gives.

    The last token is the last text: a later chunk may have an end-of-sequence token. An answer that was not streamed
    ends with its last byte, and the time of its first token is unknown.
    """
    end_ns = answer.last_text_ns if request_config.output.stream else exchange.ended_ns
    times = [chunk.ns - request_config.started_ns for chunk in answer.content]
    tokens = [chunk.tokens for chunk in answer.content if chunk.tokens is not None]
    acceptance = answer.acceptance
    if not request_config.counts_drafts:
        acceptance = replace(acceptance, drafted_tokens=None, step_drafted=None)
    output_text = answer.reasoning + answer.text
    return {
        "first_token_ns": times[0] if times and end_ns is not None else None,
        "last_token_ns": None if end_ns is None else end_ns - request_config.started_ns,
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
        "finish_reason": without_known_secrets(answer.finish_reason),
        "output_sha256": answer_digest(output_text),
        "output_text": without_known_secrets(output_text) if request_config.keep_text else None,
        "reasoning_tokens": answer.reasoning_tokens if request_config.output.stream else None,
        "token_conflict": None if answer.token_conflict is None else str(answer.token_conflict),
    }
