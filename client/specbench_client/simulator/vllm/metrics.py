"""vLLM's Prometheus page: its names, labels and ``_created`` gauges, of the figures the simulator has.

The speculative counters exist only on an engine that was asked to speculate; a drafter that never drafts leaves them
at 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.counters import Counters
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.exposition import Exposition, Samples, page

BLOCK_TOKENS = 16
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


def render_metrics(engine: Engine) -> bytes:
    """Return the page in Prometheus' text format."""
    counters = engine.counters
    said = Exposition("vllm:", {"engine": "0", "model_name": MODEL_NAME}, counters.created_s)
    return page(
        [
            *_gauges(said, engine),
            *_cache_config(engine),
            *_totals(said, counters),
            *_speculation(said, counters),
            *_histograms(said, counters),
        ]
    )


def _gauges(said: Exposition, engine: Engine) -> Iterator[str]:
    yield from said.family(
        "num_requests_running", "gauge", "Number of requests in model execution batches.", [({}, engine.running)]
    )
    yield from said.family(
        "num_requests_waiting", "gauge", "Number of requests waiting to be processed.", [({}, engine.waiting)]
    )
    room = engine.config.max_num_seqs * engine.config.max_model_len
    yield from said.family(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", [({}, engine.kv_tokens / room)]
    )


def _cache_config(engine: Engine) -> Iterator[str]:
    """The cache that it pretends to have: room for every request at its full length. It keeps no prompt."""
    room = engine.config.max_num_seqs * engine.config.max_model_len
    told = {
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": "auto",
        "enable_prefix_caching": "False",
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(room),
        "num_gpu_blocks": str(room // BLOCK_TOKENS),
    }
    said = Exposition("vllm:", {"engine": "0"})  # it has no model's name in vLLM either
    yield from said.family("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", [(told, 1)])


def _totals(said: Exposition, counters: Counters) -> Iterator[str]:
    prompt, cached = counters.prompt_tokens, counters.cached_tokens
    yield from said.counter(
        "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", [({}, prompt)]
    )
    yield from said.counter(
        "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", [({}, cached)]
    )
    yield from said.counter("num_preemptions", "Cumulative number of preemption from the engine.", [({}, 0)])
    yield from said.counter("prompt_tokens", "Number of prefill tokens processed.", [({}, prompt)])
    sources: Samples = [({"source": "local_compute"}, prompt - cached), ({"source": "local_cache_hit"}, cached)]
    yield from said.counter("prompt_tokens_by_source", "Number of prompt tokens by source.", sources)
    yield from said.counter(
        "prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [({}, cached)]
    )
    generated: Samples = [({}, counters.output_tokens)]
    yield from said.counter("generation_tokens", "Number of generation tokens processed.", generated)
    finished: Samples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    yield from said.counter("request_success", "Count of successfully processed requests.", finished)


def _speculation(said: Exposition, counters: Counters) -> Iterator[str]:
    if counters.accepted_by_position is None:
        return
    yield from said.counter("spec_decode_num_drafts", "Number of spec decoding drafts.", [({}, counters.drafts)])
    yield from said.counter("spec_decode_num_draft_tokens", "Number of draft tokens.", [({}, counters.drafted)])
    yield from said.counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", [({}, counters.accepted)])
    by_position: Samples = [({"position": str(i)}, n) for i, n in enumerate(counters.accepted_by_position)]
    yield from said.counter(
        "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", by_position
    )


def _histograms(said: Exposition, counters: Counters) -> Iterator[str]:
    named = {
        "iteration_tokens_total": ("number of tokens per engine_step", counters.step_tokens),
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "inter_token_latency_seconds": ("inter-token latency in seconds", counters.between_steps_s),
        "request_time_per_output_token_seconds": ("time_per_output_token_seconds per request", counters.per_token_s),
        "e2e_request_latency_seconds": ("e2e request latency in seconds", counters.request_s),
        "request_queue_time_seconds": ("time spent in WAITING phase for request", counters.queue_s),
        "request_prompt_tokens": ("number of prefill tokens processed", counters.request_prompt_tokens),
        "request_generation_tokens": ("number of generation tokens processed", counters.request_output_tokens),
    }
    for name, (meaning, histogram) in named.items():
        yield from said.histogram(name, f"Histogram of {meaning}.", histogram)
