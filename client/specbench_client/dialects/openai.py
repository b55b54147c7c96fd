"""Dialect of plain OpenAI-compatible endpoints, of which nothing else is known.

They report neither the tokens of a chunk nor acceptance, and neither is guessed: a chunk may contain any number of
tokens. Token counts come from the usage, which is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench_api.spec.engine import EngineKind
from specbench_client.cooperative import CooperativeTask
from specbench_client.dialects.dialect import (
    AnswerChunk,
    CompletionRequest,
    EngineAnswer,
    EngineCounters,
    EngineIdentity,
    RequestAcceptance,
)
from specbench_client.dialects.engine_facts import MODEL_LIST_FACTS, VERSION_FACT, FactReading
from specbench_client.dialects.openai_stream import (
    ChatStream,
    StreamDelta,
    count_in,
    first_model,
    read_stream,
    read_unstreamed,
)
from specbench_client.transport.sse import SseEvent

OPENAI_FACTS: tuple[FactReading, ...] = (VERSION_FACT, *MODEL_LIST_FACTS)
"""Facts that several engines report in the same form."""


class OpenAiDialect:
    """See `Dialect`."""

    kind = EngineKind.EXTERNAL
    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = False
    health_path = "/v1/models"
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models",)
    readings = OPENAI_FACTS
    state_path: str | None = None

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """See `Dialect.body`. Fields that OpenAI's API does not have are not sent: some servers reject them."""
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            "model": request.model,
            **request.prompt,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "seed": request.seed,
            "max_tokens": request.output.max_tokens,
            **({"ignore_eos": True} if request.output.ignore_eos else {}),
            **(streamed if request.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[SseEvent], *, drafting: bool) -> CooperativeTask[EngineAnswer]:  # noqa: ARG002 -- not reported
        """See `Dialect.read`."""
        return _answer((yield from read_stream(events)))

    def read_whole(self, document: Any, *, drafting: bool) -> EngineAnswer:  # noqa: ARG002 -- not reported
        """See `Dialect.read_whole`."""
        return replace(_answer(read_unstreamed(document)), content=())

    def counters(self, metrics: str) -> EngineCounters:  # noqa: ARG002 -- see below
        """Return no counters: their names differ from server to server."""
        return EngineCounters()

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """See `Dialect.identity`."""
        return EngineIdentity(model=first_model(documents.get("/v1/models")))

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- not reported
        """See `Dialect.speculating`."""
        return None


def _may_have_tokens(delta: StreamDelta) -> bool:
    """Return whether a chunk may have tokens; one that only ends the answer may, as an end-of-sequence token."""
    return bool(delta.text or delta.reasoning or delta.finish_reason)


def _answer(stream: ChatStream) -> EngineAnswer:
    return EngineAnswer(
        text=stream.text,
        reasoning=stream.reasoning,
        content=tuple(
            AnswerChunk(delta.ns, None, delta.coalesced) for delta in stream.deltas if _may_have_tokens(delta)
        ),
        acceptance=RequestAcceptance(),
        input_tokens=count_in(stream.usage, "prompt_tokens"),
        output_tokens=count_in(stream.usage, "completion_tokens") or 0,
        output_tokens_client=None,
        cached_tokens=count_in(stream.usage, "prompt_tokens_details", "cached_tokens"),
        finish_reason=stream.finish_reason,
        fingerprint=stream.fingerprint,
    )
