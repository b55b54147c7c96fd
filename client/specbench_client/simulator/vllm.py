"""vLLM's HTTP API, from recordings of vLLM 0.32 and the source of 0.33: requests, streams and the Prometheus page."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from aiohttp import web

from specbench_client.openai_server_formats import (
    PrometheusExposition,
    RejectedBody,
    RejectedRequest,
    StreamOptionsBody,
    VllmResponse,
    error_object,
    speculation_metrics,
    vllm_counters,
    vllm_gauges,
)
from specbench_client.simulator.config import MODEL_NAME, VERSION, SimulatorConfig
from specbench_client.simulator.dialect import (
    ResponseFormat,
    ServerDialect,
    health_page,
    json_page,
    metrics_page,
    models_page,
)
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.generated_text import render
from specbench_client.simulator.prefix_cache import BLOCK_TOKENS
from specbench_client.simulator.requests import (
    ReceivedRequest,
    ResponseOptions,
    SimulatedRequest,
    SimulatedResponse,
    build_request,
    openai_schema,
    output_token_limit,
    parse_json_body,
    validate_body,
)

# The Prometheus page has vLLM's names and labels for the figures that the simulator has.


def render_metrics(engine: SimulatedEngine) -> web.Response:
    """Return the page in Prometheus' text format."""
    counters, room = engine.counters, engine.config.kv_room_tokens
    page = PrometheusExposition("vllm:", {"engine": "0", "model_name": MODEL_NAME})
    gauges = vllm_gauges(engine.batch.running, engine.batch.waiting)
    gauges["kv_cache_usage_perc"] = ("KV-cache usage. 1 means 100 percent usage.", engine.batch.kv_tokens / room)
    histograms = {
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "request_time_per_output_token_seconds": ("time_per_output_token_seconds per request", counters.per_token_s),
    }
    return metrics_page(
        [
            *page.gauges(gauges),
            *_cache_config(engine),
            *page.counters(vllm_counters(counters)),
            *page.histograms(histograms),
        ]
    )


def _cache_config(engine: SimulatedEngine) -> Iterator[str]:
    """The cache that the simulator claims to have."""
    room = engine.config.kv_room_tokens
    cache = {
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(engine.config.prefix_cache_tokens > 0),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(room),
        "num_gpu_blocks": str(room // BLOCK_TOKENS),
    }
    page = PrometheusExposition("vllm:", {"engine": "0", **cache})  # without the model's name, as in vLLM
    return page.gauges({"cache_config_info": ("Information of the LLMEngine CacheConfig", 1)})


class VllmResponseFormat(ResponseFormat):
    """Both routes. Token ids are always null, because the simulator's tokens are words."""

    def __init__(self, config: SimulatorConfig, ask: SimulatedRequest) -> None:
        super().__init__(config, ask)
        self._response = VllmResponse(
            ask.request_id,
            MODEL_NAME,
            config.fingerprint,
            chat=ask.chat,
            prompt_tokens=ask.prompt.tokens,
            include_usage=ask.delivery.include_usage,
            continuous_usage=ask.delivery.continuous_usage,
        )

    def opening(self) -> bytes:
        return self._response.opening()

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not part of vLLM's chunks
        text, tokens = render(words, first=sent_before == 0), sent_before + len(words)
        delta = {"tool_calls": [self._call_delta(text)]} if self._calls(text) else None
        return self._response.chunk(text, tokens, self._reason(finish_reason), delta=delta)

    def closing(self, result: SimulatedResponse) -> list[bytes]:
        return self._response.closing(result.reported_tokens, result.cached_tokens, self._metrics(result))

    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        text = render(result.words, first=True)
        calls = [self._call(text)] if self._calls(text) else []
        content = text if not calls else "" if self._ask.form.named else None
        reason, tokens = self._reason(result.finish_reason), result.reported_tokens
        return self._response.whole(
            content, reason, tokens, result.cached_tokens, self._metrics(result), tool_calls=calls
        )

    def _reason(self, finish_reason: str | None) -> str | None:
        """Return the finish reason, which is `stop` for a tool that the request named."""
        return finish_reason if self._ask.form.named else super()._reason(finish_reason)

    def _metrics(self, result: SimulatedResponse) -> dict[str, Any]:
        """Return the request's timing, and its speculation statistics if they are enabled.

        Accepted tokens are counted before the last step is cut.
        """
        metrics = result.timing.metrics(len(result.words))
        drafter, detail = self._config.drafter, self._config.spec_detail
        if drafter.speculates and detail != "none":
            drafted, accepted = [one.drafted for one in result.outcomes], [one.accepted for one in result.outcomes]
            block = speculation_metrics(drafted, accepted, drafter.num_speculative_tokens)
            if detail != "detailed":
                del block["per_step_accepted"], block["per_step_drafted"]
            metrics["speculative_decoding"] = block
        return metrics


class VllmServerDialect(ServerDialect):
    """vLLM's API."""

    response_format = VllmResponseFormat

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.pages = {
            "/health": health_page,
            "/v1/models": _models,
            "/version": lambda _engine: json_page({"version": VERSION}),
            "/metrics": render_metrics,
        }
        self.commands = {"/reset_prefix_cache": reset_prefix_cache}

    def read(self, arrival: ReceivedRequest) -> SimulatedRequest:
        """Parse a request; ignore unknown fields. Raises RejectedRequest as vLLM does."""
        parsed = validate_body(arrival, parse_json_body(arrival))
        options = parsed.stream_options or StreamOptionsBody()
        if parsed.stream_options and not parsed.stream:
            raise RejectedBody("Stream options can only be defined when `stream=True`.", param="stream_options")
        if parsed.model is not None and parsed.model not in self._config.model_names:
            message = f"The model `{parsed.model}` does not exist."
            raise RejectedRequest(message, HTTPStatus.NOT_FOUND, param="model")
        delivery = ResponseOptions(
            stream=bool(parsed.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        )
        return build_request(arrival, parsed, delivery, output_token_limit(parsed), openai_schema(parsed))

    def error(self, refused: RejectedRequest) -> dict[str, Any]:
        return refused.vllm_body

    def lost(self, status: int, reason: str) -> dict[str, Any]:
        return error_object(reason, reason, status)


def reset_prefix_cache(engine: SimulatedEngine) -> web.Response:
    """Empty the prefix cache. vLLM also answers 200 if it could not, while requests hold blocks."""
    idle = engine.batch.idle
    if idle:
        engine.prefix_cache.empty()
    return json_page({"success": idle})


def _models(engine: SimulatedEngine) -> web.Response:
    about = {"root": "simulated", "parent": None, "max_model_len": engine.config.max_model_len}
    return models_page(engine, dict.fromkeys(engine.config.model_names, about))
