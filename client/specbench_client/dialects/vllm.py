"""Dialect of vLLM, the simulator and the research runtime; from the source of vLLM 0.33.0 and recordings of 0.32.0.

The tokens of a chunk come from `continuous_usage_stats`, the only exact count in a chunk; under speculation a chunk
contains all tokens of a step. The last chunk contains the acceptance (`metrics.speculative_decoding`) if the server was
started with `--per-request-spec-decode-metrics`. It is counted before the answer is truncated at its end (vLLM issue
56101), so up to k accepted tokens of the last step were never delivered; this module subtracts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from specbench_api.outcome.provenance import FactName
from specbench_client.dialects.dialect import CountedStreamDialect
from specbench_client.dialects.engine_answer import AnswerChunk, RequestAcceptance
from specbench_client.dialects.engine_facts import (
    MODEL_LIST_FACTS,
    VERSION_FACT,
    FactReading,
    as_count,
    as_flag,
    of_object,
)
from specbench_client.dialects.metrics_page import label_values
from specbench_client.dialects.openai_stream import (
    ChatStream,
    chunk_sizes,
    count_in,
    counts_in,
    steps_by_chunk,
)
from specbench_client.dialects.recognition import EndpointPages, EngineSignature
from specbench_client.documents.record import AcceptanceSource

# `cache_config_info` is from a recording of 0.32.0. Arguments, number formats and kernels are on `/server_info`, which
# exists only in development mode, together with routes that nobody should be able to reach. Engines are not started in
# that mode, so these facts stay unknown.

CACHE_CONFIG_SERIES = "vllm:cache_config_info"


@of_object
def _tokens_of_blocks(cache: Mapping[str, Any]) -> JsonValue:
    """Return the tokens of all blocks, for releases without `kv_cache_size_tokens`."""
    blocks, size = (as_count(cache.get(name)) for name in ("num_gpu_blocks", "block_size"))
    return as_count(blocks * size) if isinstance(blocks, int) and isinstance(size, int) and blocks else None


@of_object
def _kv_bytes_per_token(cache: Mapping[str, Any]) -> JsonValue:
    memory, tokens = (as_count(cache.get(name)) for name in ("kv_cache_memory_bytes", "kv_cache_size_tokens"))
    return round(memory / tokens) if isinstance(memory, int) and isinstance(tokens, int) and tokens else None


VLLM_FACTS: tuple[FactReading, ...] = (
    VERSION_FACT,
    *MODEL_LIST_FACTS,
    FactReading(FactName.KV_CACHE_TOKENS, "/metrics", (CACHE_CONFIG_SERIES, "kv_cache_size_tokens"), as_count),
    FactReading(FactName.KV_CACHE_TOKENS, "/metrics", (CACHE_CONFIG_SERIES,), _tokens_of_blocks),
    FactReading(FactName.KV_CACHE_BYTES, "/metrics", (CACHE_CONFIG_SERIES, "kv_cache_memory_bytes"), as_count),
    FactReading(FactName.KV_BYTES_PER_TOKEN, "/metrics", (CACHE_CONFIG_SERIES,), _kv_bytes_per_token),
    FactReading(FactName.KV_CACHE_DTYPE, "/metrics", (CACHE_CONFIG_SERIES, "cache_dtype")),
    FactReading(FactName.PREFIX_CACHE, "/metrics", (CACHE_CONFIG_SERIES, "enable_prefix_caching"), as_flag),
)


TRANSFORMERS_FACTS_PAGE = "/facts"


TRANSFORMERS_FACTS: tuple[FactReading, ...] = (
    VERSION_FACT,
    FactReading(FactName.MAX_MODEL_LEN, "/v1/models", ("data", 0, "max_model_len"), as_count),
    *(
        FactReading(name, TRANSFORMERS_FACTS_PAGE, (name.value,))
        for name in (
            FactName.MODEL,
            FactName.DTYPE,
            FactName.QUANTIZATION,
            FactName.MAX_RUNNING_REQUESTS,
            FactName.PREFIX_CACHE,
            FactName.CUDA_GRAPHS,
            FactName.ATTENTION_BACKEND,
            FactName.TORCH,
            FactName.CUDA,
            FactName.GPU,
            FactName.DRAFTER_VOCABULARY,
            FactName.WEIGHTS_BYTES,
            FactName.DRAFTER_WEIGHTS_BYTES,
            FactName.KV_BYTES_PER_TOKEN,
            FactName.GPU_MEMORY_USED_BYTES,
        )
    ),
)


_SPEC = "vllm:spec_decode_num"
_SERVER_INFO = "/server_info"
_SPECULATIVE_CONFIG = re.compile(r"SpeculativeConfig\(method='([^']+)',.{0,1000}?num_spec_tokens=(\d+)\)", re.DOTALL)


def _drafter(pages: EndpointPages) -> str | None:
    """Return method and draft length from `/server_info`, or the length from the counters by position."""
    info = pages.documents.get(_SERVER_INFO)
    config = _SPECULATIVE_CONFIG.search(str(info.get("vllm_config"))) if isinstance(info, dict) else None
    if config:
        return f"{config[1]} k={config[2]}"
    positions = label_values(pages.metrics.get("/metrics") or "", f"{_SPEC}_accepted_tokens_per_pos_total", "position")
    return f"k={len(positions)}" if positions else None


VLLM_SIGNATURE = EngineSignature(
    engine="vLLM",
    owner="vllm",
    series=("vllm:",),
    keys={_SERVER_INFO: "vllm_config"},  # In development mode only.
    drafter=_drafter,
    report_acceptance="start vLLM with --per-request-spec-decode-metrics detailed",
)


class VllmDialect(CountedStreamDialect):
    """See `Dialect`."""

    health_path = "/health"
    identity_paths: tuple[str, ...] = ("/v1/models", "/version")
    signature: EngineSignature | None = VLLM_SIGNATURE
    own_fields = {"top_k": -1, "repetition_penalty": 1.0}
    keeps_special_tokens = True
    readings = VLLM_FACTS
    counter_series = {
        "output_tokens": "vllm:generation_tokens_total",
        "prompt_tokens": "vllm:prompt_tokens_total",
        "cached_tokens": "vllm:prompt_tokens_cached_total",
        "draft_steps": f"{_SPEC}_drafts_total",
        "drafted_tokens": f"{_SPEC}_draft_tokens_total",
        "accepted_tokens": f"{_SPEC}_accepted_tokens_total",
    }
    kv_usage_series = "vllm:kv_cache_usage_perc"

    def speculating(self, state: Any, metrics: str) -> bool | None:  # noqa: ARG002 -- only in the metrics
        """See `Dialect.speculating`. The counters of speculation exist only on an engine with a drafter.

        Releases before 0.9 do not count steps.
        """
        found = self.counters(metrics)
        is_drafting = (found.draft_steps, found.accepted_tokens) != (None, None)
        return None if found.output_tokens is None else is_drafting

    def _acceptance(
        self, stream: ChatStream, content: tuple[AnswerChunk, ...], output_tokens: int, *, drafting: bool
    ) -> RequestAcceptance:
        metrics = stream.last.get("metrics")
        block = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        counts = [count_in(block, name) for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")]
        draft_steps, drafted, accepted = counts
        if draft_steps is None or accepted is None:
            return steps_by_chunk(content, output_tokens, drafting=drafting)
        per_step = counts_in(block, "per_step_accepted")
        if per_step is not None and (len(per_step) != draft_steps or sum(per_step) != accepted):
            per_step = None  # The list contradicts the engine's own totals.
        undrafted_less_trim = output_tokens - 1 - (accepted + draft_steps)
        trim = _trim(content, per_step, undrafted_less_trim)
        most = per_step[-1] if per_step else accepted
        explained = trim <= most and output_tokens > 0
        cut = trim if explained else 0
        return RequestAcceptance(
            steps=draft_steps + undrafted_less_trim + trim if explained else None,
            draft_steps=draft_steps,
            drafted_tokens=drafted,
            accepted_tokens=accepted - cut,
            step_accepted=(*per_step[:-1], per_step[-1] - cut) if per_step else per_step,
            step_drafted=None if per_step is None else _drafted_by_step(block, per_step, drafted),
            source=AcceptanceSource.PER_REQUEST if per_step is None else AcceptanceSource.PER_STEP,
            cut_tokens=None if per_step is None else cut,
        )


class ResearchDialect(VllmDialect):
    """The dialect of the research runtime, which always removes special tokens."""

    keeps_special_tokens = False
    readings = TRANSFORMERS_FACTS


def _drafted_by_step(block: Any, accepted: Sequence[int], drafted: int | None) -> tuple[int, ...] | None:
    """Return the drafts of each step; None if the list contradicts the accepted drafts or the total."""
    listed = counts_in(block, "per_step_drafted")
    if listed is None or len(listed) != len(accepted) or sum(listed) != drafted:
        return None
    return None if any(kept > proposed for kept, proposed in zip(accepted, listed, strict=True)) else listed


def _trim(content: Sequence[AnswerChunk], per_step: Sequence[int] | None, undrafted_less_trim: int) -> int:
    """Return how many accepted tokens of the last step were truncated at the answer's end.

    output = 1 + Σ(accepted + 1) + undrafted - trim has two unknowns. If every step drafted, undrafted is 0. Otherwise
    the last chunk shows how much of the last step was delivered, unless that step drafted nothing: then the last longer
    chunk is the whole drafting step. Merged chunks are fewer than the steps. If the chunks contradict this, the
    smallest trim that explains the count is used.
    """
    least = max(0, -undrafted_less_trim)
    sizes = chunk_sizes(content)
    if not per_step or len(sizes) < 2 or sizes[0] != 1:
        return least
    whole = per_step[-1] + 1
    shown, by_chunks = whole - sizes[-1], len(sizes) - 1 - len(per_step) - undrafted_less_trim
    ends_undrafted = sizes[-1] == 1 and next((size for size in reversed(sizes) if size > 1), 0) == whole
    if ends_undrafted and by_chunks != shown:
        return least
    return shown if max(least, by_chunks) <= shown <= per_step[-1] else least
