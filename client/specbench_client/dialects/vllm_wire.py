"""vLLM's wire, which the simulator speaks too: facts from vLLM 0.33.0's source and from recordings of 0.32.0.

Tokens of a chunk come from `continuous_usage_stats`, the only exact count a chunk carries; under speculation a chunk
holds all tokens of a step. Acceptance rides on the last chunk (`metrics.speculative_decoding`) where the server was
started with `--per-request-spec-decode-metrics`; it is counted before the answer is cut at its end (vLLM issue
56101), so up to k accepted tokens of the last step were never delivered. They are taken off here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_client.dialects.chunks import answer_of, content_by_usage, sizes_of, steps_by_chunk
from specbench_client.dialects.dialect import Acceptance, Answer, Ask, Chunk, EngineCounters, Identity
from specbench_client.dialects.facts.others import TRANSFORMERS
from specbench_client.dialects.facts.vllm import VLLM
from specbench_client.dialects.prometheus import count, totals
from specbench_client.dialects.stream import Stream, count_in, counts_in, first_model, read_stream, whole_answer
from specbench_client.slices import Slices
from specbench_client.transport.sse import Event

_SPEC = "vllm:spec_decode_num"
_STREAMED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


class VllmDialect:
    """See `Dialect`."""

    path = "/v1/chat/completions"
    tokens_path = "/v1/completions"
    health_path = "/health"
    metrics_path = "/metrics"
    identity_paths: tuple[str, ...] = ("/v1/models", "/version")
    state_path: str | None = None

    def __init__(self, kind: EngineKind) -> None:
        self.kind = kind
        self.keeps_special_tokens = kind is not EngineKind.TRANSFORMERS  # the research runtime always leaves them out
        self.readings = TRANSFORMERS if kind is EngineKind.TRANSFORMERS else VLLM

    def body(self, ask: Ask) -> dict[str, Any]:
        """Sampling is explicit: defaults come from the model's generation_config and differ from model to model."""
        return {
            "model": ask.model,
            **ask.prompt,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "seed": ask.seed,
            "max_tokens": ask.output.max_tokens,
            "ignore_eos": ask.output.ignore_eos,
            **({"skip_special_tokens": False} if ask.markers and self.keeps_special_tokens else {}),
            **(_STREAMED if ask.output.stream else {"stream": False}),
        }

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:
        """See `Dialect.read`."""
        stream = yield from read_stream(events)
        return _answer(stream, content_by_usage(stream), drafting=drafting)

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:
        """See `Dialect.read_whole`."""
        return replace(_answer(whole_answer(document), (), drafting=drafting), output_tokens_client=None)

    def counters(self, metrics: str) -> EngineCounters:
        """See `Dialect.counters`."""
        sums = totals(metrics)
        return EngineCounters(
            output_tokens=count(sums, "vllm:generation_tokens_total"),
            prompt_tokens=count(sums, "vllm:prompt_tokens_total"),
            cached_tokens=count(sums, "vllm:prompt_tokens_cached_total"),
            draft_steps=count(sums, f"{_SPEC}_drafts_total"),
            drafted_tokens=count(sums, f"{_SPEC}_draft_tokens_total"),
            accepted_tokens=count(sums, f"{_SPEC}_accepted_tokens_total"),
            started_s=sums.get("process_start_time_seconds"),
        )

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """See `Dialect.identity`."""
        version = documents.get("/version")
        told = version.get("version") if isinstance(version, dict) else None
        return Identity(
            model=first_model(documents.get("/v1/models")),
            version=told if isinstance(told, str) else None,
        )

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- it tells by its metrics alone
        """The counters of speculation exist on an engine with a drafter, and on no other."""
        sums = totals(metrics)
        return f"{_SPEC}_drafts_total" in sums if "vllm:generation_tokens_total" in sums else None


def _answer(stream: Stream, content: tuple[Chunk, ...], *, drafting: bool) -> Answer:
    output_tokens = count_in(stream.usage, "completion_tokens") or 0
    return answer_of(stream, content, _acceptance(stream, content, output_tokens, drafting=drafting))


def _acceptance(stream: Stream, content: tuple[Chunk, ...], output_tokens: int, *, drafting: bool) -> Acceptance:
    metrics = stream.last.get("metrics")
    block = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    counts = [count_in(block, name) for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")]
    draft_steps, drafted, accepted = counts
    if draft_steps is None or accepted is None:
        return steps_by_chunk(content, output_tokens, drafting=drafting)
    per_step = counts_in(block, "per_step_accepted")
    if per_step is not None and (len(per_step) != draft_steps or sum(per_step) != accepted):
        per_step = None  # it contradicts the engine's own sums
    undrafted_less_trim = output_tokens - 1 - (accepted + draft_steps)
    trim = _trim(content, per_step, undrafted_less_trim)
    most = per_step[-1] if per_step else accepted
    explained = trim <= most and output_tokens > 0
    return Acceptance(
        steps=draft_steps + undrafted_less_trim + trim if explained else None,
        draft_steps=draft_steps,
        drafted_tokens=drafted,
        accepted_tokens=accepted - trim if explained else accepted,
        step_accepted=(*per_step[:-1], per_step[-1] - trim) if per_step and explained else per_step,
        source=AcceptanceSource.PER_REQUEST if per_step is None else AcceptanceSource.PER_STEP,
    )


def _trim(content: Sequence[Chunk], per_step: Sequence[int] | None, undrafted_less_trim: int) -> int:
    """Accepted tokens of the last step that were cut off at the answer's end.

    output = 1 + Σ(accepted + 1) + undrafted - trim holds two unknowns. Where every step drafted, undrafted is 0. Else
    the chunks tell, as far as none were merged: each is one step, and the last one shows how much of the last step
    came. Where they contradict each other, the least trim that explains the count is taken.
    """
    least = max(0, -undrafted_less_trim)
    sizes = sizes_of(content)
    if not per_step or len(sizes) < 2 or sizes[0] != 1:
        return least
    by_chunks = len(sizes) - 1 - len(per_step) - undrafted_less_trim
    shown = per_step[-1] + 1 - sizes[-1]
    return by_chunks if by_chunks == shown and least <= by_chunks <= per_step[-1] else least
