"""Dialect of TensorRT-LLM, from sources of the 1.2 release candidates; no server of 1.2.1 was read or recorded.

The engine rejects requests with unknown fields, so only fields that both of its routes have are sent. The tokens of a
chunk come from `continuous_usage_stats`. The only value about drafting is the average number of tokens per iteration so
far (`avg_decoded_tokens_per_iter`); tokens / average is the number of iterations. The tokens are those that were
delivered, so nothing is truncated afterwards, and the accepted drafts are the tokens beyond one per step. The engine
reports neither which steps had drafts nor how many, so those and acceptance by position stay unknown.

Whether the prefill iteration is included is not known for 1.2.1 (in the samplers of the candidates it is). This makes a
difference of one step per answer, so it is not assumed but read from the first chunk: it has one token, and an average
of 1 if prefill is included and of 0 if not. If no chunk shows this (it was merged with the next one, or the answer was
not streamed), steps are missing. They are also missing if there are more chunks than iterations, a contradiction.

A token that ends the answer and is removed from it is still counted in the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.outcome.provenance import FactName
from specbench_client.dialects.dialect import CompletionRequest, CountedStreamDialect
from specbench_client.dialects.engine_answer import AnswerChunk, RequestAcceptance
from specbench_client.dialects.engine_facts import VERSION_FACT, FactReading
from specbench_client.dialects.openai_stream import (
    ChatStream,
    chunk_sizes,
    steps_by_chunk,
)
from specbench_client.dialects.recognition import EngineSignature
from specbench_client.documents.record import AcceptanceSource

TENSORRT_LLM_FACTS: tuple[FactReading, ...] = (
    VERSION_FACT,
    FactReading(FactName.MODEL, "/v1/models", ("data", 0, "id")),
)


TENSORRT_LLM_SIGNATURE = EngineSignature(
    engine="TensorRT-LLM",
    owner="tensorrt_llm",
    series=("trtllm_", "request_success_total{engine_type="),  # Releases differ in the prefix.
    metrics_path="/prometheus/metrics",
)


WHOLE = 0.01
"""Maximum distance of a number of iterations from an integer: the average has the seven digits of a 32-bit float."""
_MOST = 2**53
"""A larger number is not a valid average, and a float may not represent it."""
_AVERAGE = "avg_decoded_tokens_per_iter"
_ENDED = ("stop", "tool_calls")
"""Finish reasons of an answer that was not cut off."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """Tokens up to a chunk, and the iterations that generated them; None if tokens and average do not match."""

    tokens: int
    iterations: int | None


class TensorrtLlmDialect(CountedStreamDialect):
    """See `Dialect`. It has no counters: the engine counts requests, but neither tokens nor drafts.

    The iteration statistics at /metrics contain drafts, but are returned only once and limited to the last thousand
    iterations, so they cannot be summed.
    """

    keeps_special_tokens = True
    health_path = "/health"
    metrics_path = TENSORRT_LLM_SIGNATURE.metrics_path  # Reading /metrics clears its data, which others may need.
    signature: EngineSignature | None = TENSORRT_LLM_SIGNATURE
    identity_paths: tuple[str, ...] = ("/v1/models", "/version")
    readings = TENSORRT_LLM_FACTS
    own_fields = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """See `Dialect.body`. Only fields that both routes have are sent: unknown fields are rejected.

        `json_schema` is the bare schema. In OpenAI's form, name and schema would be taken for the schema itself, which
        then restricts nothing.
        """
        schema = request.answers.json_schema if request.answers is not None else None
        form = {} if schema is None else {"response_format": {"type": "json_schema", "json_schema": schema}}
        return {**super().body(request), **form}

    def _acceptance(
        self, stream: ChatStream, content: tuple[AnswerChunk, ...], output_tokens: int, *, drafting: bool
    ) -> RequestAcceptance:
        progress = _progress(stream)
        if not progress or not output_tokens:
            return steps_by_chunk(content, output_tokens, drafting=drafting)
        return _acceptance_of_iterations(progress, content, output_tokens, drafting=drafting)


def _progress(stream: ChatStream) -> list[_Progress]:
    """Return the progress at each chunk with tokens and an average."""
    progress = []
    for delta in stream.deltas:
        choices = delta.document.get("choices")
        average = _number(choices[0].get(_AVERAGE)) if choices else None
        if delta.tokens_so_far and average is not None:
            iterations = _iterations(delta.tokens_so_far, average, ended=delta.finish_reason in _ENDED)
            progress.append(_Progress(delta.tokens_so_far, iterations))
    return progress


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
    return float(value) if is_number else None


def _iterations(tokens: int, average: float, *, ended: bool) -> int | None:
    """Return tokens / average if it is close to an integer.

    An answer that was not cut off may lack the token that ended it, so tokens + 1 is tried as well.
    """
    if not average:
        return 0 if tokens == 1 else None
    for generated in (tokens, tokens + 1) if ended else (tokens,):
        iterations = generated / average
        if iterations < generated + WHOLE and abs(iterations - round(iterations)) <= WHOLE:
            return round(iterations)
    return None


def _acceptance_of_iterations(
    progress: Sequence[_Progress], content: Sequence[AnswerChunk], output_tokens: int, *, drafting: bool
) -> RequestAcceptance:
    end, sizes = progress[-1], chunk_sizes(content)
    prefill = _prefill_iterations(progress[0])
    steps = None if end.iterations is None or prefill is None else end.iterations - prefill
    if steps is None and not drafting:
        return steps_by_chunk(content, output_tokens, drafting=False)
    if steps is None or not len(sizes) - 1 <= steps < end.tokens:
        return RequestAcceptance()
    accepted = end.tokens - 1 - steps
    if not accepted and not drafting:
        return RequestAcceptance(steps=steps)
    return RequestAcceptance(steps=steps, accepted_tokens=accepted, source=AcceptanceSource.PER_REQUEST)


def _prefill_iterations(first: _Progress) -> int | None:
    """Return 1 if the prefill iteration is counted, 0 if it is not, None if the first chunk does not show it."""
    return first.iterations if first.tokens == 1 and first.iterations in (0, 1) else None
