"""vLLM's HTTP API, from recordings of vLLM 0.32 and the source of 0.33: requests, streams and the Prometheus page."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from specbench_client.openai_server_routes import (
    DONE,
    StreamOptionsBody,
    error_object,
    speculation_metrics,
    sse_event,
    timing_metrics,
)
from specbench_client.simulator.config import MODEL_NAME, VERSION, SimulatorConfig
from specbench_client.simulator.dialect import (
    OPENAI_PATHS,
    PROMETHEUS,
    HttpPage,
    OpenAiResponseFormat,
    PageRenderer,
    health_page,
    json_page,
)
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.errors import SimulatorBadRequest, SimulatorRequestError, SimulatorUnknownModel
from specbench_client.simulator.generated_text import render
from specbench_client.simulator.metrics import MetricSamples, PrometheusExposition, SimulatorCounters, exposition_page
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


def read_body(config: SimulatorConfig, arrival: ReceivedRequest) -> SimulatedRequest:
    """Parse a request; ignore unknown fields. Raises SimulatorBadRequest and SimulatorUnknownModel as vLLM does."""
    parsed = validate_body(arrival.kind, parse_json_body(arrival))
    options = parsed.stream_options or StreamOptionsBody()
    if parsed.stream_options and not parsed.stream:
        raise SimulatorBadRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
    if parsed.model is not None and parsed.model not in config.model_names:
        raise SimulatorUnknownModel(f"The model `{parsed.model}` does not exist.", param="model")
    delivery = ResponseOptions(
        stream=bool(parsed.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        token_ids=bool(parsed.return_token_ids),
    )
    return build_request(arrival, parsed, delivery, output_token_limit(parsed), openai_schema(parsed))


# The Prometheus page has vLLM's names, labels and ``_created`` gauges for the figures that the simulator has. Counters
# of speculation exist only with a drafter; they stay at 0 if it never drafts.

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


def render_metrics(engine: SimulatedEngine) -> bytes:
    """Return the page in Prometheus' text format."""
    counters = engine.counters
    page = PrometheusExposition("vllm:", {"engine": "0", "model_name": MODEL_NAME}, counters.created_s)
    return exposition_page(
        [
            *_gauges(page, engine),
            *_cache_config(engine),
            *_totals(page, counters),
            *_speculation(page, counters),
            *_histograms(page, counters),
        ]
    )


def _gauges(page: PrometheusExposition, engine: SimulatedEngine) -> Iterator[str]:
    yield from page.family(
        "num_requests_running", "gauge", "Number of requests in model execution batches.", [({}, engine.running)]
    )
    yield from page.family(
        "num_requests_waiting", "gauge", "Number of requests waiting to be processed.", [({}, engine.waiting)]
    )
    room = engine.config.kv_room_tokens
    yield from page.family(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", [({}, engine.kv_tokens / room)]
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
    page = PrometheusExposition("vllm:", {"engine": "0"})  # without the model's name, as in vLLM
    yield from page.family("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", [(cache, 1)])


def _totals(page: PrometheusExposition, counters: SimulatorCounters) -> Iterator[str]:
    prompt, cached = counters.prompt_tokens, counters.cached_tokens
    yield from page.counter(
        "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", [({}, prompt)]
    )
    yield from page.counter(
        "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", [({}, cached)]
    )
    yield from page.counter("num_preemptions", "Cumulative number of preemption from the engine.", [({}, 0)])
    yield from page.counter("prompt_tokens", "Number of prefill tokens processed.", [({}, prompt)])
    sources: MetricSamples = [({"source": "local_compute"}, prompt - cached), ({"source": "local_cache_hit"}, cached)]
    yield from page.counter("prompt_tokens_by_source", "Number of prompt tokens by source.", sources)
    yield from page.counter(
        "prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [({}, cached)]
    )
    generated: MetricSamples = [({}, counters.output_tokens)]
    yield from page.counter("generation_tokens", "Number of generation tokens processed.", generated)
    finished: MetricSamples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    yield from page.counter("request_success", "Count of successfully processed requests.", finished)


def _speculation(page: PrometheusExposition, counters: SimulatorCounters) -> Iterator[str]:
    if counters.accepted_by_position is None:
        return
    yield from page.counter("spec_decode_num_drafts", "Number of spec decoding drafts.", [({}, counters.drafts)])
    yield from page.counter("spec_decode_num_draft_tokens", "Number of draft tokens.", [({}, counters.drafted)])
    yield from page.counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", [({}, counters.accepted)])
    by_position: MetricSamples = [({"position": str(i)}, n) for i, n in enumerate(counters.accepted_by_position)]
    yield from page.counter(
        "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", by_position
    )


def _histograms(page: PrometheusExposition, counters: SimulatorCounters) -> Iterator[str]:
    named = {
        "iteration_tokens_total": ("number of tokens per engine_step", counters.step_tokens),
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "inter_token_latency_seconds": ("inter-token latency in seconds", counters.between_steps_s),
        "request_time_per_output_token_seconds": (
            "time_per_output_token_seconds per request",
            counters.per_token_s,
        ),
        "e2e_request_latency_seconds": ("e2e request latency in seconds", counters.request_s),
        "request_queue_time_seconds": ("time spent in WAITING phase for request", counters.queue_s),
        "request_prompt_tokens": ("number of prefill tokens processed", counters.request_prompt_tokens),
        "request_generation_tokens": ("number of generation tokens processed", counters.request_output_tokens),
    }
    yield from page.histograms(named)


# Responses have the keys and the order of a recorded vLLM 0.32 stream. One chunk is one step and may contain several
# tokens. The finish reason is in the last content chunk. The request's statistics (``metrics``) are in the usage chunk,
# which is sent only on request. ``prompt_token_ids`` is always null, because the simulator's prompt tokens are words.


class VllmResponseFormat(OpenAiResponseFormat):
    """The parts that chat and completions share."""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not part of vLLM's chunks
        choice = self._choice(render(words, first=sent_before == 0), self._ids(words), finish_reason)
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
    def _choice(self, text: str, ids: list[int] | None, finish_reason: str | None) -> dict[str, Any]:
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
        choice = {"index": 0, "message": message, **finish, "token_ids": self._ids(result.words)}
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

    def _choice(self, text: str, ids: list[int] | None, finish_reason: str | None) -> dict[str, Any]:
        stop: dict[str, Any] = {"stop_reason": None} if finish_reason else {}
        delta = {"tool_calls": [self._call_delta(text)]} if self._calls(text) else {"content": text}
        reason = self._reason(finish_reason)
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, **stop, "token_ids": ids}

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
            "choices": [self._choice(render(result.words, first=True), self._ids(result.words), result.finish_reason)],
            "service_tier": None,
            **self._signature(),
            "usage": self._usage(result),
            "metrics": self._metrics(result),
            "kv_transfer_params": None,
        }

    def _choice(self, text: str, ids: list[int] | None, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "token_ids": ids,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }


class VllmServerDialect:
    """vLLM's API; see ``simulator.dialect.ServerDialect``."""

    paths = OPENAI_PATHS

    commands: Mapping[str, PageRenderer]

    def __init__(self, config: SimulatorConfig) -> None:
        self._config = config
        self.pages: Mapping[str, PageRenderer] = {
            "/health": health_page,
            "/v1/models": _models,
            "/version": lambda _engine: json_page({"version": VERSION}),
            "/metrics": lambda engine: HttpPage(render_metrics(engine), PROMETHEUS),
        }
        self.commands = {"/reset_prefix_cache": _reset_prefix_cache}

    def read(self, arrival: ReceivedRequest) -> SimulatedRequest:
        return read_body(self._config, arrival)

    def wire(self, ask: SimulatedRequest) -> VllmResponseFormat:
        return (VllmChatFormat if ask.kind is OpenAIRoute.CHAT else VllmCompletionFormat)(self._config, ask)

    def error(self, refused: SimulatorRequestError) -> dict[str, Any]:
        return error_object(refused.message, refused.kind, refused.status, refused.param)

    def lost(self, status: int, reason: str) -> dict[str, Any]:
        return error_object(reason, reason, status)


def _reset_prefix_cache(engine: SimulatedEngine) -> HttpPage:
    """Empty the prefix cache. vLLM also answers 200 if it could not, while requests hold blocks."""
    idle = not engine.running and not engine.waiting
    if idle:
        engine.prefix_cache.empty()
    return json_page({"success": idle})


def _models(engine: SimulatedEngine) -> HttpPage:
    config, created = engine.config, int(engine.counters.created_s)
    about = {"owned_by": "specbench", "root": "simulated", "parent": None, "max_model_len": config.max_model_len}
    names = [{"id": name, "object": "model", "created": created, **about} for name in config.model_names]
    return json_page({"object": "list", "data": names})
