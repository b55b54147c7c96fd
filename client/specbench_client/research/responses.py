"""Formats responses with vLLM's keys in vLLM's order, so that one client dialect reads both.

One chunk is one step and may contain several tokens. The request's statistics are in the usage chunk, which is sent
only on request, or in the body of a response that is not streamed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from specbench_client.openai_server_formats import DONE, speculation_metrics, sse_event, timing_metrics
from specbench_client.research.requests import ParsedRequest
from specbench_client.research.runtime import GenerationStep, TokenIds


@dataclass(slots=True)
class ResponseTimes:
    """Times of arrival, start, first and last token; monotonic ns."""

    received_ns: int
    begun_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0


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
        usage, times = self._usage(), self.times
        metrics: dict[str, Any] = timing_metrics(
            times.received_ns, times.begun_ns, times.first_ns, times.last_ns, usage["completion_tokens"]
        )
        if self.depth:
            metrics["speculative_decoding"] = speculation_metrics(
                [step.drafted for step in self.steps], [step.accepted for step in self.steps], self.depth
            )
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
