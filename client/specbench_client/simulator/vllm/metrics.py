"""vLLM's Prometheus page: its names, labels and ``_created`` gauges, of the figures the simulator has.

The speculative counters exist only on an engine that was asked to speculate; a drafter that never drafts leaves them
at 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.counters import Counters, Histogram
from specbench_client.simulator.engine import Engine

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
# A sample: extra labels and value.
Samples = list[tuple[dict[str, str], float]]


def render_metrics(engine: Engine) -> str:
    """Return the page in Prometheus' text format."""
    lines = [*_gauges(engine), *_totals(engine.counters), *_speculation(engine.counters), *_histograms(engine.counters)]
    return "\n".join(lines) + "\n"


def _gauges(engine: Engine) -> Iterator[str]:
    yield from _family(
        "num_requests_running", "gauge", "Number of requests in model execution batches.", [({}, engine.running)]
    )
    yield from _family(
        "num_requests_waiting", "gauge", "Number of requests waiting to be processed.", [({}, engine.waiting)]
    )
    room = engine.config.max_num_seqs * engine.config.max_model_len
    yield from _family(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", [({}, engine.kv_tokens / room)]
    )


def _totals(counters: Counters) -> Iterator[str]:
    created = counters.created_s
    prompt, cached = counters.prompt_tokens, counters.cached_tokens
    yield from _counter(
        "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", [({}, prompt)], created
    )
    yield from _counter(
        "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", [({}, cached)], created
    )
    yield from _counter("num_preemptions", "Cumulative number of preemption from the engine.", [({}, 0)], created)
    yield from _counter("prompt_tokens", "Number of prefill tokens processed.", [({}, prompt)], created)
    sources: Samples = [({"source": "local_compute"}, prompt - cached), ({"source": "local_cache_hit"}, cached)]
    yield from _counter("prompt_tokens_by_source", "Number of prompt tokens by source.", sources, created)
    yield from _counter(
        "prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [({}, cached)], created
    )
    generated: Samples = [({}, counters.output_tokens)]
    yield from _counter("generation_tokens", "Number of generation tokens processed.", generated, created)
    finished: Samples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    yield from _counter("request_success", "Count of successfully processed requests.", finished, created)


def _speculation(counters: Counters) -> Iterator[str]:
    if counters.accepted_by_position is None:
        return
    created = counters.created_s
    yield from _counter("spec_decode_num_drafts", "Number of spec decoding drafts.", [({}, counters.drafts)], created)
    yield from _counter("spec_decode_num_draft_tokens", "Number of draft tokens.", [({}, counters.drafted)], created)
    yield from _counter(
        "spec_decode_num_accepted_tokens", "Number of accepted tokens.", [({}, counters.accepted)], created
    )
    by_position: Samples = [({"position": str(i)}, n) for i, n in enumerate(counters.accepted_by_position)]
    yield from _counter(
        "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", by_position, created
    )


def _histograms(counters: Counters) -> Iterator[str]:
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
        yield from _histogram(name, f"Histogram of {meaning}.", histogram, counters.created_s)


def _histogram(name: str, meaning: str, histogram: Histogram, created: float) -> Iterator[str]:
    yield f"# HELP vllm:{name} {meaning}"
    yield f"# TYPE vllm:{name} histogram"
    seen = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        seen += count
        yield _sample(f"{name}_bucket", {"le": "+Inf" if bound == float("inf") else str(float(bound))}, seen)
    yield _sample(f"{name}_count", {}, seen)
    yield _sample(f"{name}_sum", {}, histogram.total)
    yield from _family(f"{name}_created", "gauge", meaning, [({}, created)])


def _counter(name: str, meaning: str, samples: Samples, created: float) -> Iterator[str]:
    yield from _family(f"{name}_total", "counter", meaning, samples)
    yield from _family(f"{name}_created", "gauge", meaning, [(labels, created) for labels, _ in samples])


def _family(name: str, kind: str, meaning: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP vllm:{name} {meaning}"
    yield f"# TYPE vllm:{name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    everything = {"engine": "0", "model_name": MODEL_NAME, **labels}
    inside = ",".join(f'{key}="{everything[key]}"' for key in sorted(everything))
    return f"vllm:{name}{{{inside}}} {float(value)!r}"
