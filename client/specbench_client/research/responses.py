"""Formats responses with vLLM's keys in vLLM's order, so that one client dialect reads both.

One chunk is one step and may contain several tokens. The request's statistics are in the usage chunk, which is sent
only on request, or in the body of a response that is not streamed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench_client.research.requests import ParsedRequest
from specbench_client.research.runtime import GenerationStep, TokenIds

DONE = b"data: [DONE]\n\n"


def sse_event(document: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def error_object(message: str, kind: str, status: int) -> dict[str, Any]:
    """Return an error object in vLLM's format."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


@dataclass(slots=True)
class ResponseTimes:
    """Times of arrival, start, first and last token; monotonic ns."""

    received_ns: int
    begun_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def document(self, tokens: int) -> dict[str, float | None]:
        """Return the times as vLLM reports them."""
        first_ms, rest_ms = (self.first_ns - self.begun_ns) / 1e6, (self.last_ns - self.first_ns) / 1e6
        whole_ms = first_ms + rest_ms
        return {
            "time_to_first_token_ms": first_ms,
            "generation_time_ms": rest_ms,
            "queue_time_ms": (self.begun_ns - self.received_ns) / 1e6,
            "mean_itl_ms": rest_ms / (tokens - 1) if tokens > 1 else None,
            "tokens_per_second": tokens / whole_ms * 1000 if whole_ms else None,
        }


def speculation_metrics(steps: Sequence[GenerationStep], depth: int) -> dict[str, Any]:
    """Return `metrics.speculative_decoding` for the steps that verified draft tokens."""
    drafting = [step for step in steps if step.drafted]
    accepted, drafted = sum(step.accepted for step in drafting), sum(step.drafted for step in drafting)
    histogram = [0] * (depth + 1)
    for step in drafting:
        histogram[step.accepted] += 1
    return {
        "mean_acceptance_length": 1 + accepted / len(drafting) if drafting else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": len(drafting),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": depth,
        "per_step_accepted": [step.accepted for step in drafting],
        "per_step_drafted": [step.drafted for step in drafting],
    }


@dataclass(slots=True)
class ResearchResponse:
    """Formats one response. `depth`: maximum draft tokens per step; with 0 there are no speculation statistics."""

    parsed: ParsedRequest
    model: str
    fingerprint: str
    depth: int
    times: ResponseTimes
    steps: list[GenerationStep] = field(default_factory=list)
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> bytes:
        """Return the event before the first token of a chat; empty for a completion."""
        if not self.parsed.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return sse_event({**self._head("chunk"), "choices": [choice], **self._running()})

    def chunk(self, step: GenerationStep, text: str, finish_reason: str | None) -> bytes:
        """Return the chunk of a step."""
        self.steps.append(step)
        content = {"delta": {"content": text}} if self.parsed.chat else {"text": text}
        ids = list(step.tokens) if self.parsed.token_ids else None
        reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice = {"index": 0, **content, **reason, "token_ids": ids}
        return sse_event({**self._head("chunk"), "choices": [choice], **self._running()})

    def closing(self) -> bytes:
        """Return the usage chunk, if requested, and the end of the stream."""
        if not self.parsed.include_usage:
            return DONE
        return sse_event({**self._head("chunk"), "choices": [], **self._account()}) + DONE

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        content = {"message": {"role": "assistant", "content": text}} if self.parsed.chat else {"text": text}
        ids = [token for step in self.steps for token in step.tokens] if self.parsed.token_ids else None
        reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice = {"index": 0, **content, **reason, "token_ids": ids}
        return {**self._head("whole"), "choices": [choice], **self._account()}

    def _head(self, kind: str) -> dict[str, Any]:
        name = "chat.completion" if self.parsed.chat else "text_completion"
        suffix = ".chunk" if self.parsed.chat and kind == "chunk" else ""
        prefix = "chatcmpl" if self.parsed.chat else "cmpl"
        ident = f"{prefix}-{self.parsed.request_id}"
        return {"id": ident, "object": name + suffix, "created": self.created, "model": self.model}

    def _usage(self) -> dict[str, Any]:
        prompt, tokens = len(self.parsed.job.prompt), sum(len(step.tokens) for step in self.steps)
        return {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}

    def _running(self) -> dict[str, Any]:
        return {"usage": self._usage()} if self.parsed.continuous_usage else {}

    def _account(self) -> dict[str, Any]:
        usage = self._usage()
        metrics: dict[str, Any] = self.times.document(usage["completion_tokens"])
        if self.depth:
            metrics["speculative_decoding"] = speculation_metrics(self.steps, self.depth)
        cached = {"prompt_tokens_details": {"cached_tokens": 0}}
        return {"usage": usage | cached, "system_fingerprint": self.fingerprint, "metrics": metrics}


BROKEN = "\ufffd"
"""The replacement character that decoding gives for an incomplete character."""


class Detokenizer:
    """Decodes tokens step by step; tokens that end inside a character wait for the rest of it.

    Only a window of recent tokens is decoded, because decoding the whole answer at every step would take quadratic
    time. The window includes the previous delivered tokens, because a token's text may depend on the token before it.
    """

    def __init__(self, decode: Callable[[TokenIds], str]) -> None:
        self._decode = decode
        self._window: TokenIds = ()
        self._delivered = 0

    def push(self, tokens: TokenIds) -> str:
        """Add tokens and return the text that they complete."""
        self._window += tokens
        before, now = self._texts()
        if now.endswith(BROKEN) or len(now) <= len(before):
            return ""
        self._window = self._window[self._delivered :]
        self._delivered = len(self._window)
        return now[len(before) :]

    def flush(self) -> str:
        """Return the remaining text at the end of the answer."""
        before, now = self._texts()
        return now[len(before) :]

    def _texts(self) -> tuple[str, str]:
        return self._decode(self._window[: self._delivered]), self._decode(self._window)
