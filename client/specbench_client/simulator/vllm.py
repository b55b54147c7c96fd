"""vLLM's HTTP API, from recordings of vLLM 0.32 and the source of 0.33: requests, streams and the Prometheus page."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from aiohttp import web

from specbench_client.openai_server_formats import (
    DONE,
    Histogram,
    MetricSamples,
    PrometheusExposition,
    StreamOptionsBody,
    error_object,
    speculation_metrics,
    sse_event,
    timing_metrics,
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
from specbench_client.simulator.engine import SimulatedEngine, SimulatorCounters
from specbench_client.simulator.errors import SimulatorBadRequest, SimulatorRequestError
from specbench_client.simulator.generated_text import render
from specbench_client.simulator.prefix_cache import BLOCK_TOKENS
from specbench_client.simulator.requests import (
    OpenAIRoute,
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

# The Prometheus page has vLLM's names and labels for the figures that the simulator has. Counters of speculation exist
# only with a drafter; they stay at 0 if it never drafts.

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


def render_metrics(engine: SimulatedEngine) -> web.Response:
    """Return the page in Prometheus' text format."""
    counters, room = engine.counters, engine.config.kv_room_tokens
    page = PrometheusExposition("vllm:", {"engine": "0", "model_name": MODEL_NAME})
    gauges: dict[str, tuple[str, float]] = {
        "num_requests_running": ("Number of requests in model execution batches.", engine.batch.running),
        "num_requests_waiting": ("Number of requests waiting to be processed.", engine.batch.waiting),
        "kv_cache_usage_perc": ("KV-cache usage. 1 means 100 percent usage.", engine.batch.kv_tokens / room),
    }
    return metrics_page(
        [
            *page.gauges(gauges),
            *_cache_config(engine),
            *page.counters(_totals(counters)),
            *page.counters(_speculation(counters)),
            *page.histograms(_histograms(counters)),
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


def _totals(counters: SimulatorCounters) -> dict[str, tuple[str, MetricSamples]]:
    prompt, cached = counters.prompt_tokens, counters.cached_tokens
    finished: MetricSamples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    return {
        "prefix_cache_queries": (
            "Prefix cache queries, in terms of number of queried tokens.",
            [({}, prompt)],
        ),
        "prefix_cache_hits": ("Prefix cache hits, in terms of number of cached tokens.", [({}, cached)]),
        "num_preemptions": ("Cumulative number of preemption from the engine.", [({}, 0)]),
        "prompt_tokens": ("Number of prefill tokens processed.", [({}, prompt)]),
        "prompt_tokens_by_source": (
            "Number of prompt tokens by source.",
            [({"source": "local_compute"}, prompt - cached), ({"source": "local_cache_hit"}, cached)],
        ),
        "prompt_tokens_cached": ("Number of cached prompt tokens (local + external).", [({}, cached)]),
        "generation_tokens": ("Number of generation tokens processed.", [({}, counters.output_tokens)]),
        "request_success": ("Count of successfully processed requests.", finished),
    }


def _speculation(counters: SimulatorCounters) -> dict[str, tuple[str, MetricSamples]]:
    if counters.accepted_by_position is None:
        return {}
    return {
        "spec_decode_num_drafts": ("Number of spec decoding drafts.", [({}, counters.drafts)]),
        "spec_decode_num_draft_tokens": ("Number of draft tokens.", [({}, counters.drafted)]),
        "spec_decode_num_accepted_tokens": ("Number of accepted tokens.", [({}, counters.accepted)]),
        "spec_decode_num_accepted_tokens_per_pos": (
            "Accepted tokens per draft position.",
            [({"position": str(position)}, count) for position, count in enumerate(counters.accepted_by_position)],
        ),
    }


def _histograms(counters: SimulatorCounters) -> dict[str, tuple[str, Histogram]]:
    return {
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "request_time_per_output_token_seconds": (
            "time_per_output_token_seconds per request",
            counters.per_token_s,
        ),
    }


# Responses have the keys and the order of a recorded vLLM 0.32 stream. One chunk is one step and may contain several
# tokens. The finish reason is in the last content chunk. The request's statistics (``metrics``) are in the usage chunk,
# which is sent only on request. Token ids are always null, because the simulator's tokens are words.


class VllmResponseFormat(ResponseFormat):
    """The parts that chat and completions share."""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not part of vLLM's chunks
        choice = self._choice(render(words, first=sent_before == 0), finish_reason)
        return sse_event({**self._head(), "choices": [choice], **self._running_usage(sent_before + len(words))})

    def closing(self, result: SimulatedResponse) -> list[bytes]:
        if not self._ask.delivery.include_usage:
            return [DONE]
        last = {
            **self._head(),
            "choices": [],
            "usage": self._usage(result),
            **self._signature(),
            "metrics": self._metrics(result),
        }
        return [sse_event(last), DONE]

    @abstractmethod
    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """Return the single choice of a chunk."""

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        """Return the usage so far, if every chunk must contain it."""
        if not self._ask.delivery.continuous_usage:
            return {}
        return {"usage": {**self._totals(completion_tokens), "completion_tokens_details": None}}

    def _usage(self, result: SimulatedResponse) -> dict[str, Any]:
        details = {"cached_tokens": result.cached_tokens, "created_cache_tokens": 0}
        return {**self._totals(result.reported_tokens), "prompt_tokens_details": details}

    def _signature(self) -> dict[str, str]:
        return {"system_fingerprint": self._config.fingerprint}

    def _metrics(self, result: SimulatedResponse) -> dict[str, Any]:
        """Return the request's timing, and its speculation statistics if they are enabled.

        Accepted tokens are counted before the last step is cut.
        """
        timing, tokens = result.timing, len(result.words)
        scheduled = timing.scheduled_ns or timing.received_ns
        first = timing.first_ns or scheduled
        metrics = timing_metrics(timing.received_ns, scheduled, first, timing.last_ns or first, tokens)
        drafter, detail = self._config.drafter, self._config.spec_detail
        if drafter.speculates and detail != "none":
            depth = drafter.num_speculative_tokens
            drafted, accepted = [one.drafted for one in result.outcomes], [one.accepted for one in result.outcomes]
            block = speculation_metrics(drafted, accepted, depth)
            if detail != "detailed":
                del block["per_step_accepted"], block["per_step_drafted"]
            metrics["speculative_decoding"] = block
        return metrics


class VllmChatFormat(VllmResponseFormat):
    """``/v1/chat/completions``."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        prompt = {"prompt_token_ids": None, "prompt_text": None}
        return sse_event({**self._head(), "choices": [choice], **self._running_usage(0), **prompt})

    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        text = render(result.words, first=True)
        called = self._calls(text)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if not called else "" if self._ask.form.named else None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [self._call(text)] if called else [],
            "reasoning": None,
        }
        finish = {"logprobs": None, "finish_reason": self._reason(result.finish_reason), "stop_reason": None}
        choice = {"index": 0, "message": message, **finish, "token_ids": None}
        return {
            **self._head(),
            "object": "chat.completion",
            "choices": [choice],
            "service_tier": None,
            **self._signature(),
            "usage": self._usage(result),
            "metrics": self._metrics(result),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        stop: dict[str, Any] = {"stop_reason": None} if finish_reason else {}
        delta = {"tool_calls": [self._call_delta(text)]} if self._calls(text) else {"content": text}
        reason = self._reason(finish_reason)
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, **stop, "token_ids": None}

    def _reason(self, finish_reason: str | None) -> str | None:
        """Return the finish reason, which is `stop` for a tool that the request named."""
        return finish_reason if self._ask.form.named else super()._reason(finish_reason)


class VllmCompletionFormat(VllmResponseFormat):
    """``/v1/completions``."""

    prefix = "cmpl"
    chunk_object = "text_completion"

    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        return {
            **self._head(),
            "choices": [self._choice(render(result.words, first=True), result.finish_reason)],
            "service_tier": None,
            **self._signature(),
            "usage": self._usage(result),
            "metrics": self._metrics(result),
            "kv_transfer_params": None,
        }

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }


class VllmServerDialect(ServerDialect):
    """vLLM's API."""

    formats = {OpenAIRoute.CHAT: VllmChatFormat, OpenAIRoute.COMPLETION: VllmCompletionFormat}

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
        """Parse a request; ignore unknown fields. Raises SimulatorRequestError as vLLM does."""
        parsed = validate_body(arrival.kind, parse_json_body(arrival))
        options = parsed.stream_options or StreamOptionsBody()
        if parsed.stream_options and not parsed.stream:
            raise SimulatorBadRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
        if parsed.model is not None and parsed.model not in self._config.model_names:
            message = f"The model `{parsed.model}` does not exist."
            raise SimulatorRequestError(message, HTTPStatus.NOT_FOUND, param="model")
        delivery = ResponseOptions(
            stream=bool(parsed.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        )
        return build_request(arrival, parsed, delivery, output_token_limit(parsed), openai_schema(parsed))

    def error(self, refused: SimulatorRequestError) -> dict[str, Any]:
        return error_object(refused.message, refused.kind, refused.status, refused.param)

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
