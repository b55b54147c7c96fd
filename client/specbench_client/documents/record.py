"""A record: one request (one turn), one row of Parquet. Missing values are None, never 0.

Times are int64 nanoseconds on the client's monotonic clock, counted from the point's start; the manifest contains that
start on the monotonic and on the wall clock. The docstrings of the columns are printed into docs/reference/records.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class RecordPhase(StrEnum):
    """The phase of a point in which a request was sent. Figures use only `steady`."""

    WARMUP = "warmup"
    """Sent before the load of a launch's first point, until step times are steady."""
    RAMP = "ramp"
    """Started before the load was complete."""
    STEADY = "steady"
    """Started and ended while the load was complete. Figures are computed over these requests only."""
    DRAIN = "drain"
    """Ended after the load started to decrease. Fillers that keep the load complete until then are drain too."""


class AcceptanceSource(StrEnum):
    """Where a record's acceptance comes from, best first."""

    PER_STEP = "per_step"
    """The engine reported the accepted tokens of every step."""
    PER_REQUEST = "per_request"
    """The engine reported the totals of the request."""
    COUNTERS = "counters"
    """From the engine's counters, over all requests."""
    CHUNKS = "chunks"
    """From the stream: each chunk with content counts as one step. Figures use it only if the engine's counters, or
    other answers of the point, show that it drafted."""


class AnswerFlaw(StrEnum):
    """What is wrong with a complete answer. Of several flaws, a record has the first of this list."""

    EMPTY = "Empty"
    """It has no visible text. Reasoning that was cut and tool calls need none."""
    BROKEN_TEXT = "BrokenText"
    """It contains control characters, or replacement characters (U+FFFD) other than a last character that was cut."""
    LOOP = "Loop"
    """Its last 64 or more tokens are one text at least four times in a row. Tokens are converted to characters."""
    UNFINISHED = "Unfinished"
    """It reached its maximum of tokens without what `answers` demands. The flaws below are of answers that ended."""
    INVALID_JSON = "InvalidJson"
    """It is no JSON, or the arguments of a tool call are not."""
    SCHEMA_MISMATCH = "SchemaMismatch"
    """It is JSON, but does not match `answers.jsonSchema`."""
    NO_TOOL_CALL = "NoToolCall"
    """It calls none of `answers.tools`."""
    TOOL_CALL_MISMATCH = "ToolCallMismatch"
    """It calls a tool that was not offered, or with arguments that do not match its parameters."""
    WRONG_ANSWER = "WrongAnswer"
    """It differs from the expected answer, see `answers.expected`."""
    NOT_JUDGED = "NotJudged"
    """Whether it matches its schema is unknown, and `judged` is false: that took more than 1 s of CPU time, ten
    answers of this load had taken as long before, or 256 MiB of answers and their records were waiting."""


class TokenConflict(StrEnum):
    """How an answer's stream contradicts its token count. Of several contradictions, a record has the first found."""

    UNSENT_TOKENS = "UnsentTokens"
    """The usage includes tokens of which no text was sent, such as hidden reasoning: it has more tokens than the text
    has bytes, or reasoning tokens without text. output_tokens leaves reasoning out that the usage counts apart."""
    UNEQUAL_USAGES = "UnequalUsages"
    """The stream ends with several usages that differ, or that are below an earlier one."""
    MORE_CHUNKS_THAN_TOKENS = "MoreChunksThanTokens"
    """More chunks have text than there are tokens, without blank text and `<think>` at the start."""
    ABOVE_MAX_TOKENS = "AboveMaxTokens"
    """There are more tokens than the request allows. If its chunks confirm the count, output_tokens has it."""
    UNCOUNTED_START = "UncountedStart"
    """The first chunk is blank text (white space, characters without width) or `<think>`, and chunks are not counted: a
    template or a gateway may have written it. The count stands; TTFT, the tokens after the first chunk, and with them
    TPOT, are unknown."""
    LARGE_START = "LargeStart"
    """The first chunk has more than 8 tokens and 5 % of the answer, by its share of the bytes, and chunks are not
    counted: a gateway collected them. The count and TTFT stand; the tokens after the first chunk, and with them TPOT,
    are unknown."""


def answer_digest(text: str) -> str:
    """Return what identifies an answer in comparisons: the SHA-256 of its text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """The columns of a record, in order."""

    request_id: str
    """Sent to the engine as `X-Request-Id`: point, attempt, conversation, turn."""
    prompt_id: str
    """Id of the prompt in the workload. Ids of warm-up requests start with `warmup-`, those of fillers with
    `filler-`."""
    category: str | None
    """Category of the prompt; null if it has none."""
    conversation_id: str
    """One pass of one prompt, `PROMPT#PASS`, shared by its turns."""
    turn: int
    """Turn of the conversation, from 0."""
    repeat: int
    """Repeat of the point, from 0."""
    phase: str
    """Phase of the point: see Phases."""
    stream_index: int
    """Index of the concurrent stream, over all workers, from 0; in an open loop, of the conversation."""
    intended_ns: int
    """Intended send time. Closed loop: when the stream became free; open loop: as scheduled; later turns: when the
    previous answer ended. Latencies are measured from here."""
    connect_ns: int | None
    """When the client requested a connection: time before it is the client's delay, time after it the server's. Null:
    no connection was requested."""
    sent_ns: int | None
    """When the request was written to the socket, after connecting. Null: it was never sent."""
    first_byte_ns: int | None
    """First byte of the response, which is its HTTP header. Null: nothing was received."""
    first_token_ns: int | None
    """First chunk of chunk_ns. Null: the request failed, was not streamed, or its answer has no text."""
    last_token_ns: int | None
    """Last chunk with text, reasoning or a tool call; if not streamed, the last byte of the answer. Null: the request
    failed, or its answer has no text."""
    chunk_ns: list[int] | None
    """Arrival of each chunk with content: text, reasoning, a tool call, or tokens without text where the engine counts
    the tokens of chunks. Without blank text or `<think>` at the start that a running usage does not count. Chunks
    after last_token_ns have an end-of-sequence token. Equal times: one read returned them together, see Clocks. Null:
    failed or not streamed."""
    chunk_tokens: list[int] | None
    """Tokens of each chunk with content. Null if the engine does not report them for every chunk."""
    chunk_coalesced: list[bool] | None
    """Whether the read that returned a chunk also returned data after it: the next chunk, or the end of the answer. The
    chunk's time is then late, see Clocks. Null where chunk_ns is."""
    timestamp_source: str
    """Source of the arrival times: see Clocks."""
    input_tokens: int | None
    """Tokens of the prompt with its history, as counted by the engine. Null: not reported, or the request failed."""
    output_tokens: int | None
    """Tokens of the answer, as counted by the engine. Null: not reported, contradicted (see token_conflict), or the
    request failed."""
    output_tokens_client: int | None
    """Tokens of the answer, summed over its chunks. Null if the chunks do not report them."""
    steps: int | None
    """Decode steps of the target after the first token: draft steps, and steps without drafts. Null if unknown."""
    draft_steps: int | None
    """Decode steps that verified drafts. Null if unknown, and on the baseline."""
    drafted_tokens: int | None
    """Draft tokens proposed. Null if not reported, and on the baseline."""
    accepted_tokens: int | None
    """Draft tokens accepted and delivered. Null if unknown, and on the baseline."""
    step_accepted: list[int] | None
    """Accepted tokens of each draft step, in order. Null if not reported."""
    acceptance_source: str | None
    """Source of steps and acceptance: see Acceptance. Null: unknown, or there is no drafter."""
    cached_tokens: int | None
    """Prompt tokens that came from a prompt cache. Null if not reported."""
    finish_reason: str | None
    """Why the answer ended, as reported by the engine: stop, length or tool_calls, whatever its spelling of them. Null:
    not reported, or the request failed, as it did if the engine reports another end (error, abort, content_filter)."""
    error_class: str | None
    """Why the request has no usable answer: see Errors. Null: the answer is usable."""
    error: str | None
    """Error text, if possible the engine's own, truncated. Null where error_class is."""
    output_sha256: str | None
    """SHA-256 of the answer's text, in hex, reasoning first. Null: the request failed."""
    output_text: str | None = None
    """The answer's text, reasoning first. Null unless the run stores it (`--keep-text`)."""
    output_token_ids: list[int] | None = None
    """Token ids of the answer. Always null: no supported engine reports them."""
    step_drafted: list[int] | None = None
    """Draft tokens proposed in each draft step, in the order of step_accepted. Null if not reported."""
    reasoning_tokens: int | None = None
    """Tokens of the reasoning before the answer, as marked by the engine; 0 if no token is marked. Null: chunks report
    no tokens, or the request failed."""
    cut_tokens: int | None = None
    """Accepted draft tokens of the last draft step that were cut off at the end of the answer. The engine's counters
    include them; accepted_tokens and step_accepted do not. Null if unknown, and on the baseline."""
    max_tokens: int | None = None
    """Limit of the answer's tokens, if the prompt has one of its own; null: `output.maxTokens` of the workload."""
    connection: str | None = None
    """`new`: opened for this request, with the handshakes of TCP and TLS, in sent_ns - connect_ns. `kept`: used before,
    or opened ahead (https). `reopened`: the server closed a kept one without a byte of an answer, and the request was
    sent again on a new one, whose times these are. Null: none was requested."""
    judged: bool = False
    """Whether the client examined the answer for flaws. False: the request failed, was imported, or is NotJudged."""
    flaw: str | None = None
    """What is wrong with the answer: see Flaws. Null: nothing was found, or it was not judged."""
    ended_ns: int | None = None
    """When the exchange ended: the last byte of the response, or when the client gave it up (also a stream that is open
    1 s after [DONE]). The stream of a closed loop sends its next request then. Null: nothing was sent."""
    token_conflict: str | None = None
    """How the stream contradicts the engine's token count: see Token conflicts. Null: it does not."""
