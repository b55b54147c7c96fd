"""What the servers of the simulator and of the research runtime share: OpenAI's bodies and responses as in vLLM.

It contains messages and stream options of request bodies, rejected requests, server-sent events, vLLM's responses and
counters, and Prometheus' text format.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import accumulate
from typing import Any

from pydantic import BaseModel, ConfigDict

COMPLETION_MAX_TOKENS = 16
"""Default for completions, as in OpenAI's API and all engines; a chat fills the context."""
MAX_BODY_BYTES = 64 * 1024 * 1024
REQUEST_ID_HEADER = "X-Request-Id"
DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


def http_url(host: str, port: int) -> str:
    """Return the URL of a server, with an IPv6 address in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class StreamOptionsBody(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class MessageBody(BaseModel):
    """One message; its content is a string or a list of text parts."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


_ERROR_KINDS = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


class RejectedRequest(Exception):
    """A request that is answered with an error object. `kind`: the error type for its status, as in vLLM."""

    def __init__(self, message: str, status: HTTPStatus, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = _ERROR_KINDS[status]
        self.param = param

    @property
    def vllm_body(self) -> dict[str, Any]:
        """The error object in vLLM's format."""
        return error_object(self.message, self.kind, self.status, self.param)


class RejectedBody(RejectedRequest):
    """The request's body cannot be served: 400."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, HTTPStatus.BAD_REQUEST, param=param)


def compact_json(document: Any) -> str:
    """Return JSON without spaces, as engines send it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def sse_event(document: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + compact_json(document).encode() + b"\n\n"


def error_object(message: str, kind: str, status: int, param: str | None = None) -> dict[str, Any]:
    """Return an error object in vLLM's format."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(slots=True)
class RequestTiming:
    """Times of arrival, start, first and last token of a request; monotonic ns, None until they happen."""

    received_ns: int
    scheduled_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None

    def metrics(self, tokens: int) -> dict[str, Any]:
        """Return the times as vLLM reports them in `metrics`."""
        started_ns = self.scheduled_ns or self.received_ns
        first_ns = self.first_ns or started_ns
        first_ms, rest_ms = (first_ns - started_ns) / 1e6, ((self.last_ns or first_ns) - first_ns) / 1e6
        total_ms = first_ms + rest_ms
        return {
            "time_to_first_token_ms": first_ms,
            "generation_time_ms": rest_ms,
            "queue_time_ms": (started_ns - self.received_ns) / 1e6,
            "mean_itl_ms": rest_ms / (tokens - 1) if tokens > 1 else None,
            "tokens_per_second": tokens / total_ms * 1000 if total_ms else None,
        }


def speculation_metrics(drafted: Sequence[int], accepted: Sequence[int], depth: int) -> dict[str, Any]:
    """Return vLLM's `metrics.speculative_decoding` from the draft tokens of each step; steps without do not count.

    `depth`: maximum draft tokens per step. The ratios are null if no step had drafts; what vLLM returns in that case
    has not been recorded.
    """
    steps = [(proposed, kept) for proposed, kept in zip(drafted, accepted, strict=True) if proposed]
    all_drafted, all_accepted = sum(proposed for proposed, _ in steps), sum(kept for _, kept in steps)
    histogram = [0] * (depth + 1)
    for _, kept in steps:
        histogram[kept] += 1
    return {
        "mean_acceptance_length": 1 + all_accepted / len(steps) if steps else None,
        "draft_acceptance_rate": all_accepted / all_drafted if all_drafted else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": all_accepted,
        "num_draft_tokens": all_drafted,
        "num_spec_tokens": depth,
        "per_step_accepted": [kept for _, kept in steps],
        "per_step_drafted": [proposed for proposed, _ in steps],
    }


@dataclass(frozen=True, slots=True)
class VllmResponse:
    """Writes one response with the keys and the order of a recorded vLLM 0.32 stream.

    One chunk is one step and may contain several tokens. The finish reason is in the last content chunk. The request's
    statistics (`metrics`) are in the usage chunk, which is sent only on request. Every method except `whole` returns
    complete server-sent events.
    """

    request_id: str
    model: str
    fingerprint: str
    chat: bool
    prompt_tokens: int
    include_usage: bool = False
    continuous_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> bytes:
        """Return the event before the first token of a chat; empty for a completion."""
        if not self.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        prompt = {"prompt_token_ids": None, "prompt_text": None}
        return sse_event({**self._head(chunk=True), "choices": [choice], **self._running_usage(0), **prompt})

    def chunk(
        self,
        text: str,
        tokens: int,
        finish_reason: str | None,
        *,
        delta: Mapping[str, Any] | None = None,
        token_ids: Sequence[int] | None = None,
    ) -> bytes:
        """Return a chunk. `tokens`: up to and including this chunk; `delta`: what a chat sends instead of the text."""
        choice = self._completion_choice(text, finish_reason, token_ids)
        if self.chat:
            reason = {"finish_reason": finish_reason, **({"stop_reason": None} if finish_reason else {})}
            choice = {"index": 0, "delta": delta or {"content": text}, "logprobs": None, **reason}
            choice["token_ids"] = token_ids
        return sse_event({**self._head(chunk=True), "choices": [choice], **self._running_usage(tokens)})

    def closing(self, tokens: int, cached_tokens: int, metrics: Mapping[str, Any]) -> list[bytes]:
        """Return the usage chunk, if requested, and the end of the stream."""
        if not self.include_usage:
            return [DONE]
        usage = {"usage": self._usage(tokens, cached_tokens), "system_fingerprint": self.fingerprint}
        return [sse_event({**self._head(chunk=True), "choices": [], **usage, "metrics": metrics}), DONE]

    def whole(
        self,
        text: str | None,
        finish_reason: str | None,
        tokens: int,
        cached_tokens: int,
        metrics: Mapping[str, Any],
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        token_ids: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        choice = self._completion_choice(text, finish_reason, token_ids)
        prompt: dict[str, Any] = {}
        if self.chat:
            nulls = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))
            message = {"role": "assistant", "content": text, **nulls, "tool_calls": list(tool_calls), "reasoning": None}
            reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
            choice = {"index": 0, "message": message, **reason, "token_ids": token_ids}
            prompt = {"prompt_logprobs": None, "prompt_token_ids": None}
        return {
            **self._head(chunk=False),
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": self._usage(tokens, cached_tokens),
            "metrics": metrics,
            **prompt,
            "kv_transfer_params": None,
        }

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        prefix, kind = ("chatcmpl", "chat.completion") if self.chat else ("cmpl", "text_completion")
        kind += ".chunk" if self.chat and chunk else ""
        return {"id": f"{prefix}-{self.request_id}", "object": kind, "created": self.created, "model": self.model}

    def _completion_choice(
        self, text: str | None, finish_reason: str | None, token_ids: Sequence[int] | None
    ) -> dict[str, Any]:
        reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        return {
            "index": 0, "text": text, **reason, "token_ids": token_ids, "prompt_logprobs": None,
            "prompt_token_ids": None,
        }  # fmt: skip

    def _running_usage(self, tokens: int) -> dict[str, Any]:
        """Return the usage so far, if every chunk must contain it."""
        if not self.continuous_usage:
            return {}
        return {"usage": {**usage_totals(self.prompt_tokens, tokens), "completion_tokens_details": None}}

    def _usage(self, tokens: int, cached_tokens: int) -> dict[str, Any]:
        details = {"cached_tokens": cached_tokens, "created_cache_tokens": 0}
        return {**usage_totals(self.prompt_tokens, tokens), "prompt_tokens_details": details}


def usage_totals(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the token counts of a usage."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


@dataclass(slots=True)
class Histogram:
    """A histogram; ``counts`` has one more entry than ``bounds``, for values above the last bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


MetricSamples = list[tuple[dict[str, str], float]]
"""Samples as extra labels and value."""


@dataclass(frozen=True, slots=True)
class PrometheusExposition:
    """Writes Prometheus' text format with one engine's prefix and labels.

    Metrics are given as name → (meaning, value, samples or histogram).
    """

    prefix: str
    labels: Mapping[str, str]

    def gauges(self, named: Mapping[str, tuple[str, float]]) -> Iterator[str]:
        for name, (meaning, value) in named.items():
            yield from self._family(name, "gauge", meaning, [({}, value)])

    def counters(self, named: Mapping[str, tuple[str, MetricSamples]]) -> Iterator[str]:
        for name, (meaning, samples) in named.items():
            yield from self._family(f"{name}_total", "counter", meaning, samples)

    def histograms(self, named: Mapping[str, tuple[str, Histogram]]) -> Iterator[str]:
        for name, (measured, histogram) in named.items():
            meaning, cumulative = f"Histogram of {measured}.", list(accumulate(histogram.counts))
            bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
            yield from self._head(name, "histogram", meaning)
            for bound, count in zip(bounds, cumulative, strict=True):
                yield self._sample(f"{name}_bucket", {"le": bound}, count)
            yield self._sample(f"{name}_count", {}, cumulative[-1])
            yield self._sample(f"{name}_sum", {}, histogram.total)

    def _family(self, name: str, kind: str, meaning: str, samples: MetricSamples) -> Iterator[str]:
        yield from self._head(name, kind, meaning)
        for labels, value in samples:
            yield self._sample(name, labels, value)

    def _head(self, name: str, kind: str, meaning: str) -> Iterator[str]:
        yield f"# HELP {self.prefix}{name} {meaning}"
        yield f"# TYPE {self.prefix}{name} {kind}"

    def _sample(self, name: str, labels: dict[str, str], value: float) -> str:
        merged = {**self.labels, **labels}
        rendered = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(merged.items()))
        return (
            f"{self.prefix}{name}{{{rendered}}} {float(value)!r}" if merged else f"{self.prefix}{name} {float(value)!r}"
        )


@dataclass(slots=True)
class ServedCounters:
    """Totals since `created_s` (wall clock), independent of any product.

    Counts follow vLLM's semantics: a draft is a step that had draft tokens, and the simulator counts accepted tokens
    before it cuts the last step. `accepted_by_position` is None without a drafter.
    """

    created_s: float
    accepted_by_position: list[int] | None = None
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)

    def admitted(self, prompt_tokens: int, cached_tokens: int) -> None:
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def stepped(self, tokens: int, drafted: int, accepted: int) -> None:
        self.output_tokens += tokens
        if not drafted or self.accepted_by_position is None:
            return
        self.drafts += 1
        self.drafted += drafted
        self.accepted += accepted
        for position in range(accepted):
            self.accepted_by_position[position] += 1


VLLM_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


def vllm_gauges(running: int, waiting: int) -> dict[str, tuple[str, float]]:
    """Return vLLM's gauges of requests."""
    return {
        "num_requests_running": ("Number of requests in model execution batches.", running),
        "num_requests_waiting": ("Number of requests waiting to be processed.", waiting),
    }


def vllm_counters(counters: ServedCounters) -> dict[str, tuple[str, MetricSamples]]:
    """Return vLLM's counters. Those of speculation exist only with a drafter; they stay at 0 if it never drafts."""
    prompt, cached = counters.prompt_tokens, counters.cached_tokens
    finished: MetricSamples = [({"finished_reason": one}, counters.finished[one]) for one in VLLM_FINISH_REASONS]
    totals: dict[str, tuple[str, MetricSamples]] = {
        "prefix_cache_queries": ("Prefix cache queries, in terms of number of queried tokens.", [({}, prompt)]),
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
    if counters.accepted_by_position is None:
        return totals
    by_position = enumerate(counters.accepted_by_position)
    return totals | {
        "spec_decode_num_drafts": ("Number of spec decoding drafts.", [({}, counters.drafts)]),
        "spec_decode_num_draft_tokens": ("Number of draft tokens.", [({}, counters.drafted)]),
        "spec_decode_num_accepted_tokens": ("Number of accepted tokens.", [({}, counters.accepted)]),
        "spec_decode_num_accepted_tokens_per_pos": (
            "Accepted tokens per draft position.",
            [({"position": str(position)}, count) for position, count in by_position],
        ),
    }


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
