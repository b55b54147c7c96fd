"""Writes SGLang's answers.

One chunk is one step and may hold several tokens. A chat begins with the role and ends with a chunk that holds nothing
but the reason; a completion's reason rides on its last text. What was asked of the drafts comes in a chunk of its own,
without choices, before the usage; a request that verified no drafts has none.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from specbench_client.simulator.ask import Ask, Result
from specbench_client.simulator.config import MODEL_NAME, SimulatorConfig
from specbench_client.simulator.events import DONE, event
from specbench_client.simulator.process import StepOutcome
from specbench_client.simulator.text import TOKEN_IDS, VOCABULARY, render

END_TOKEN = len(VOCABULARY)
"""The token that ends a text by itself."""


def spec_tokens_details(outcomes: Sequence[StepOutcome], depth: int, completion_tokens: int) -> dict[str, Any] | None:
    """Return what is told of the drafts; correct ones are counted before the last step is cut."""
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


class SglangWire(ABC):
    """What chat and completions share."""

    chunk_object = ""

    def __init__(self, config: SimulatorConfig, ask: Ask) -> None:
        self._config = config
        self._ask = ask
        self._head = {
            "id": ask.request_id,
            "object": self.chunk_object,
            "created": int(time.time()),
            "model": MODEL_NAME,
        }

    def opening(self) -> bytes:
        return b""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not told chunk by chunk
        """Return one chunk of text."""
        text = render(words, first=sent_before == 0)
        usage = self._usage(sent_before + len(words)) if self._ask.delivery.continuous_usage else None
        return event(self._text_chunk(text, words, finish_reason, usage))

    def closing(self, result: Result) -> list[bytes]:
        events = [event(one) for one in self._endings(result)]
        extension = self._extension(result)
        if extension:
            events.append(event({**self._head, "choices": [], "usage": None, "sglext": extension}))
        if self._ask.delivery.include_usage:
            events.append(event({**self._head, "choices": [], "usage": self._last_usage(result)}))
        return [*events, DONE]

    @abstractmethod
    def whole(self, result: Result) -> dict[str, Any]:
        """Return the answer that is not streamed."""

    @abstractmethod
    def _text_chunk(
        self, text: str, words: tuple[str, ...], finish_reason: str | None, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return one chunk of text."""

    @abstractmethod
    def _endings(self, result: Result) -> list[dict[str, Any]]:
        """Return the chunks between the last text and what is told of the drafts."""

    @abstractmethod
    def _last_usage(self, result: Result) -> dict[str, Any]:
        """Return the usage of the last chunk."""

    def _whole(self, choice: dict[str, Any], result: Result) -> dict[str, Any]:
        extension = self._extension(result)
        told = {"sglext": extension} if extension else {}
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        return {**self._head, "choices": [choice], "usage": usage, "metadata": {"weight_version": "default"}, **told}

    def _usage(self, completion_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
        """Return the usage so far; cached tokens are told where there are any."""
        prompt_tokens = self._ask.prompt.tokens
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens} if cached_tokens else None,
            "reasoning_tokens": 0,
        }

    def _extension(self, result: Result) -> dict[str, Any] | None:
        if not self._ask.delivery.speculation:
            return None
        depth = self._config.drafter.num_speculative_tokens
        details = spec_tokens_details(result.outcomes, depth, len(result.words))
        return {"spec_tokens_details": details} if details else None

    def _ids(self, words: tuple[str, ...]) -> list[int]:
        return [TOKEN_IDS[word] for word in words]


def _ended(finish_reason: str | None) -> dict[str, Any]:
    return {"finish_reason": finish_reason, "matched_stop": END_TOKEN if finish_reason == "stop" else None}


class ChatWire(SglangWire):
    """``/v1/chat/completions``."""

    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        return event({**self._head, "choices": [self._choice({"role": "assistant", "content": ""}, None)]})

    def whole(self, result: Result) -> dict[str, Any]:
        text = render(result.words, first=True)
        message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, **_ended(result.finish_reason)}
        if self._ask.delivery.token_ids:
            choice["response_token_ids"] = self._ids(result.words)
        return {**self._whole(choice, result), "object": "chat.completion"}

    def _text_chunk(
        self,
        text: str,
        words: tuple[str, ...],  # noqa: ARG002 -- a streamed chat has no token ids
        finish_reason: str | None,  # noqa: ARG002 -- the reason has a chunk of its own
        usage: dict[str, Any] | None,
    ) -> dict[str, Any]:
        told = {"usage": usage} if usage else {}
        return {**self._head, "choices": [self._choice({"content": text}, None)], **told}

    def _endings(self, result: Result) -> list[dict[str, Any]]:
        return [{**self._head, "choices": [self._choice({}, result.finish_reason)]}]

    def _last_usage(self, result: Result) -> dict[str, Any]:
        return self._usage(result.reported_tokens, result.cached_tokens)

    def _choice(self, delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, **_ended(finish_reason)}


class CompletionWire(SglangWire):
    """``/v1/completions``."""

    chunk_object = "text_completion"

    def whole(self, result: Result) -> dict[str, Any]:
        return self._whole(self._choice(render(result.words, first=True), result.words, result.finish_reason), result)

    def _text_chunk(
        self, text: str, words: tuple[str, ...], finish_reason: str | None, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {**self._head, "choices": [self._choice(text, words, finish_reason)], "usage": usage}

    def _endings(self, result: Result) -> list[dict[str, Any]]:  # noqa: ARG002 -- the reason is told already
        return []

    def _last_usage(self, result: Result) -> dict[str, Any]:
        """Return it without what it does not know."""
        usage = self._usage(result.reported_tokens, result.cached_tokens)
        return {name: value for name, value in usage.items() if value is not None}

    def _choice(self, text: str, words: tuple[str, ...], finish_reason: str | None) -> dict[str, Any]:
        ids = {"token_ids": self._ids(words)} if self._ask.delivery.token_ids else {}
        return {"index": 0, "text": text, "logprobs": None, **_ended(finish_reason), **ids}
