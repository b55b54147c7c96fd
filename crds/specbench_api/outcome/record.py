"""A record: one request (one turn), one row of Parquet. Missing is None, never 0.

Times are int64 nanoseconds on the client's monotonic clock, counted from the point's start; the manifest holds that
start on the monotonic and on the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RecordPhase(StrEnum):
    """Which part of a point a request belongs to. Only `steady` is reported."""

    WARMUP = "warmup"
    RAMP = "ramp"
    STEADY = "steady"
    DRAIN = "drain"


class AcceptanceSource(StrEnum):
    """Where the acceptance of a record comes from, best first."""

    PER_STEP = "per_step"
    PER_REQUEST = "per_request"
    COUNTERS = "counters"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class Record:
    """The columns, in order. The comments are the documentation of the file."""

    request_id: str  # sent to the engine as X-Request-Id
    prompt_id: str  # id of the prompt in the workload
    category: str | None  # category of the prompt
    conversation_id: str  # one pass of one prompt; its turns share it
    turn: int  # turn of the conversation, from 0
    repeat: int  # repeat of the point
    phase: str  # warmup, ramp, steady, drain
    stream: int  # which of the concurrent streams
    intended_ns: int  # when the schedule wanted it sent
    sent_ns: int | None  # when it was handed to the socket
    first_byte_ns: int | None  # first byte of the answer
    first_token_ns: int | None  # first chunk with content
    last_token_ns: int | None  # last chunk with content
    chunk_ns: list[int] | None  # arrival of each content chunk
    chunk_tokens: list[int] | None  # tokens of each content chunk; null where the engine does not tell
    clock: str  # kernel: the kernel's receive time; user: read in our process
    input_tokens: int | None  # prompt tokens, as the engine counts them
    output_tokens: int | None  # answer's tokens, as the engine counts them
    output_tokens_client: int | None  # answer's tokens, as the chunks told them
    steps: int | None  # decode steps of the target: draft steps + steps without drafts
    draft_steps: int | None  # steps that verified drafts
    drafted_tokens: int | None  # draft tokens proposed
    accepted_tokens: int | None  # draft tokens accepted
    step_accepted: list[int] | None  # accepted drafts of each draft step, where the engine tells
    acceptance_source: str | None  # per_request, per_step, counters, chunks
    cached_tokens: int | None  # prompt tokens that came from a prompt cache
    finish_reason: str | None  # stop, length, …
    error_class: str | None  # refused, http_4xx, http_5xx, reset, timeout, malformed, truncated_stream
    error: str | None  # the engine's own words
    output_sha256: str | None  # SHA-256 of the answer's text
    output_text: str | None = None  # only where the run asks for it
    output_token_ids: list[int] | None = None  # only where the run asks for it
