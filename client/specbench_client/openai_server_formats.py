"""What the servers of the simulator and of the research runtime share: OpenAI's bodies and responses as in vLLM.

It contains messages and stream options of request bodies, server-sent events, error objects, the statistics of a
response, and Prometheus' text format.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
