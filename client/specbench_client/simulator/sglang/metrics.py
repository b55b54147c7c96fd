"""SGLang's Prometheus page: its names and labels, of the figures the simulator has.

Verifications are counted, and only where there were any; drafts are not. The gauges of speculation are averages over
the last whole window of forty steps, overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.counters import Counters
from specbench_client.simulator.engine import Engine
from specbench_client.simulator.exposition import Exposition, Samples, page

DECODE_LOG_INTERVAL = 40
_ANSWERS = {"engine_type": "unified", "model_name": MODEL_NAME}
_SCHEDULER = {**_ANSWERS, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}


def render_metrics(engine: Engine) -> bytes:
    """Return the page in Prometheus' text format."""
    return page(
        [
            *_gauges(Exposition("sglang:", _SCHEDULER), engine),
            *_totals(Exposition("sglang:", _ANSWERS), engine.counters),
            *_histograms(Exposition("sglang:", _ANSWERS), engine.counters),
        ]
    )


def _gauges(said: Exposition, engine: Engine) -> Iterator[str]:
    yield from said.family("num_running_reqs", "gauge", "The number of running requests.", [({}, engine.running)])
    yield from said.family(
        "num_queue_reqs", "gauge", "The number of requests in the waiting queue.", [({}, engine.waiting)]
    )
    room = engine.config.max_num_seqs * engine.config.max_model_len
    yield from said.family("token_usage", "gauge", "The token usage.", [({}, engine.kv_tokens / room)])
    window = engine.iterations.window(DECODE_LOG_INTERVAL)
    drafting, drafted = sum(one.drafting for one in window), sum(one.drafted for one in window)
    correct, depth = sum(one.correct for one in window), engine.config.drafter.num_speculative_tokens
    length = 1 + correct / drafting if drafting else 0.0
    rate = correct / drafted if drafted else 0.0
    yield from said.family("spec_accept_length", "gauge", "The average acceptance length.", [({}, length)])
    yield from said.family("spec_accept_rate", "gauge", "The average acceptance rate.", [({}, rate)])
    verified = depth + 1 if depth else 0
    yield from said.family("spec_num_steps", "gauge", "The number of draft steps.", [({}, depth)])
    yield from said.family("spec_num_draft_tokens", "gauge", "The number of draft tokens.", [({}, verified)])


def _totals(said: Exposition, counters: Counters) -> Iterator[str]:
    streamed = {"is_streaming": "true"}
    prompt: Samples = [(streamed, counters.prompt_tokens)]
    generated: Samples = [(streamed, counters.output_tokens)]
    yield from said.counter("prompt_tokens", "Number of prefill tokens processed.", prompt)
    yield from said.counter("generation_tokens", "Number of generation tokens processed.", generated)
    cached: Samples = [({"cache_source": "device"}, counters.cached_tokens)]
    yield from said.counter("cached_tokens", "Number of cached prompt tokens.", cached)
    if counters.drafts:
        meaning = "Number of speculative decoding verification calls."
        yield from said.counter("spec_verify_calls", meaning, [({}, counters.drafts)])
    answered: Samples = [(streamed, sum(counters.finished.values()))]
    yield from said.counter("num_requests", "Number of requests processed.", answered)
    aborted: Samples = [({}, counters.finished["abort"])]
    yield from said.counter("num_aborted_requests", "Number of requests aborted.", aborted)


def _histograms(said: Exposition, counters: Counters) -> Iterator[str]:
    named = {
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "inter_token_latency_seconds": ("inter-token latency in seconds", counters.between_steps_s),
        "request_time_per_output_token_seconds": ("time per output token of a request", counters.per_token_s),
        "e2e_request_latency_seconds": ("end-to-end request latency in seconds", counters.request_s),
        "queue_time_seconds": ("queueing time in seconds", counters.queue_s),
        "prompt_tokens_histogram": ("prompt token length", counters.request_prompt_tokens),
        "generation_tokens_histogram": ("generation token length", counters.request_output_tokens),
    }
    for name, (meaning, histogram) in named.items():
        yield from said.histogram(name, f"Histogram of {meaning}.", histogram)
