"""The server's counters, with vLLM's names. Counters of speculation exist only with a drafter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from specbench_client.research.runtime import GenerationStep

FINISH_REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class ResearchCounters:
    """Counters, accessed only on the event loop. `depth`: maximum draft tokens per step; 0 without a drafter."""

    model: str
    depth: int
    started_s: float = field(default_factory=time.time)
    prompt_tokens: int = 0
    output_tokens: int = 0
    draft_steps: int = 0
    drafted: int = 0
    accepted_at: list[int] = field(init=False)
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    running: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        self.accepted_at = [0] * self.depth

    def count(self, step: GenerationStep) -> None:
        """Count a step."""
        self.output_tokens += len(step.tokens)
        if step.drafted:
            self.draft_steps += 1
            self.drafted += step.drafted
            for position in range(step.accepted):
                self.accepted_at[position] += 1

    def page(self) -> str:
        """Return the page in Prometheus' text format."""
        return "\n".join([*self._requests(), *self._tokens(), *self._speculation()]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self.started_s!r}"
        yield from self._family("num_requests_running", "gauge", self.running)
        yield from self._family("num_requests_waiting", "gauge", self.waiting)
        yield "# TYPE vllm:request_success_total counter"
        for reason, count in self.finished.items():
            yield self._sample("request_success_total", count, finished_reason=reason)

    def _tokens(self) -> Iterator[str]:
        yield from self._family("prompt_tokens_total", "counter", self.prompt_tokens)
        yield from self._family("prompt_tokens_cached_total", "counter", 0)  # there is no prefix cache
        yield from self._family("generation_tokens_total", "counter", self.output_tokens)

    def _speculation(self) -> Iterator[str]:
        if not self.depth:
            return
        yield from self._family("spec_decode_num_drafts_total", "counter", self.draft_steps)
        yield from self._family("spec_decode_num_draft_tokens_total", "counter", self.drafted)
        yield from self._family("spec_decode_num_accepted_tokens_total", "counter", sum(self.accepted_at))
        yield "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter"
        for position, count in enumerate(self.accepted_at):
            yield self._sample("spec_decode_num_accepted_tokens_per_pos_total", count, position=str(position))

    def _family(self, name: str, kind: str, value: float) -> Iterator[str]:
        yield f"# TYPE vllm:{name} {kind}"
        yield self._sample(name, value)

    def _sample(self, name: str, value: float, **labels: str) -> str:
        merged = {"engine": "0", "model_name": self.model, **labels}
        rendered = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(merged.items()))
        return f"vllm:{name}{{{rendered}}} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
