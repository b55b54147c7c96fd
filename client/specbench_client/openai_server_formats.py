"""What the servers of the simulator and of the research runtime share: OpenAI's bodies and responses as in vLLM.

It contains messages and stream options of request bodies, server-sent events, error objects, and the statistics of a
response.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

COMPLETION_MAX_TOKENS = 16
"""Default for completions, as in OpenAI's API and all engines; a chat fills the context."""
DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


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


def compact_json(document: Any) -> str:
    """Return JSON without spaces, as engines send it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def sse_event(document: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + compact_json(document).encode() + b"\n\n"


def error_object(message: str, kind: str, status: int, param: str | None = None) -> dict[str, Any]:
    """Return an error object in vLLM's format."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def timing_metrics(received_ns: int, started_ns: int, first_ns: int, last_ns: int, tokens: int) -> dict[str, Any]:
    """Return the times of a response as vLLM reports them in `metrics`.

    The times are monotonic ns: of its arrival, of its start, of its first and of its last token.
    """
    first_ms, rest_ms = (first_ns - started_ns) / 1e6, (last_ns - first_ns) / 1e6
    total_ms = first_ms + rest_ms
    return {
        "time_to_first_token_ms": first_ms,
        "generation_time_ms": rest_ms,
        "queue_time_ms": (started_ns - received_ns) / 1e6,
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
