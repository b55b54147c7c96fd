"""Writes TensorRT-LLM's answers.

One chunk is one iteration and may hold several tokens. Each tells how many tokens an iteration gave on average so far,
the one that read the prompt among them. A chat leaves out what is null, save in its usage; a completion leaves out
nothing, and its usage chunk calls itself a chat's.
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from typing import Any

from specbench_client.simulator.ask import Ask, Result
from specbench_client.simulator.config import MODEL_NAME
from specbench_client.simulator.events import DONE, event
from specbench_client.simulator.text import TOKEN_IDS, render


def average_of(tokens: int, iterations: int) -> float:
    """Return tokens / iterations as TensorRT-LLM knows it: as a 32-bit float."""
    if not iterations:
        return 0.0
    single: float = struct.unpack("f", struct.pack("f", tokens / iterations))[0]
    return single


class TensorrtLlmWire(ABC):
    """What chat and completions share."""

    prefix = ""
    chunk_object = ""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._created = int(time.time())

    def opening(self) -> bytes:
        return b""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:
        """Return one chunk with the average so far."""
        tokens = sent_before + len(words)
        text = render(words, first=sent_before == 0)
        choice = self._choice(text, words, finish_reason, average_of(tokens, iterations))
        told = self._running_usage(tokens)
        return event({**self._head(self.prefix, self.chunk_object), "choices": [choice], **told})

    def closing(self, result: Result) -> list[bytes]:
        if not self._ask.delivery.include_usage:
            return [DONE]
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        return [event({**self._head("chatcmpl", "chat.completion.chunk"), "choices": [], "usage": usage}), DONE]

    @abstractmethod
    def whole(self, result: Result) -> dict[str, Any]:
        """Return the answer that is not streamed."""

    @abstractmethod
    def _choice(self, text: str, words: tuple[str, ...], finish_reason: str | None, average: float) -> dict[str, Any]:
        """Return the one choice of a chunk."""

    @abstractmethod
    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        """Return the usage so far, where every chunk shall carry it."""

    def _head(self, prefix: str, kind: str) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{self._ask.request_id}",
            "object": kind,
            "created": self._created,
            "model": MODEL_NAME,
        }

    def _usage(self, completion_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
        prompt_tokens = self._ask.prompt.tokens
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }


def _average(result: Result) -> float:
    return average_of(len(result.words), len(result.outcomes))


class ChatWire(TensorrtLlmWire):
    """``/v1/chat/completions``."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        """Return the role, and a space before the line ends."""
        choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": []}}
        first = {**self._head(self.prefix, self.chunk_object), "choices": [choice], **self._running_usage(0)}
        return event(first).removesuffix(b"\n\n") + b" \n\n"

    def whole(self, result: Result) -> dict[str, Any]:
        text = render(result.words, first=True)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "reasoning_content": "", "tool_calls": []},
            "logprobs": None,
            "finish_reason": result.finish_reason,
            "stop_reason": None,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": _average(result),
        }
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        head = self._head(self.prefix, "chat.completion")
        return {**head, "choices": [choice], "usage": usage, "prompt_token_ids": None}

    def _choice(self, text: str, words: tuple[str, ...], finish_reason: str | None, average: float) -> dict[str, Any]:  # noqa: ARG002 -- a chat has no token ids
        ended = {"finish_reason": finish_reason} if finish_reason else {}
        delta = {"content": text, "reasoning_content": "", "tool_calls": []}
        return {"index": 0, "delta": delta, **ended, "avg_decoded_tokens_per_iter": average}

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        return {"usage": self._usage(completion_tokens)} if self._ask.delivery.continuous_usage else {}


class CompletionWire(TensorrtLlmWire):
    """``/v1/completions``."""

    prefix = "cmpl"
    chunk_object = "text_completion"

    def whole(self, result: Result) -> dict[str, Any]:
        text = render(result.words, first=True)
        choice = self._choice(text, result.words, result.finish_reason, _average(result))
        nulls = {"context_logits": None, "disaggregated_params": None}
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        head = self._head(self.prefix, self.chunk_object)
        return {**head, "choices": [{**choice, **nulls}], "usage": usage, "prompt_token_ids": None}

    def _choice(self, text: str, words: tuple[str, ...], finish_reason: str | None, average: float) -> dict[str, Any]:
        """Return the choice; token ids come instead of the text."""
        ids = [TOKEN_IDS[word] for word in words] if self._ask.delivery.token_ids else None
        return {
            "index": 0,
            "text": text if ids is None else "",
            "token_ids": ids,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "avg_decoded_tokens_per_iter": average,
        }

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        return {"usage": self._usage(completion_tokens) if self._ask.delivery.continuous_usage else None}
