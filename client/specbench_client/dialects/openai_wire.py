"""OpenAI's own wire and nothing else: for an endpoint of which no more is known.

It tells no tokens of a chunk and no acceptance, so neither is guessed: a chunk may hold any number of tokens. Tokens
are the usage's, which is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.dialect import Acceptance, Answer, Ask, Chunk, EngineCounters, Identity
from specbench_client.dialects.facts.others import OPENAI
from specbench_client.dialects.stream import Delta, Stream, count_in, first_model, read_stream, whole_answer
from specbench_client.slices import Slices
from specbench_client.transport.sse import Event


class OpenAiDialect:
    """See `Dialect`."""

    kind = EngineKind.EXTERNAL
    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    keeps_special_tokens = False
    health_path = "/v1/models"
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models",)
    readings = OPENAI
    state_path: str | None = None

    def body(self, ask: Ask) -> dict[str, Any]:
        """See `Dialect.body`; what OpenAI's API does not have is not sent, since some servers refuse it."""
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            "model": ask.model,
            **ask.prompt,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "seed": ask.seed,
            "max_tokens": ask.output.max_tokens,
            **({"ignore_eos": True} if ask.output.ignore_eos else {}),
            **(streamed if ask.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:  # noqa: ARG002 -- nothing tells
        """See `Dialect.read`."""
        return _answer((yield from read_stream(events)))

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:  # noqa: ARG002 -- nothing tells
        """See `Dialect.read_whole`."""
        return replace(_answer(whole_answer(document)), content=())

    def counters(self, metrics: str) -> EngineCounters:  # noqa: ARG002 -- names differ from server to server
        """None that every server has."""
        return EngineCounters()

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """See `Dialect.identity`."""
        return Identity(model=first_model(documents.get("/v1/models")))

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- nothing tells
        """See `Dialect.speculating`."""
        return None


def _brought(delta: Delta) -> bool:
    """Whether a chunk brought tokens. One that only ends the answer may: many servers count an end of sequence."""
    return bool(delta.text or delta.reasoning or delta.finish_reason)


def _answer(stream: Stream) -> Answer:
    return Answer(
        text=stream.text,
        reasoning=stream.reasoning,
        content=tuple(Chunk(delta.ns, None, delta.gathered) for delta in stream.deltas if _brought(delta)),
        acceptance=Acceptance(),
        input_tokens=count_in(stream.usage, "prompt_tokens"),
        output_tokens=count_in(stream.usage, "completion_tokens") or 0,
        output_tokens_client=None,
        cached_tokens=count_in(stream.usage, "prompt_tokens_details", "cached_tokens"),
        finish_reason=stream.finish_reason,
        fingerprint=stream.fingerprint,
    )
