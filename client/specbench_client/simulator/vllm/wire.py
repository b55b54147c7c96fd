"""Writes vLLM's answers: key for key and in the order of a recorded vLLM 0.32 stream.

One chunk is one step and may hold several tokens. The finish reason rides on the last content chunk. The statistics
of the request (``metrics``) ride on the usage chunk, which only comes when it is asked for. ``prompt_token_ids``
stays null: the simulator has no tokenizer, its prompt tokens are words.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

from specbench_client.simulator.ask import Ask, Result
from specbench_client.simulator.config import MODEL_NAME, SimulatorConfig
from specbench_client.simulator.events import DONE, event
from specbench_client.simulator.process import StepOutcome
from specbench_client.simulator.text import TOKEN_IDS, render


def speculation_block(outcomes: tuple[StepOutcome, ...], depth: int, *, per_step: bool) -> dict[str, Any]:
    """Return ``metrics.speculative_decoding``: steps with drafts only, accepted counted before the last cut.

    What vLLM says when no step had drafts is not recorded; here the ratios are null then.
    """
    steps = [one for one in outcomes if one.drafted]
    accepted, drafted = sum(one.accepted for one in steps), sum(one.drafted for one in steps)
    histogram = [0] * (depth + 1)
    for one in steps:
        histogram[one.accepted] += 1
    block: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": depth,
    }
    if per_step:
        block["per_step_accepted"] = [one.accepted for one in steps]
        block["per_step_drafted"] = [one.drafted for one in steps]
    return block


class VllmWire(ABC):
    """What chat and completions share."""

    prefix = ""
    chunk_object = ""

    def __init__(self, config: SimulatorConfig, ask: Ask) -> None:
        self._config = config
        self._ask = ask
        self._head = {
            "id": f"{self.prefix}-{ask.request_id}",
            "object": self.chunk_object,
            "created": int(time.time()),
            "model": MODEL_NAME,
        }

    def opening(self) -> bytes:
        return b""

    def chunk(self, words: tuple[str, ...], sent_before: int, finish_reason: str | None, iterations: int) -> bytes:  # noqa: ARG002 -- not told chunk by chunk
        choice = self._choice(render(words, first=sent_before == 0), self._ids(words), finish_reason)
        return event({**self._head, "choices": [choice], **self._running_usage(sent_before + len(words))})

    def closing(self, result: Result) -> list[bytes]:
        if not self._ask.delivery.include_usage:
            return [DONE]
        last = {
            **self._head,
            "choices": [],
            "usage": self._usage(result),
            **self._signature(),
            "metrics": self._metrics(result),
        }
        return [event(last), DONE]

    @abstractmethod
    def whole(self, result: Result) -> dict[str, Any]:
        """Return the answer that is not streamed."""

    @abstractmethod
    def _choice(self, text: str, ids: list[int] | None, finish_reason: str | None) -> dict[str, Any]:
        """Return the one choice of a chunk."""

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        """Return the usage so far, where every chunk shall carry it."""
        if not self._ask.delivery.continuous_usage:
            return {}
        return {"usage": {**self._totals(completion_tokens), "completion_tokens_details": None}}

    def _totals(self, completion_tokens: int) -> dict[str, int]:
        prompt_tokens = self._ask.prompt.tokens
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }

    def _usage(self, result: Result) -> dict[str, Any]:
        details = {"cached_tokens": result.cached_tokens, "created_cache_tokens": 0}
        return {**self._totals(result.reported_tokens), "prompt_tokens_details": details}

    def _signature(self) -> dict[str, str]:
        return {"system_fingerprint": self._config.fingerprint}

    def _ids(self, words: tuple[str, ...]) -> list[int] | None:
        return [TOKEN_IDS[word] for word in words] if self._ask.delivery.token_ids else None

    def _metrics(self, result: Result) -> dict[str, Any]:
        """Return the request's timing, and its speculation where the engine speculates and is asked to tell."""
        timing, tokens = result.timing, len(result.words)
        scheduled = timing.scheduled_ns or timing.received_ns
        first = timing.first_ns or scheduled
        generation_ms = ((timing.last_ns or first) - first) / 1e6
        first_ms = (first - scheduled) / 1e6
        total_ms = first_ms + generation_ms
        metrics: dict[str, Any] = {
            "time_to_first_token_ms": first_ms,
            "generation_time_ms": generation_ms,
            "queue_time_ms": (scheduled - timing.received_ns) / 1e6,
            "mean_itl_ms": generation_ms / (tokens - 1) if tokens > 1 else None,
            "tokens_per_second": tokens / total_ms * 1000 if total_ms else None,
        }
        drafter, detail = self._config.drafter, self._config.spec_detail
        if drafter.speculates and detail != "none":
            depth = drafter.num_speculative_tokens
            metrics["speculative_decoding"] = speculation_block(result.outcomes, depth, per_step=detail == "detailed")
        return metrics


class ChatWire(VllmWire):
    """``/v1/chat/completions``."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        prompt = {"prompt_token_ids": None, "prompt_text": None}
        return event({**self._head, "choices": [choice], **self._running_usage(0), **prompt})

    def whole(self, result: Result) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": render(result.words, first=True),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": None,
        }
        finish = {"logprobs": None, "finish_reason": result.finish_reason, "stop_reason": None}
        choice = {"index": 0, "message": message, **finish, "token_ids": self._ids(result.words)}
        return {
            **self._head,
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
        delta = {"content": text}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **stop, "token_ids": ids}


class CompletionWire(VllmWire):
    """``/v1/completions``."""

    prefix = "cmpl"
    chunk_object = "text_completion"

    def whole(self, result: Result) -> dict[str, Any]:
        return {
            **self._head,
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
