"""The `Dialect` protocol, and the engine-independent types of requests, answers and counters.

Pure: a dialect builds request bodies and parses answers after all times are taken. Values that an engine does not
report are None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from specbench_api.outcome.summary import CounterDeltas
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.workload import Answers, Output, Sampling
from specbench_client.chat import ChatMessage
from specbench_client.dialects.engine_answer import EngineAnswer
from specbench_client.dialects.engine_facts import FactReading
from specbench_client.dialects.recognition import EngineSignature
from specbench_client.sliced_tasks import CooperativeTask
from specbench_client.transport.sse import SseEvent


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One engine-independent request. `seed` is this request's own seed, which is derived from `sampling.seed`."""

    model: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    output: Output
    seed: int
    markers: tuple[str, ...] = ()
    """Special tokens that mark the model's reasoning, which the answer's text must contain."""
    may_reuse: bool = False
    """Whether the engine may reuse the KV cache of an earlier prompt, for engines where each request decides."""
    answers: Answers | None = None

    @property
    def token_ids(self) -> Sequence[int] | None:
        """The prompt as token ids; None if it is text."""
        return self.messages[-1].token_ids

    @property
    def prompt(self) -> dict[str, Any]:
        """The body's fields with the prompt, the same on every engine with OpenAI's routes."""
        if self.token_ids is not None:
            return {"prompt": list(self.token_ids)}
        return {"messages": [{"role": one.role, "content": one.content} for one in self.messages]}


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """The engine's own counters at one time, summed over label sets; None for a counter that it does not have."""

    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    started_s: float | None = None
    """When the engine's process started, if it reports it. A change shows a restart that counters may not show."""
    kv_cache_usage: float | None = None
    """Fraction of the KV cache in use now, the mean over the engine's workers. Cached prefixes are not in use."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """The model and version that the engine reports."""

    model: str | None = None
    version: str | None = None
    counts_drafts: bool = True
    """Whether the draft tokens that it reports, if any, are a count."""


class Dialect(Protocol):
    """The HTTP API of one engine kind."""

    kind: EngineKind
    path: str
    """Route for completions of messages."""
    tokens_path: str
    """Route for completions of token ids."""
    health_path: str
    keeps_special_tokens: bool
    """Whether the engine can be requested to leave special tokens in a completion's text."""
    metrics_path: str
    identity_paths: tuple[str, ...]
    """Paths of the JSON documents for `identity`; any of them may be missing."""
    readings: tuple[FactReading, ...]
    """The facts of a launch and the pages that contain them."""
    state_path: str | None
    """Path of the JSON document for `speculating`."""
    signature: EngineSignature | None
    """How the engine is recognised; None for plain OpenAI."""

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return the JSON body, with explicit sampling parameters and a request for usage and acceptance."""
        ...

    def read(self, events: Sequence[SseEvent], *, drafting: bool) -> CooperativeTask[EngineAnswer]:
        """Parse a streamed answer in slices; `drafting`: whether this arm has a drafter. Raises BadAnswer."""
        ...

    def read_whole(self, document: Any, *, drafting: bool) -> EngineAnswer:
        """Parse an answer that was not streamed, without chunks and the fields derived from them. Raises BadAnswer."""
        ...

    def counters(self, metrics: str) -> EngineCounters:
        """Parse a Prometheus page; counters that it does not contain are None."""
        ...

    def identity(self, documents: Mapping[str, Any]) -> EngineIdentity:
        """Parse the documents at `identity_paths`, by path; a missing one is None or left out."""
        ...

    def speculating(self, state: Any, metrics: str) -> bool | None:
        """Return whether the engine is running with a drafter; None if it does not report it."""
        ...


_COUNTER_NAMES = tuple(one.name for one in fields(EngineCounters) if one.name not in ("started_s", "kv_cache_usage"))


def counter_difference(before: EngineCounters, after: EngineCounters) -> CounterDeltas:
    """Return the increase of each counter; None where either side lacks it.

    `restarted`: a counter decreased, or the engine's process is a different one. The differences do not describe the
    point then; they are returned unchanged for the finding that reports the restart.
    """
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in _COUNTER_NAMES}
    gains = {name: end - start for name, (start, end) in pairs.items() if start is not None and end is not None}
    other_process = None not in (before.started_s, after.started_s) and before.started_s != after.started_s
    return CounterDeltas(
        **gains,
        restarted=other_process or any(gain < 0 for gain in gains.values()),
        process_started_s=after.started_s,
        output_tokens_total=after.output_tokens,
        prompt_tokens_total=after.prompt_tokens,
    )
