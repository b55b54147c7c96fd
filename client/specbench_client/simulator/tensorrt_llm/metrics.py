"""TensorRT-LLM's two pages of metrics: statistics of its iterations, given out once, and five series for Prometheus.

Neither holds a count of tokens. The average of decoded tokens is 0 on each iteration, as on its PyTorch backend.
"""

from __future__ import annotations

from typing import Any

from specbench_client.simulator.engine import Engine
from specbench_client.simulator.exposition import Exposition, Samples, page
from specbench_client.simulator.iterations import Iteration

FINISH_REASONS = ("stop", "length")
_LABELS = {"engine_type": "undefined", "model_name": "undefined"}


def iteration_stats(engine: Engine) -> list[dict[str, Any]]:
    """Return the iterations since they were last asked for, at most the last thousand."""
    return [_stats(engine, one) for one in engine.iterations.drain()]


def render_metrics(engine: Engine) -> bytes:
    """Return the page in Prometheus' text format."""
    said, counters = Exposition("", _LABELS), engine.counters
    finished: Samples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    histograms = {
        "e2e_request_latency_seconds": ("end to end request latency in seconds", counters.request_s),
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "time_per_output_token_seconds": ("time per output token in seconds", counters.per_token_s),
        "request_queue_time_seconds": ("time spent in WAITING phase for request", counters.queue_s),
    }
    lines = [*said.counter("request_success", "Count of successfully processed requests.", finished)]
    for name, (meaning, histogram) in histograms.items():
        lines += said.histogram(name, f"Histogram of {meaning}.", histogram)
    return page(lines)


def _stats(engine: Engine, one: Iteration) -> dict[str, Any]:
    scheduled = one.prefilling + one.decoding
    room = engine.config.max_num_seqs * engine.config.max_model_len
    return {
        "iter": one.number,
        "iterLatencyMS": one.duration_ms,
        "numActiveRequests": scheduled,
        "numQueuedRequests": one.waiting,
        "maxNumActiveRequests": engine.config.max_num_seqs,
        "gpuMemUsage": 0,
        "kvCacheStats": {"maxNumBlocks": room, "usedNumBlocks": one.kv_tokens, "tokensPerBlock": 1},
        "inflightBatchingStats": {
            "numScheduledRequests": scheduled,
            "numContextRequests": one.prefilling,
            "numGenRequests": one.decoding,
            "numPausedRequests": 0,
            "numCtxTokens": one.prefill_tokens,
            "avgNumDecodedTokensPerIter": 0.0,
        },
        "specDecodingStats": {
            "numDraftTokens": one.drafted,
            "numAcceptedTokens": one.kept,
            "numRequestsWithDraftTokens": one.drafting,
            "acceptanceLength": 1 + one.kept / one.drafting if one.drafting else 0.0,
        },
    }
