"""TensorRT-LLM's HTTP API, based on the source of the 1.2 release candidates, not of 1.2.1, and without recordings.

Taken from the release candidates: fields and their order, the average number of tokens per iteration, the space after
the first chunk of a chat, the usage chunk of a completion that is labelled as a chat's, the rejection of unknown
fields, and the Prometheus page without token counts.

As in those versions, the iteration that processes the prompt is counted, and no tokens are generated beyond the end of
an answer. A step without draft tokens cannot be distinguished from one whose draft tokens were all rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from aiohttp import web

from specbench_client.openai_server_formats import (
    DONE,
    MetricSamples,
    PrometheusExposition,
    RejectedBody,
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
from specbench_client.simulator.engine import SimulatedEngine
from specbench_client.simulator.errors import InvalidRequestBody
from specbench_client.simulator.generated_text import render
from specbench_client.simulator.requests import (
    ReceivedRequest,
    ResponseOptions,
    SimulatedRequest,
    SimulatedResponse,
    build_request,
    output_token_limit,
    parse_json_body,
    unknown_format,
    validate_body,
)

_BOTH = (
    "model", "n", "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "seed", "stop",
    "stream", "stream_options", "temperature", "top_p", "user", "lora_request", "prompt_ignore_length",
    "use_beam_search", "top_k", "top_p_min", "min_p", "repetition_penalty", "length_penalty", "early_stopping",
    "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "add_special_tokens", "response_format",
    "disaggregated_params", "echo", "max_tokens",
)  # fmt: skip
KNOWN_FIELDS = {
    True: frozenset(
        [
            *_BOTH,
            *("messages", "prompt_token_ids", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"),
            *("reasoning_effort", "add_generation_prompt", "documents", "chat_template", "chat_template_kwargs"),
            *("mm_processor_kwargs", "cache_salt"),
        ]
    ),
    False: frozenset([*_BOTH, "prompt", "suffix", "return_context_logits", "detokenize"]),
}
"""The fields that each route accepts, that of chats or not, from the release candidates' own list."""


def _schema(requested: Any) -> Any:
    """Return the schema of a response format; None if the answer is any text.

    TensorRT-LLM takes the whole ``json_schema`` for the schema, also if it is OpenAI's object with a name and a schema,
    which then restricts nothing.
    """
    match requested:
        case None | {"type": "text"}:
            return None
        case {"type": "json", "schema": dict(schema)}:
            return schema
        case {"type": "json_schema", "json_schema": dict(schema)} if "schema" not in schema:
            return schema
    raise unknown_format(requested, '{"type": "json", "schema": …}')


def _is_on(options: StreamOptionsBody | None, name: str) -> bool:
    """Return whether an option is on: both are on if either is given, unless they are set to false."""
    if options is None:
        return False
    return name not in options.model_fields_set or bool(getattr(options, name))


def _reject_unknown_fields(document: Any, *, chat: bool) -> None:
    if not isinstance(document, dict):
        return
    unknown = [
        {"type": "extra_forbidden", "loc": ("body", name), "msg": "Extra inputs are not permitted", "input": value}
        for name, value in document.items()
        if name not in KNOWN_FIELDS[chat]
    ]
    missing = [{"type": "missing", "loc": ("body", "model"), "msg": "Field required"}] * ("model" not in document)
    if unknown or missing:
        raise InvalidRequestBody([*missing, *unknown])


# The Prometheus page contains no token counts. The page of iteration statistics (/metrics) is not imitated.

FINISH_REASONS = ("stop", "length")
_LABELS = {"engine_type": "undefined", "model_name": "undefined"}


def render_metrics(engine: SimulatedEngine) -> web.Response:
    """Return the page in Prometheus' text format."""
    page, counters = PrometheusExposition("", _LABELS), engine.counters
    finished: MetricSamples = [({"finished_reason": reason}, counters.finished[reason]) for reason in FINISH_REASONS]
    return metrics_page(page.counters({"request_success": ("Count of successfully processed requests.", finished)}))


# One chunk is one iteration and may contain several tokens. It has the average number of tokens per iteration so far,
# including the iteration that processed the prompt. A chat omits null fields except in its usage. A completion omits
# nothing, and its usage chunk is labelled as a chat's.


def average_of(tokens: int, iterations: int) -> float:
    """Return tokens / iterations as a 32-bit float, like TensorRT-LLM."""
    if not iterations:
        return 0.0
    single: float = struct.unpack("f", struct.pack("f", tokens / iterations))[0]
    return single


class TensorrtLlmResponseFormat(ResponseFormat):
    """Both routes."""

    def opening(self) -> bytes:
        """Return the role, with a space before the line ends."""
        if not self._ask.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": []}}
        first = {**self._start(chat=True, chunk=True), "choices": [choice], **self._running_usage(0)}
        return sse_event(first).removesuffix(b"\n\n") + b" \n\n"

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:
        """Return one chunk with the average so far."""
        tokens = sent_before + len(words)
        text, average = render(words, first=sent_before == 0), average_of(tokens, iterations)
        choice = _text_choice(text, finish_reason, average)
        if self._ask.chat:
            delta = self._content(text, self._call_delta)
            ended = {"finish_reason": self._reason(finish_reason)} if finish_reason else {}
            choice = {"index": 0, "delta": delta, **ended, "avg_decoded_tokens_per_iter": average}
        head = self._start(chat=self._ask.chat, chunk=True)
        return sse_event({**head, "choices": [choice], **self._running_usage(tokens)})

    def closing(self, result: SimulatedResponse) -> list[bytes]:
        if not self._ask.delivery.include_usage:
            return [DONE]
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        return [sse_event({**self._start(chat=True, chunk=True), "choices": [], "usage": usage}), DONE]

    def whole(self, result: SimulatedResponse) -> dict[str, Any]:
        text, average = render(result.words, first=True), average_of(len(result.words), len(result.outcomes))
        nulls = {"context_logits": None, "disaggregated_params": None}
        choice = {**_text_choice(text, result.finish_reason, average), **nulls}
        if self._ask.chat:
            message = {"role": "assistant", **self._content(text, self._call)}
            reason = {"finish_reason": self._reason(result.finish_reason), "stop_reason": None}
            choice = {"index": 0, "message": message, "logprobs": None, **reason, "disaggregated_params": None}
            choice["avg_decoded_tokens_per_iter"] = average
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        head = self._start(chat=self._ask.chat, chunk=False)
        return {**head, "choices": [choice], "usage": usage, "prompt_token_ids": None}

    def _call_delta(self, arguments: str) -> dict[str, Any]:
        """Return the next part of the tool call; each one has the type."""
        return (
            {"type": "function", **super()._call_delta(arguments)} if self._called else super()._call_delta(arguments)
        )

    def _content(self, text: str, call: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Return a message's text, or its tool call."""
        if not self._calls(text):
            return {"content": text, "reasoning_content": "", "tool_calls": []}
        return {"content": "", "reasoning_content": "", "tool_calls": [call(text)]}

    def _start(self, *, chat: bool, chunk: bool) -> dict[str, Any]:
        prefix, kind = ("chatcmpl", "chat.completion") if chat else ("cmpl", "text_completion")
        return self._head_of(f"{prefix}-{self._ask.request_id}", f"{kind}.chunk" if chat and chunk else kind)

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        """Return the usage so far, if every chunk must contain it; null in the other chunks of a completion."""
        if self._ask.delivery.continuous_usage:
            return {"usage": self._usage(completion_tokens)}
        return {} if self._ask.chat else {"usage": None}

    def _usage(self, completion_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
        return {**self._totals(completion_tokens), "prompt_tokens_details": {"cached_tokens": cached_tokens}}


def _text_choice(text: str, finish_reason: str | None, average: float) -> dict[str, Any]:
    """Return the single choice of a completion."""
    nulls = {"token_ids": None, "logprobs": None}
    reason = {"finish_reason": finish_reason, "stop_reason": None, "avg_decoded_tokens_per_iter": average}
    return {"index": 0, "text": text, **nulls, **reason}


class TensorrtLlmServerDialect(ServerDialect):
    """TensorRT-LLM's API."""

    response_format = TensorrtLlmResponseFormat

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.pages = {
            "/health": health_page,
            "/version": lambda _engine: json_page({"version": VERSION}),
            "/v1/models": lambda engine: models_page(engine, {MODEL_NAME: {}}),
            "/prometheus/metrics": render_metrics,
        }

    def read(self, arrival: ReceivedRequest) -> SimulatedRequest:
        """Parse a request. Raises RejectedBody with TensorRT-LLM's wording."""
        document = parse_json_body(arrival)
        _reject_unknown_fields(document, chat=arrival.chat)
        parsed = validate_body(arrival, document)
        extra = parsed.model_extra or {}
        if extra.get("prompt_token_ids") is not None or extra.get("detokenize") is False:
            raise RejectedBody("The simulator does not imitate prompt_token_ids and detokenize=false: omit them.")
        options = parsed.stream_options
        if options is not None and not parsed.stream:
            message = "Value error, Stream options can only be defined when stream is true."
            raise InvalidRequestBody([{"type": "value_error", "loc": ("body",), "msg": message}])
        usage = _is_on(options, "include_usage")
        delivery = ResponseOptions(
            stream=bool(parsed.stream),
            include_usage=usage,
            continuous_usage=usage and _is_on(options, "continuous_usage_stats"),
        )
        if extra.get("tools") and extra.get("tool_choice") not in (None, "none", "auto"):
            message = f"The simulator imitates TensorRT-LLM's tool_choice auto and none, not {extra['tool_choice']!r}."
            raise RejectedBody(message, param="tool_choice")
        limit = output_token_limit(parsed, completion=None)
        return build_request(arrival, parsed, delivery, limit, _schema(extra.get("response_format")))

    def error(self, refused: RejectedRequest) -> dict[str, Any]:
        return {**super().error(refused), "param": None}
