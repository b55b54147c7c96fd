"""SGLang's HTTP API, based on the source of 0.5.23 and adjacent versions, without recordings.

From 0.5.23: the routes, the request option for speculation details and its result, the counters and gauges with their
labels, and when each one counts. From adjacent versions, which may differ slightly: which keys of a chunk are null or
omitted, and the error objects.

Also imitated: `/health` generates a token and `/ready` does not; accepted draft tokens are counted before an answer is
cut at its end; proposed draft tokens are verifications times the configured length; usage reports cache hits, as with
`--enable-cache-report`. Not imitated: averages of acceptance in the gauges and in `/server_info`; SGLang verifies
padding if an n-gram lookup finds nothing, while a step without draft tokens is no verification here; SGLang updates its
counters when a request ends, and the simulator with each step; all requests count as streamed.

Tool calls and documents: as with a tool-call parser and a grammar backend; the markup around a call has no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web

from specbench_client.openai_server_formats import (
    DONE,
    MetricSamples,
    PrometheusExposition,
    RejectedRequest,
    StreamOptionsBody,
    sse_event,
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
from specbench_client.simulator.errors import InvalidRequestBody
from specbench_client.simulator.generated_text import VOCABULARY, render
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
from specbench_client.simulator.speculation import SimulatedMethod, StepOutcome

# The Prometheus page has SGLang's names and labels for the figures that the simulator has. Verifications are counted
# (if there are any), draft tokens are not.

_ANSWERS = {"engine_type": "unified", "model_name": MODEL_NAME}
_SCHEDULER = {**_ANSWERS, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}


def render_metrics(engine: SimulatedEngine) -> web.Response:
    """Return the page in Prometheus' text format."""
    answers, counters = PrometheusExposition("sglang:", _ANSWERS), engine.counters
    depth = engine.config.drafter.num_speculative_tokens
    gauges: dict[str, tuple[str, float]] = {
        "num_running_reqs": ("The number of running requests.", engine.batch.running),
        "num_queue_reqs": ("The number of requests in the waiting queue.", engine.batch.waiting),
        "token_usage": ("The token usage.", engine.batch.kv_tokens / engine.config.kv_room_tokens),
        "spec_num_steps": ("The number of draft steps.", depth),
        "spec_num_draft_tokens": ("The number of draft tokens.", depth + 1 if depth else 0),
    }
    histograms = {
        "time_to_first_token_seconds": ("time to first token in seconds", counters.first_token_s),
        "request_time_per_output_token_seconds": ("time per output token of a request", counters.per_token_s),
    }
    return metrics_page(
        [
            *PrometheusExposition("sglang:", _SCHEDULER).gauges(gauges),
            *answers.counters(_totals(counters)),
            *answers.histograms(histograms),
        ]
    )


def _totals(counters: SimulatorCounters) -> dict[str, tuple[str, MetricSamples]]:
    streamed = {"is_streaming": "true"}
    verified: dict[str, tuple[str, MetricSamples]] = {
        "spec_verify_calls": ("Number of speculative decoding verification calls.", [({}, counters.drafts)])
    }
    return {
        "prompt_tokens": ("Number of prefill tokens processed.", [(streamed, counters.prompt_tokens)]),
        "generation_tokens": ("Number of generation tokens processed.", [(streamed, counters.output_tokens)]),
        "cached_tokens": ("Number of cached prompt tokens.", [({"cache_source": "device"}, counters.cached_tokens)]),
        **(verified if counters.drafts else {}),
        "num_requests": ("Number of requests processed.", [(streamed, sum(counters.finished.values()))]),
        "num_aborted_requests": ("Number of requests aborted.", [({}, counters.finished["abort"])]),
    }


# One chunk is one step and may contain several tokens. A chat begins with the role and ends with a chunk that has only
# the finish reason; a completion has it in its last text chunk. Requested speculation details are in a separate chunk
# without choices, before the usage; a request without verifications has none.

END_TOKEN = len(VOCABULARY)
"""The end-of-sequence token."""


def spec_tokens_details(outcomes: Sequence[StepOutcome], depth: int, completion_tokens: int) -> dict[str, Any] | None:
    """Return the speculation details; accepted tokens are counted before the last step is cut."""
    steps = [one for one in outcomes if one.drafted]
    if not steps:
        return None
    correct, proposed = sum(one.accepted for one in steps), len(steps) * depth
    histogram = [0] * (max(one.accepted for one in steps) + 1)
    for one in steps:
        histogram[one.accepted] += 1
    return {
        "spec_accept_rate": correct / proposed,
        "spec_accept_length": completion_tokens / len(steps),
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": len(steps),
        "spec_correct_drafts_histogram": histogram,
        "spec_cap_lens_histogram": [],
    }


class SglangResponseFormat(ResponseFormat):
    """Both routes."""

    call_prefix = "call_"

    def _call(self, arguments: str) -> dict[str, Any]:
        self._called = True
        return {"id": self._call_id, "index": 0, "type": "function", "function": self._function(arguments)}

    def _call_delta(self, arguments: str) -> dict[str, Any]:
        """Return the next part of the tool call; id and name are null in all but the first one."""
        first, self._called = not self._called, True
        named = self._function(arguments) if first else {"name": None, "arguments": arguments}
        return {"id": self._call_id if first else None, "index": 0, "type": "function", "function": named}

    def opening(self) -> bytes:
        delta = {"delta": {"role": "assistant", "content": ""}}
        return self._chunk([_choice(delta, None)]) if self._ask.chat else b""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not part of SGLang's chunks
        """Return one chunk of text. The finish reason of a chat has a separate chunk."""
        text = render(words, first=sent_before == 0)
        usage = self._usage(sent_before + len(words)) if self._ask.delivery.continuous_usage else None
        if not self._ask.chat:
            return self._chunk([_choice({"text": text}, finish_reason)], usage=usage)
        delta = {"tool_calls": [self._call_delta(text)]} if self._calls(text) else {"content": text}
        return self._chunk([_choice({"delta": delta}, None)], **({"usage": usage} if usage else {}))

    def closing(self, result: SimulatedResponse) -> list[bytes]:
        """Return the finish reason of a chat, the speculation details, and the usage, each in a chunk of its own."""
        events, extension = [], self._extension(result)
        if self._ask.chat:
            events.append(self._chunk([_choice({"delta": {}}, self._reason(result.finish_reason))]))
        if extension:
            events.append(self._chunk([], usage=None, sglext=extension))
        if self._ask.delivery.include_usage:
            events.append(self._chunk([], usage=self._last_usage(result)))
        return [*events, DONE]

    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        text = render(result.words, first=True)
        content: dict[str, Any] = {"text": text}
        if self._ask.chat:
            called = self._calls(text)
            message = {"content": None if called else text, "reasoning_content": None}
            calls = [self._call(text)] if called else None
            content = {"message": {"role": "assistant", **message, "tool_calls": calls}}
        extension = self._extension(result)
        return {
            **self._head(),
            "object": "chat.completion" if self._ask.chat else "text_completion",
            "choices": [_choice(content, self._reason(result.finish_reason))],
            "usage": self._usage(result.reported_tokens, result.cached_tokens),
            "metadata": {"weight_version": "default"},
            **({"sglext": extension} if extension else {}),
        }

    def _head(self) -> dict[str, Any]:
        """Return the first fields of every chunk; SGLang's ids have no prefix."""
        return self._head_of(self._ask.request_id, "chat.completion.chunk" if self._ask.chat else "text_completion")

    def _chunk(self, choices: list[dict[str, Any]], **further: Any) -> bytes:
        return sse_event({**self._head(), "choices": choices, **further})

    def _last_usage(self, result: SimulatedResponse) -> dict[str, Any]:
        """Return the usage of the last chunk; that of a completion has no null fields."""
        if self._ask.chat:
            return self._usage(result.reported_tokens, result.cached_tokens)
        known = {name: value for name, value in self._usage(result.reported_tokens).items() if value is not None}
        return {**known, "prompt_tokens_details": {"cached_tokens": result.cached_tokens}}

    def _usage(self, completion_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
        """Return the usage so far, as with --enable-cache-report."""
        media = {"image_tokens": None, "audio_tokens": None, "video_tokens": None}
        return {
            **self._totals(completion_tokens),
            "prompt_tokens_details": {"cached_tokens": cached_tokens, **media},
            "reasoning_tokens": 0,
            "completion_tokens_details": None,
        }

    def _extension(self, result: SimulatedResponse) -> dict[str, Any] | None:
        if not self._ask.delivery.speculation:
            return None
        depth = self._config.drafter.num_speculative_tokens
        details = spec_tokens_details(result.outcomes, depth, len(result.words))
        return {"spec_tokens_details": details} if details else None


def _choice(content: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    """Return the single choice of a chunk or response. `content`: its delta, message or text."""
    matched = END_TOKEN if finish_reason in ("stop", "tool_calls") else None
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason, "matched_stop": matched}


ALGORITHMS = {
    SimulatedMethod.EAGLE: "EAGLE",
    SimulatedMethod.EAGLE3: "EAGLE3",
    SimulatedMethod.MTP: "NEXTN",
    SimulatedMethod.DRAFT_MODEL: "STANDALONE",
}
"""Algorithm names; for other methods, the method's name in upper case."""
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


MODEL_INFO = {"model_path": MODEL_NAME, "tokenizer_path": MODEL_NAME, "is_generation": True}


class SglangServerDialect(ServerDialect):
    """SGLang's API."""

    response_format = SglangResponseFormat

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.pages = {
            "/health": _generating,
            "/ready": health_page,
            "/v1/models": _models,
            "/model_info": lambda _engine: json_page(MODEL_INFO),
            "/server_info": _server_info,
            "/metrics": render_metrics,
        }
        self.commands = {"/flush_cache": _flush}

    def read(self, arrival: ReceivedRequest) -> SimulatedRequest:
        """Parse a request; unknown fields and the model's name are ignored. Raises RejectedBody."""
        parsed = validate_body(arrival, parse_json_body(arrival))
        options = parsed.stream_options or StreamOptionsBody()
        delivery = ResponseOptions(
            stream=bool(parsed.stream),
            include_usage=bool(options.include_usage),
            continuous_usage=bool(options.continuous_usage_stats),
            speculation=bool((parsed.model_extra or {}).get("return_spec_tokens_details")),
        )
        return build_request(arrival, parsed, delivery, output_token_limit(parsed), openai_schema(parsed))

    def error(self, refused: RejectedRequest) -> dict[str, Any]:
        kind = HTTPStatus.BAD_REQUEST.phrase if isinstance(refused, InvalidRequestBody) else refused.kind
        return {**super().error(refused), "type": kind}


def _flush(engine: SimulatedEngine) -> web.Response:
    """Empty the prefix cache; fails while requests are running or waiting."""
    if not engine.batch.idle:
        return web.Response(text="Flush cache failed.\n", status=HTTPStatus.BAD_REQUEST)
    engine.prefix_cache.empty()
    return web.Response(text=FLUSHED)


def _server_info(engine: SimulatedEngine) -> web.Response:
    """Return the relevant server arguments."""
    drafter = engine.config.drafter
    depth = drafter.num_speculative_tokens if drafter.speculates else None
    return json_page(
        {
            "model_path": MODEL_NAME,
            "served_model_name": MODEL_NAME,
            "context_length": engine.config.max_model_len,
            "max_running_requests": engine.config.max_num_seqs,
            "max_total_num_tokens": engine.config.kv_room_tokens,
            "disable_radix_cache": not engine.config.prefix_cache_tokens,
            "random_seed": engine.config.seed,
            "speculative_algorithm": ALGORITHMS.get(drafter.method, drafter.method.upper()) if depth else None,
            "speculative_num_steps": depth,
            "speculative_eagle_topk": None if depth is None else 1,
            "speculative_num_draft_tokens": None if depth is None else depth + 1,
            "internal_states": [{}],
            "version": VERSION,
        }
    )


def _generating(engine: SimulatedEngine) -> web.Response:
    """Generate one token as a health check if the engine is idle."""
    if engine.batch.idle:
        engine.counters.admitted(1, 0)
        engine.counters.stepped(1, drafted=0, accepted=0)
    return web.Response()


def _models(engine: SimulatedEngine) -> web.Response:
    about = {"parent": None, "max_model_len": engine.config.max_model_len}
    return models_page(engine, {name: {"root": name, **about} for name in engine.config.model_names})
