"""vLLM's answers, key for key and in its order, so that one dialect reads both.

One chunk is one step and may hold several tokens. The request's statistics ride on the usage chunk, which only comes
where it is asked for; not streamed they stand in the answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench_client.research.request import Asked
from specbench_client.research.runtime import Step

DONE = b"data: [DONE]\n\n"


def event(document: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def error_object(message: str, kind: str, status: int) -> dict[str, Any]:
    """Return an error as vLLM words it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


@dataclass(slots=True)
class Times:
    """When a request came, began, had its first and its last token; monotonic ns."""

    received_ns: int
    begun_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def document(self, tokens: int) -> dict[str, float | None]:
        """As vLLM tells them."""
        first_ms, rest_ms = (self.first_ns - self.begun_ns) / 1e6, (self.last_ns - self.first_ns) / 1e6
        whole_ms = first_ms + rest_ms
        return {
            "time_to_first_token_ms": first_ms,
            "generation_time_ms": rest_ms,
            "queue_time_ms": (self.begun_ns - self.received_ns) / 1e6,
            "mean_itl_ms": rest_ms / (tokens - 1) if tokens > 1 else None,
            "tokens_per_second": tokens / whole_ms * 1000 if whole_ms else None,
        }


def speculation(steps: Sequence[Step], depth: int) -> dict[str, Any]:
    """Return `metrics.speculative_decoding`, of the steps that verified drafts."""
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
class Wire:
    """Writes one answer. `depth`: drafts a step at most; 0: no drafter, and nothing is said of drafts."""

    asked: Asked
    model: str
    fingerprint: str
    depth: int
    times: Times
    steps: list[Step] = field(default_factory=list)
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> bytes:
        """Return what comes before the first token of a chat; nothing before that of a completion."""
        if not self.asked.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return event({**self._head("chunk"), "choices": [choice], **self._running()})

    def chunk(self, step: Step, text: str, finish_reason: str | None) -> bytes:
        """Return the chunk of a step."""
        self.steps.append(step)
        content = {"delta": {"content": text}} if self.asked.chat else {"text": text}
        ids = list(step.tokens) if self.asked.token_ids else None
        reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice = {"index": 0, **content, **reason, "token_ids": ids}
        return event({**self._head("chunk"), "choices": [choice], **self._running()})

    def closing(self) -> bytes:
        """Return the usage, where it is asked for, and the end."""
        if not self.asked.include_usage:
            return DONE
        return event({**self._head("chunk"), "choices": [], **self._account()}) + DONE

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """Return an answer that is not streamed."""
        content = {"message": {"role": "assistant", "content": text}} if self.asked.chat else {"text": text}
        ids = [token for step in self.steps for token in step.tokens] if self.asked.token_ids else None
        reason = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice = {"index": 0, **content, **reason, "token_ids": ids}
        return {**self._head("whole"), "choices": [choice], **self._account()}

    def _head(self, kind: str) -> dict[str, Any]:
        name = "chat.completion" if self.asked.chat else "text_completion"
        suffix = ".chunk" if self.asked.chat and kind == "chunk" else ""
        prefix = "chatcmpl" if self.asked.chat else "cmpl"
        ident = f"{prefix}-{self.asked.request_id}"
        return {"id": ident, "object": name + suffix, "created": self.created, "model": self.model}

    def _usage(self) -> dict[str, Any]:
        prompt, tokens = len(self.asked.job.prompt), sum(len(step.tokens) for step in self.steps)
        return {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}

    def _running(self) -> dict[str, Any]:
        return {"usage": self._usage()} if self.asked.continuous_usage else {}

    def _account(self) -> dict[str, Any]:
        usage = self._usage()
        metrics: dict[str, Any] = self.times.document(usage["completion_tokens"])
        if self.depth:
            metrics["speculative_decoding"] = speculation(self.steps, self.depth)
        cached = {"prompt_tokens_details": {"cached_tokens": 0}}
        return {"usage": usage | cached, "system_fingerprint": self.fingerprint, "metrics": metrics}
