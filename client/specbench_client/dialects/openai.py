"""Dialect of plain OpenAI-compatible endpoints, of which nothing else is known.

They report neither the tokens of a chunk nor acceptance, and neither is guessed: a chunk may contain any number of
tokens. Token counts come from the usage, which is requested. The dialects of the engines extend this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import CompletionRequest, EngineCounters, EngineIdentity
from specbench_client.dialects.engine_answer import AnswerChunk, EngineAnswer, RequestAcceptance
from specbench_client.dialects.engine_facts import MODEL_LIST_FACTS, VERSION_FACT, FactReading
from specbench_client.dialects.openai_stream import (
    ChatStream,
    build_answer,
    first_model,
    read_stream,
    read_unstreamed,
    text_in,
)
from specbench_client.dialects.recognition import EngineSignature
from specbench_client.sliced_tasks import CooperativeTask
from specbench_client.transport.sse import SseEvent

OPENAI_FACTS: tuple[FactReading, ...] = (VERSION_FACT, *MODEL_LIST_FACTS)
"""Facts that several engines report in the same form."""


class OpenAiDialect:
    """See `Dialect`. The dialects of engines with OpenAI's routes extend it by what they report besides."""

    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = False
    health_path = "/v1/models"
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models",)
    readings = OPENAI_FACTS
    state_path: str | None = None
    signature: EngineSignature | None = None

    def __init__(self, kind: EngineKind = EngineKind.EXTERNAL) -> None:
        self.kind = kind

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """See `Dialect.body`. Fields that OpenAI's API does not have are not sent: some servers reject them."""
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            **shared_fields(request),
            **({"ignore_eos": True} if request.output.ignore_eos else {}),
            **(streamed if request.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[SseEvent], *, drafting: bool) -> CooperativeTask[EngineAnswer]:
        """See `Dialect.read`."""
        stream = yield from read_stream(events)
        return self._answer(stream, self._content(stream), drafting=drafting)

    def read_whole(self, document: Any, *, drafting: bool) -> EngineAnswer:
        """See `Dialect.read_whole`."""
        return replace(self._answer(read_unstreamed(document), (), drafting=drafting), output_tokens_client=None)

    def counters(self, metrics: str) -> EngineCounters:  # noqa: ARG002 -- see below
        """Return no counters: their names differ from server to server."""
        return EngineCounters()

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """See `Dialect.identity`."""
        return EngineIdentity(first_model(documents.get("/v1/models")), text_in(documents.get("/version"), "version"))

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- not reported
        """See `Dialect.speculating`."""
        return None

    def _content(self, stream: ChatStream) -> tuple[AnswerChunk, ...]:
        """Return the chunks that may have tokens; one that only ends the answer may, as an end-of-sequence token."""
        may_have_tokens = (delta for delta in stream.deltas if delta.text or delta.reasoning or delta.finish_reason)
        return tuple(AnswerChunk(delta.ns, None, delta.coalesced) for delta in may_have_tokens)

    def _answer(self, stream: ChatStream, content: tuple[AnswerChunk, ...], *, drafting: bool) -> EngineAnswer:  # noqa: ARG002 -- not reported
        """Return the answer of a stream, whose chunks are `content`."""
        answer = build_answer(stream, content, RequestAcceptance())
        return replace(answer, output_tokens_client=None, reasoning_tokens=None)


def shared_fields(request: CompletionRequest) -> dict[str, Any]:
    """Return the fields of a body that all engines with OpenAI's routes have."""
    return {
        "model": request.model,
        **request.prompt,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "seed": request.seed,
        "max_tokens": request.output.max_tokens,
        **_form_fields(request),
    }


def _form_fields(request: CompletionRequest) -> dict[str, Any]:
    """Return the fields that prescribe the form of the answer; empty if it is any text."""
    answers = request.answers
    if answers is not None and answers.json_schema is not None:
        named = {"name": "answer", "schema": answers.json_schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if answers is not None and answers.tools is not None:
        return {"tools": answers.tools, "tool_choice": "auto"}
    return {}
