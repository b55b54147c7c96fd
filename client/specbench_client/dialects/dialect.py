"""The protocol of an engine's wire, and the words in which every engine's answer is told.

Pure: a dialect builds a body and reads what arrived, after the stopwatch has stopped. It says what the engine said;
what it did not say is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from specbench_api.errors import SpecbenchError
from specbench_api.outcome.record import AcceptanceSource
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.workload import Output, Sampling
from specbench_client.chat import Message
from specbench_client.dialects.facts.reading import Reading
from specbench_client.slices import Slices
from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.sse import Event


class BadAnswer(SpecbenchError):
    """An answer that cannot be counted; becomes the record's `error_class` and `error`."""

    def __init__(self, message: str, error_class: ErrorClass) -> None:
        super().__init__(message)
        self.error_class = error_class


@dataclass(frozen=True, slots=True)
class Ask:
    """One request in no engine's words. `seed` is this request's own; `sampling.seed` is where it was drawn from."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    output: Output
    seed: int
    markers: tuple[str, ...] = ()
    """Special tokens by which the model marks its thoughts, and which the answer's text must hold."""

    @property
    def token_ids(self) -> Sequence[int] | None:
        """The prompt as token ids, where it is one."""
        return self.messages[-1].token_ids

    @property
    def prompt(self) -> dict[str, Any]:
        """The fields that carry the prompt, alike on every engine with OpenAI's routes."""
        if self.token_ids is not None:
            return {"prompt": list(self.token_ids)}
        return {"messages": [{"role": one.role, "content": one.content} for one in self.messages]}


class Chunk(NamedTuple):
    """One chunk with content: text, or tokens without text (an end-of-sequence token). `tokens` None: not told.

    `gathered`: the read that brought it brought more after it, see `sse`.
    """

    ns: int
    tokens: int | None
    gathered: bool = False


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is known of one request's drafting, corrected so that tokens that were not delivered do not count.

    steps = draft_steps + (output_tokens - 1 - Σ(accepted + 1)): all decode steps of the target, those without drafts
    too. Without a drafter only `steps` is set.
    """

    steps: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    step_accepted: tuple[int, ...] | None = None
    source: AcceptanceSource | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer.

    `output_tokens` is what the engine's usage says, `output_tokens_client` what its chunks told one by one.
    `reasoning` is text that the engine marks as thought; it is counted, and does not belong into the history.
    """

    text: str
    content: tuple[Chunk, ...]
    acceptance: Acceptance
    reasoning: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_client: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    fingerprint: str | None = None
    thought_tokens: int | None = None
    """Of its tokens, those of the thoughts before the answer, as far as its chunks tell."""


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """The engine's own counters at one moment, summed over its label sets; None where it has none."""

    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    started_s: float | None = None
    """When the engine's process started, where it tells: a change of it is a restart that counters alone may hide."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the engine says of itself."""

    model: str | None = None
    version: str | None = None


class Dialect(Protocol):
    """One engine's wire."""

    kind: EngineKind
    path: str
    """Where completions are asked for."""
    tokens_path: str
    """The same for prompts that are token ids."""
    health_path: str
    keeps_special_tokens: bool
    """Whether it can be asked to leave special tokens in a completion's text."""
    metrics_path: str
    identity_paths: tuple[str, ...]
    """What to GET for `identity`; JSON, any of them may be missing."""
    readings: tuple[Reading, ...]
    """Which of its pages tells which fact of a launch."""
    state_path: str | None
    """What to GET for `speculating`; JSON."""

    def body(self, ask: Ask) -> dict[str, Any]:
        """The JSON body: sampling explicit, usage and acceptance asked for; no stream if `output.stream` is false."""
        ...

    def read(self, events: Sequence[Event], *, drafting: bool) -> Slices[Answer]:
        """The answer, in slices; `drafting`: whether this arm has a drafter. Raises BadAnswer."""
        ...

    def read_whole(self, document: Any, *, drafting: bool) -> Answer:
        """The answer of a request that was not streamed: no chunks, and what only they would tell. Raises BadAnswer."""
        ...

    def counters(self, metrics: str) -> EngineCounters:
        """Read a Prometheus page; what is not on it is None."""
        ...

    def identity(self, documents: Mapping[str, Any]) -> Identity:
        """Read what `identity_paths` gave, by path; a missing one is None or left out."""
        ...

    def speculating(self, state: Any, metrics: str) -> bool | None:
        """Whether the engine really has a drafter at work; None where it does not tell."""
        ...
