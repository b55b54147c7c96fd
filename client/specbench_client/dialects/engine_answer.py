"""What an engine answers, the same for all engines: chunks, answers, acceptance, and why an answer cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from specbench_api.errors import SpecbenchError
from specbench_client.documents.record import AcceptanceSource, TokenConflict
from specbench_client.transport.error_class import ErrorClass


class BadAnswer(SpecbenchError):
    """An answer that cannot be used; it becomes the record's `error_class` and `error`."""

    def __init__(self, message: str, error_class: ErrorClass) -> None:
        super().__init__(message)
        self.error_class = error_class


class AnswerChunk(NamedTuple):
    """One chunk with content: text, or tokens without text (an end-of-sequence token).

    `tokens` is None if the engine does not report them. `coalesced`: see `SseEvent`.
    """

    ns: int
    tokens: int | None
    coalesced: bool = False


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """Acceptance of one request, corrected so that tokens that were not delivered do not count.

    steps = draft_steps + (output_tokens - 1 - Σ(accepted + 1)): all decode steps of the target, including those without
    drafts. Without a drafter only `steps` is set. `cut_tokens`: accepted tokens of the last draft step that were not
    delivered, which are in no other count.
    """

    steps: int | None = None
    draft_steps: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    step_accepted: tuple[int, ...] | None = None
    step_drafted: tuple[int, ...] | None = None
    source: AcceptanceSource | None = None
    cut_tokens: int | None = None


class ToolCall(NamedTuple):
    """A tool call of an answer. `arguments` is the text as generated, which should be JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """A complete answer.

    `output_tokens` is the count in the engine's usage, `output_tokens_client` the sum over its chunks. If the stream
    contradicts the count, see `dialects.token_conflicts`.
    `reasoning` is text outside the content: reasoning, tool calls, a refusal. Its tokens count, but it is not part of
    the history.
    """

    text: str
    content: tuple[AnswerChunk, ...]
    acceptance: RequestAcceptance
    reasoning: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_client: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    last_text_ns: int | None = None
    """Arrival of the last chunk with text, reasoning or tool calls; None if no chunk has any."""
    reasoning_tokens: int | None = None
    """Output tokens of the reasoning before the answer; None if the chunks do not report them."""
    tool_calls: tuple[ToolCall, ...] = ()
    token_conflict: TokenConflict | None = None
    served_by: str | None = None
    """The model and the system fingerprint that the answer names; None if it names neither."""
