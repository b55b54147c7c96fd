"""A record: one request (one turn), one row of Parquet. Missing is None, never 0.

Times are int64 nanoseconds on the client's monotonic clock, counted from the point's start; the manifest holds that
start on the monotonic and on the wall clock. What stands below a column is its documentation: docs/records.md is
printed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RecordPhase(StrEnum):
    """Which part of a point a request belongs to. Only `steady` is reported."""

    WARMUP = "warmup"
    """Before the load of a launch's first point, until step times are steady."""
    RAMP = "ramp"
    """Begun before the load was full."""
    STEADY = "steady"
    """Begun and ended while the load was full. Figures are over these alone."""
    DRAIN = "drain"
    """Ended after the load had begun to fall, or a filler that held it then."""


class AcceptanceSource(StrEnum):
    """Where the acceptance of a record comes from, best first."""

    PER_STEP = "per_step"
    """The engine told every step's accepted drafts."""
    PER_REQUEST = "per_request"
    """The engine told the request's totals."""
    COUNTERS = "counters"
    """From the engine's counters, over all requests."""
    CHUNKS = "chunks"
    """From the stream: each chunk with content is taken for one step."""


@dataclass(frozen=True, slots=True)
class Record:
    """The columns, in order."""

    request_id: str
    """Sent to the engine as `X-Request-Id`: point, attempt, conversation, turn."""
    prompt_id: str
    """Id of the prompt in the workload. `warmup-…` and `filler-…` only warmed up or held the load: never steady."""
    category: str | None
    """Category of the prompt; null where it has none."""
    conversation_id: str
    """One pass of one prompt, `PROMPT#PASS`; its turns share it."""
    turn: int
    """Turn of the conversation, from 0."""
    repeat: int
    """Repeat of the point, from 0."""
    phase: str
    """Part of the point: see Phases."""
    stream: int
    """Which of the concurrent streams, over all workers, from 0; in an open loop, which conversation."""
    intended_ns: int
    """When the request was to be sent: closed loop, when its stream was free; open loop, by the schedule; later turns,
    when the answer before them had ended. Latency counts from here."""
    connect_ns: int | None
    """When the client asked for its connection: what lies before is the client's delay, what follows the server's.
    Null: it never did."""
    sent_ns: int | None
    """When it was handed to the socket, whose connection stood by then. Null: it was never sent."""
    first_byte_ns: int | None
    """First byte of the answer, its HTTP head. Null: nothing came."""
    first_token_ns: int | None
    """First chunk with content. Null: the request failed, or was not streamed, or its answer is empty."""
    last_token_ns: int | None
    """Last chunk with content; the answer's last byte where it was not streamed. Null: failed, or an empty answer."""
    chunk_ns: list[int] | None
    """Arrival of each chunk with content. Equal times: one read gathered them, see Clocks. Null: failed or not
    streamed."""
    chunk_tokens: list[int] | None
    """Tokens of each of these chunks. Null where the engine does not tell them for every one."""
    chunk_gathered: list[bool] | None
    """Whether the read that brought a chunk brought more after it: the next chunk, or what ends the answer. Its time is
    then late, see Clocks. Null where chunk_ns is."""
    clock: str
    """Who took the times of arrival: see Clocks."""
    input_tokens: int | None
    """Tokens of the prompt with its history, as the engine counts them. Null: it did not say, or the request failed."""
    output_tokens: int | None
    """Tokens of the answer, as the engine counts them. Null: it did not say, or the request failed."""
    output_tokens_client: int | None
    """Tokens of the answer, summed over what its chunks told. Null where they tell nothing."""
    steps: int | None
    """Decode steps of the target after the first token: draft steps, and steps without drafts. Null where nothing tells
    them."""
    draft_steps: int | None
    """Of them, those that verified drafts. Null where nothing tells them, and on the baseline."""
    drafted_tokens: int | None
    """Draft tokens proposed. Null where the engine does not tell, and on the baseline."""
    accepted_tokens: int | None
    """Draft tokens accepted and delivered. Null where nothing tells them, and on the baseline."""
    step_accepted: list[int] | None
    """Accepted drafts of each draft step, in order. Null where the engine does not tell."""
    acceptance_source: str | None
    """Where steps and acceptance come from: see Acceptance. Null: nothing tells them, or there is no drafter."""
    cached_tokens: int | None
    """Of the prompt's tokens, those from a prompt cache. Null where the engine does not tell."""
    finish_reason: str | None
    """Why the answer ended, in the engine's word: stop, length, … Null: it did not say, or the request failed."""
    error_class: str | None
    """Why the request has no usable answer: see Errors. Null: it has one."""
    error: str | None
    """What was seen then, in the engine's own words where it had any, cut at some length. Null where error_class is."""
    output_sha256: str | None
    """SHA-256 of the answer's text, in hex, thoughts before the rest. Null: the request failed."""
    output_text: str | None = None
    """That text. Null unless the run keeps it (`--keep-text`)."""
    output_token_ids: list[int] | None = None
    """Token ids of the answer. No engine of this version tells them: always null."""
    thought_tokens: int | None = None
    """Tokens of the thoughts before the answer, where the engine marks them: 0 where it marks none. Null: its chunks
    tell no tokens, or the request failed."""
