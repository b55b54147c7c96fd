"""Parses answers of OpenAI's chat and completion routes: JSON chunks with deltas, usage and a final [DONE].

The parser accepts what differs between servers (nulls, missing keys, text as a list of parts, other names of finish
reasons) and rejects what would be miscounted: invalid JSON, an error in mid-stream, a stream without its end or its
usage. Events that are no JSON object are ignored: [DONE], keep-alives, an HTML page of a proxy. If the answer is not
complete without them, the last of them is in the error message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from specbench_client.bounded_json import LARGE_JSON_BYTES, parse_engine_json
from specbench_client.cooperative_tasks import CHUNKS_PER_SLICE, CooperativeTask
from specbench_client.dialects.engine_answer import AnswerChunk, BadAnswer, EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.dialects.engine_facts import MAX_FACT_CHARS
from specbench_client.dialects.metrics_page import MAX_COUNT
from specbench_client.documents.record import AcceptanceSource
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import (
    MAX_ERROR_BODY_BYTES,
    error_message_in,
    replace_lone_surrogates,
    truncate,
)
from specbench_client.transport.sse import DONE, SseEvent

COUNTED_STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
"""The fields of a body that request a stream with token counts in each chunk."""
_MAX_REASON_CHARS = 80
_USAGE_REMEDY = "which some servers report only without streams (output.stream)"
_CLIENT_ERRORS = range(400, 500)
_DIGITS = re.compile(r"[0-9]{1,16}")
_USAGE_FIELDS = ("completion_tokens", "prompt_tokens", "prompt_tokens_details")
_CACHED_TOKENS = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cached_tokens",),
    ("cache_read_input_tokens",),
)
"""Where a usage has the prompt tokens that were read from a cache: OpenAI twice, DeepSeek, Moonshot, Anthropic. A
gateway may write 0 under one name and the count under another."""

FINISH_REASONS: dict[str, str | None] = {
    **dict.fromkeys(("", "null", "none", "not_finished")),
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(("stop_token", "stop_str", "stop_string", "eos_found", "endoftext", "repetition"), "stop"),
    **dict.fromkeys(
        (
            "length",
            "max_tokens",
            "max_new_tokens",
            "max_output_tokens",
            "max_length",
            "model_length",
            "model_context_window_exceeded",
            "token_limit",
        ),
        "length",
    ),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "tool_calls"),
}
"""Spelling of a server, in lower case → finish reason; None: not finished. All others are ends of failed answers."""
_REASON_TYPE = re.compile(r"(?:finish_?)?reason[._]")
"""Name of the type before a finish reason: `FinishReason.STOP`, `FINISH_REASON_STOP`, `REASON_STOP`."""
_TEXT_KEYS = ("text", "thinking", "content", "reasoning", "summary", "value")
"""Keys of an object with text, as in the parts of a content; an object without them (encrypted reasoning) has none."""
_MAX_TEXT_DEPTH = 8
_REASONING_PARTS = ("thinking", "reasoning")
"""Types of the parts of a content that are not part of the answer."""
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "reasoning_text", "thought")
"""Keys of reasoning. Some servers send the same text under two of them: the first that has text counts."""


class StreamDelta(NamedTuple):
    """One chunk: its text, and the whole document for fields that an engine adds."""

    ns: int
    document: dict[str, Any]
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    coalesced: bool = False
    """See `SseEvent`."""
    calls: Any = None
    """Its parts of tool calls, as sent; their names and arguments are in `reasoning` as well."""
    tokens_so_far: int | None = None
    """Output tokens of the answer up to here, as its usage counts them; None if it counts none."""


_new_chunk: Callable[[tuple[int, int | None, bool]], AnswerChunk] = partial(tuple.__new__, AnswerChunk)
_new_delta: Callable[[tuple[int, dict[str, Any], str, str, str | None, bool, Any, int | None]], StreamDelta] = partial(
    tuple.__new__, StreamDelta
)
"""Constructs a StreamDelta without a Python-level call: it runs once for each chunk."""


@dataclass(frozen=True, slots=True)
class ChatStream:
    """A complete stream. `usage`: see `_usage_in`; `last`: the last document with a usage."""

    deltas: tuple[StreamDelta, ...]
    usage: dict[str, Any]
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return replace_lone_surrogates("".join([delta.text for delta in self.deltas]))

    @property
    def reasoning(self) -> str:
        return replace_lone_surrogates("".join([delta.reasoning for delta in self.deltas]))

    @property
    def finish_reason(self) -> str | None:
        return next((delta.finish_reason for delta in reversed(self.deltas) if delta.finish_reason), None)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, whose parts are joined by their index, in the order in which they begin.

        Some servers omit the index or always send 0: a name with another id begins another call, too.
        """
        calls: list[list[ToolCall]] = []
        current: dict[int, tuple[str, list[ToolCall]]] = {}
        for sent in [delta.calls for delta in self.deltas if delta.calls]:
            for position, call in enumerate(sent):
                part, index, sent_id = _part_of_call(call), count_in(call, "index"), text_in(call, "id") or ""
                key = position if index is None else index
                begun_id, parts = current.get(key, ("", []))
                if not parts or (part.name and begun_id and sent_id not in ("", begun_id)):
                    begun_id, parts = sent_id, []
                    calls.append(parts)
                parts.append(part)
                current[key] = (begun_id or sent_id, parts)
        return tuple(
            ToolCall(
                replace_lone_surrogates(next((part.name for part in call if part.name), "")),
                replace_lone_surrogates("".join(part.arguments for part in call)),
            )
            for call in calls
        )


def read_stream(events: Sequence[SseEvent]) -> CooperativeTask[ChatStream]:
    """Parse a stream with usage. Raises BadAnswer: malformed, truncated_stream, or an error reported by the engine."""
    chunks = [event for event in events if event.data]
    deltas: list[StreamDelta] = []
    for start in range(0, len(chunks), CHUNKS_PER_SLICE):
        deltas += [_parse_delta(*event) for event in chunks[start : start + CHUNKS_PER_SLICE]]
        yield
    _remove_summary(deltas)
    stream = ChatStream(tuple(deltas), *_usage_in(deltas))
    missing = []
    if stream.finish_reason is None and not any(chunk.data.strip() == DONE for chunk in chunks):
        missing.append("a finish reason or [DONE]")
    if count_in(stream.usage, "completion_tokens") is None:
        missing.append("the requested usage" if missing else f"the requested usage, {_USAGE_REMEDY}")
    if missing:
        count = sum(bool(delta.document.get("choices")) for delta in deltas)
        message = f"the stream ended after {count} chunks without {' and without '.join(missing)}"
        # The last event that is no chunk may be the reason.
        others = [
            chunk.data
            for chunk, delta in zip(chunks, deltas, strict=True)
            if not (delta.document.get("choices") or delta.document.get("usage")) and chunk.data.strip() != DONE
        ]
        message += f": the server sent {truncate(others[-1])}" if others else ""
        raise BadAnswer(message, ErrorClass.TRUNCATED_STREAM)
    return stream


def _remove_summary(deltas: list[StreamDelta]) -> None:
    """Remove the text of a message at the end of deltas, which had it already: MiniMax ends its streams with one.

    Servers that send messages only send pieces in them.
    """
    at = next((at for at in reversed(range(len(deltas))) if deltas[at].text or deltas[at].reasoning), None)
    if at is None or deltas[at].document["choices"][0].get("delta"):
        return
    parts = [each for each in deltas[:at] if (each.text or each.reasoning) and each.document["choices"][0].get("delta")]
    if any(part.text for part in parts):
        deltas[at] = deltas[at]._replace(text="")
    if any(part.reasoning for part in parts):
        deltas[at] = deltas[at]._replace(reasoning="", calls=None)


def _usage_in(deltas: Sequence[StreamDelta]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the usage of the whole answer, and the last document with one; both empty if there is none.

    It is the last usage. The counts that it lacks (it may be empty, or zero) are those of the last one with them.
    """
    usage: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for delta in reversed(deltas):
        found = _reported_usage(delta.document)
        if found is not None:
            last = last or delta.document
            earlier = {
                "completion_tokens": found.get("output_tokens"),
                "prompt_tokens": found.get("input_tokens"),
                **found,
            }
            usage = {**(usage or earlier), **{name: usage.get(name) or earlier.get(name) for name in _USAGE_FIELDS}}
            if count_in(usage, "completion_tokens") and count_in(usage, "prompt_tokens"):
                break
    return usage, last


def _reported_usage(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage in a document, also where Moonshot and Groq send it: in the choice, or in `x_groq`.

    None: there is none, or an empty one.
    """
    usage = document.get("usage")
    if not usage:
        choices, groq = document.get("choices"), document.get("x_groq")
        inner = choices[0].get("usage") if choices else None
        usage = inner or (groq.get("usage") if isinstance(groq, dict) else None)
    return usage if usage and isinstance(usage, dict) else None


def _tokens_so_far(document: dict[str, Any]) -> int | None:
    usage = _reported_usage(document)
    if usage is None:
        return None
    return count_in(usage, "completion_tokens" if "completion_tokens" in usage else "output_tokens")


def read_unstreamed(document: Any) -> ChatStream:
    """Parse an answer that was not streamed, as a stream of one chunk. Raises BadAnswer like `read_stream`."""
    if not isinstance(document, dict):
        raise BadAnswer("the answer is not a JSON object", ErrorClass.MALFORMED)
    _reject_error_object(document, "error")
    choices = document.get("choices")
    if not choices:
        raise BadAnswer(f"the answer has no choices: {_shown(document)}", ErrorClass.MALFORMED)
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer(f"one choice was requested: {_shown(choices)}", ErrorClass.MALFORMED)
    choice = choices[0]
    _reject_error_object(choice, "error")
    message = choice.get("message") or {}
    if not isinstance(message, dict):
        raise BadAnswer(f"message is not a JSON object: {_shown(message)}", ErrorClass.MALFORMED)
    finish = _finish_reason(choice, error_message_in(choice) or "")
    text = _answer_text(message.get("content")) or _as_text(choice.get("text"))
    calls = _calls_in(message)
    delta = StreamDelta(0, document, text, _text_outside_content(message, calls), finish, calls=calls)
    stream = ChatStream((delta,), *_usage_in([delta]))
    if count_in(stream.usage, "completion_tokens") is None:
        raise BadAnswer("the answer has no usage", ErrorClass.TRUNCATED_STREAM)
    return stream


def count_in(block: Any, *path: str) -> int | None:
    """Return the count at this path; None if it is missing or not a valid count. Proxies send 5.0 or "5" for 5."""
    for key in path:
        block = block.get(key) if isinstance(block, dict) else None
    if type(block) is not int:  # A bool is no count.
        is_text = isinstance(block, str) and _DIGITS.fullmatch(block)
        block = int(block) if is_text or (isinstance(block, float) and block.is_integer()) else -1
    return block if 0 <= block <= MAX_COUNT else None


def counts_in(block: Any, key: str) -> tuple[int, ...] | None:
    """Return the list of counts at this key; None if it is missing or anything else."""
    values = block.get(key) if isinstance(block, dict) else None
    if not isinstance(values, list):
        return None
    counts = [count_in({"": one}, "") for one in values]
    return None if None in counts else tuple(one for one in counts if one is not None)


def text_in(document: Any, key: str) -> str | None:
    """Return the string at this key of a JSON object; None if it is missing, implausibly long or anything else."""
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, str) and len(value) <= MAX_FACT_CHARS else None


def model_rows(listed: Any) -> list[dict[str, Any]]:
    """Return the rows of a list of models that have an id: of OpenAI's `data`, or of a list without it (Together)."""
    rows = listed.get("data") if isinstance(listed, dict) else listed
    return [row for row in rows if isinstance(row, dict) and text_in(row, "id")] if isinstance(rows, list) else []


def all_models(listed: Any) -> list[str]:
    """Return every model in an answer of /v1/models; empty if there is none."""
    return [replace_lone_surrogates(row["id"]) for row in model_rows(listed)]


def first_model(listed: Any) -> str | None:
    """Return the first model in an answer of /v1/models; None if there is none."""
    return next(iter(all_models(listed)), None)


def reported_tokens(content: Sequence[AnswerChunk]) -> int | None:
    """Return the sum of the chunks' tokens; None if a chunk does not report them."""
    tokens = [chunk.tokens for chunk in content if chunk.tokens is not None]
    return sum(tokens) if len(tokens) == len(content) else None


def _parse_delta(ns: int, data: str, coalesced: bool) -> StreamDelta:  # noqa: FBT001 -- the fields of an SseEvent
    """Parse one chunk. This is the client's innermost loop: one call for each chunk."""
    document = _parse_chunk(data)
    if not isinstance(document, dict):
        return StreamDelta(ns, {}, coalesced=coalesced)
    if document.get("error"):
        raise _reported_error(document, data)
    choices = document.get("choices")
    if not choices:
        _reject_error_object(document, data)
        return StreamDelta(ns, document, coalesced=coalesced, tokens_so_far=_tokens_so_far(document))
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise BadAnswer(f"choices is not a list of objects: {truncate(data)}", ErrorClass.MALFORMED)
    if len(choices) > 1:
        raise BadAnswer(f"one choice was requested and {len(choices)} were returned", ErrorClass.MALFORMED)
    choice = choices[0]
    delta = choice.get("delta") or choice.get("message") or {}
    if not isinstance(delta, dict):
        raise BadAnswer(f"delta is not a JSON object: {truncate(data)}", ErrorClass.MALFORMED)
    if choice.get("index") and count_in(choice, "index") != 0:  # Some send "0".
        raise BadAnswer(f"one choice was requested and another was returned: {truncate(data)}", ErrorClass.MALFORMED)
    finish = choice.get("finish_reason")
    text, tokens = delta.get("content"), None
    if document.get("usage") or choice.get("usage") or document.get("x_groq"):  # Most chunks have none: no call.
        tokens = _tokens_so_far(document)
    if len(delta) == 1 and text and isinstance(text, str) and finish is None:  # almost all chunks
        return _new_delta((ns, document, text, "", None, coalesced, None, tokens))
    _reject_error_object(choice, data)
    text = _answer_text(text) or _as_text(choice.get("text"))
    calls = _calls_in(delta) if delta.get("tool_calls") or delta.get("function_call") else None
    outside = _text_outside_content(delta, calls)
    return _new_delta((ns, document, text, outside, _finish_reason(choice, data), coalesced, calls, tokens))


def _reject_error_object(document: dict[str, Any], data: str) -> None:
    """Raise the error that a document or a choice contains, or that the document is (older vLLM, Dynamo)."""
    if document.get("error"):
        raise _reported_error(document, data)
    is_bare = document.get("message") and document.get("code") and not document.keys() & {"choices", "usage"}
    if document.get("object") == "error" or is_bare:
        raise _reported_error({"error": document}, data)


def _finish_reason(choice: dict[str, Any], words: str) -> str | None:
    """Return a finish reason in OpenAI's spelling. Raises BadAnswer for one with which no complete answer ends.

    OpenRouter may call a failure `stop`: the reason of the server behind it is in `native_finish_reason`. SGLang's own
    form is an object with a `type`.
    """
    sent, native = choice.get("finish_reason"), choice.get("native_finish_reason")
    if sent is None:
        return None
    sent = sent.get("type") if isinstance(sent, dict) else sent
    sent = native if isinstance(native, str) and "error" in native.lower() else sent
    spelling = _REASON_TYPE.sub("", sent.lower().replace("-", "_"), 1) if isinstance(sent, str) else None
    if spelling in FINISH_REASONS:
        return FINISH_REASONS[spelling]
    message = f"the answer ended with finish_reason {_shown(sent)}: {truncate(words)}"
    raise BadAnswer(message.removesuffix(": "), ErrorClass.HTTP_5XX if isinstance(sent, str) else ErrorClass.MALFORMED)


def _text_outside_content(message: dict[str, Any], calls: Any) -> str:
    """Return generated text outside the answer's content: reasoning, tool calls (without their ids), a refusal."""
    outside = _reasoning_in(message) or _as_text(message.get("refusal"))
    return outside + ("".join(text for call in calls for text in _part_of_call(call)) if calls else "")


def _reasoning_in(message: dict[str, Any]) -> str:
    """Return the reasoning of a message or delta, from its own keys or from the parts of the content."""
    texts = [_as_text(message[key]) for key in _REASONING_KEYS if message.get(key)]
    content = message.get("content")
    if isinstance(content, list):
        texts.append(_as_text([part for part in content if _is_reasoning_part(part)]))
    return next(filter(None, texts), "")


def _answer_text(content: Any) -> str:
    """Return the text of a content, without the reasoning that a list of parts may contain."""
    if isinstance(content, list):
        content = [part for part in content if not _is_reasoning_part(part)]
    return _as_text(content)


def _is_reasoning_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _REASONING_PARTS


def _calls_in(message: dict[str, Any]) -> Any:
    """Return the tool calls of a message or delta; None if there are none. Raises BadAnswer if they are no list."""
    calls = message.get("tool_calls")
    if not calls:
        return [{"function": message["function_call"]}] if message.get("function_call") else None
    if not isinstance(calls, list):
        raise BadAnswer(f"tool_calls is not a list: {_shown(calls)}", ErrorClass.MALFORMED)
    return calls


def _part_of_call(call: Any) -> ToolCall:
    """Return what one message or delta has of a tool call. Some servers send the arguments as an object.

    An empty object is no text: the arguments may follow as text.
    """
    function = call.get("function") or call.get("custom") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise BadAnswer(f"a tool call has no function: {_shown(call)}", ErrorClass.MALFORMED)
    arguments = function.get("arguments", function.get("input"))
    text = arguments if isinstance(arguments, str) else "" if arguments in (None, {}) else _as_json(arguments)
    return ToolCall(_as_text(function.get("name")), text)


def _as_json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # A lone surrogate, an integer of more than 64 bits, or more than 254 levels.
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadAnswer("a tool call is nested too deeply", ErrorClass.MALFORMED) from error


def _reported_error(document: dict[str, Any], data: str) -> BadAnswer:
    """Return the error that an engine reported after it had begun to answer."""
    code = count_in(document["error"], "code")
    kind = ErrorClass.of_status(code) if code is not None and code in _CLIENT_ERRORS else ErrorClass.HTTP_5XX
    message = truncate(error_message_in(document) or data)
    return BadAnswer(f"in mid-stream: {message}", kind)


def _parse_chunk(data: str) -> Any:
    """Parse the JSON of a chunk; None if it is no object. Raises BadAnswer (MALFORMED)."""
    if len(data) <= LARGE_JSON_BYTES:
        try:
            return orjson.loads(data)  # Its limit is 1,024 levels; `parse_engine_json` is slower and checks more.
        except orjson.JSONDecodeError:
            pass
    text = data.lstrip().removeprefix("data:").lstrip()  # Spring frames the events of another server again.
    return parse_document(text, "a chunk") if text.startswith("{") else None


def parse_document(data: str | bytes, name: str) -> Any:
    """Parse JSON. Raises BadAnswer (MALFORMED), whose message begins with `name`."""
    try:
        return parse_engine_json(data)
    except ValueError as error:
        text = data if isinstance(data, str) else data[:MAX_ERROR_BODY_BYTES].decode(errors="replace")
        raise BadAnswer(
            f"{name} is not usable JSON ({truncate(str(error), _MAX_REASON_CHARS)}): {truncate(text)}",
            ErrorClass.MALFORMED,
        ) from error


def _shown(value: Any) -> str:
    """Return a value for an error message."""
    try:
        return truncate(repr(value))
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def _as_text(value: Any, depth: int = 0) -> str:
    """Return a text that is sent as a string, as an object with a text, or as a list of these."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float) and not isinstance(value, bool):  # Cloudflare's digits
        return str(value)
    if isinstance(value, list) and depth < _MAX_TEXT_DEPTH:
        return "".join([_as_text(part, depth + 1) for part in value])
    if isinstance(value, dict) and depth < _MAX_TEXT_DEPTH:
        return _as_text(next((value[key] for key in _TEXT_KEYS if value.get(key)), None), depth + 1)
    raise BadAnswer(f"text is not a string: {_shown(value)}", ErrorClass.MALFORMED)


# Engines with a reasoning parser send reasoning in a separate field (`reasoning_content`, `reasoning`). A chunk that
# contains both the end of the reasoning and the beginning of the answer counts as answer; with drafts this is a few
# tokens of one step. Tool calls and refusals are not reasoning.


def reasoning_tokens(stream: ChatStream, counted: Callable[[StreamDelta], int | None]) -> int | None:
    """Return the tokens up to the last chunk of reasoning before the answer begins; 0 if there is none.

    `counted`: returns the tokens up to and including a chunk. None if no chunk has a count, or not the decisive one.
    """
    last_reasoning: StreamDelta | None = None
    if stream.reasoning:
        for delta in stream.deltas:
            if delta.text:
                break
            if delta.reasoning:  # or a refusal, or tool calls
                choice = delta.document["choices"][0]
                last_reasoning = delta if _reasoning_in(choice.get("delta") or choice["message"]) else last_reasoning
    if last_reasoning is not None:
        return counted(last_reasoning)
    return 0 if any(counted(delta) is not None for delta in stream.deltas if delta.text or delta.reasoning) else None


def build_answer(
    stream: ChatStream,
    content: tuple[AnswerChunk, ...],
    acceptance: RequestAcceptance,
    counted: Callable[[StreamDelta], int | None] = attrgetter("tokens_so_far"),
) -> EngineAnswer:
    """Return the answer of a stream. `counted`: see `reasoning_tokens`."""
    prompt = count_in(stream.usage, "prompt_tokens")
    cached = max(
        (count for path in _CACHED_TOKENS if (count := count_in(stream.usage, *path)) is not None), default=None
    )
    if prompt is not None and cached is not None and cached > prompt:
        prompt += cached  # Anthropic counts cached tokens apart, and some gateways pass its counts on.
    names = filter(None, [text_in(stream.last, "model"), text_in(stream.last, "system_fingerprint")])
    return EngineAnswer(
        text=stream.text,
        reasoning=stream.reasoning,
        content=content,
        acceptance=acceptance,
        input_tokens=prompt,
        output_tokens=count_in(stream.usage, "completion_tokens") or 0,
        output_tokens_client=reported_tokens(content),
        cached_tokens=cached,
        finish_reason=stream.finish_reason,
        last_text_ns=next((delta.ns for delta in reversed(stream.deltas) if delta.text or delta.reasoning), None),
        reasoning_tokens=reasoning_tokens(stream, counted),
        tool_calls=stream.tool_calls,
        served_by=", ".join(names) or None,
    )


def chunks_by_usage(stream: ChatStream) -> tuple[AnswerChunk, ...]:
    """Return the chunks with text or tokens, for engines that count tokens in each chunk (`continuous_usage_stats`).

    The first chunk (role only) and the last one (usage only) have neither.
    """
    previous = 0
    chunks = []
    for ns, document, text, reasoning, _, coalesced, _, total in stream.deltas:
        if not document.get("choices"):
            continue
        tokens = None if total is None else 0
        if total is not None and total > previous:
            tokens, previous = total - previous, total
        if text or reasoning or tokens:
            chunks.append(_new_chunk((ns, tokens, coalesced)))
    return tuple(chunks)


def steps_by_chunk(content: Sequence[AnswerChunk], output_tokens: int, *, drafting: bool) -> RequestAcceptance:
    """Return the acceptance of an answer for which the engine reports none. A baseline generates one token per step.

    With a drafter, each chunk is taken as one step, which is true if the engine's stream interval is 1 and nothing
    merges chunks. Such values have the source CHUNKS, and are used only if the engine's counters confirm them.
    """
    if not output_tokens:
        return RequestAcceptance()
    if not drafting:
        return RequestAcceptance(steps=output_tokens - 1)
    sizes = chunk_sizes(content)
    if sum(sizes) != output_tokens or sizes[0] != 1:
        return RequestAcceptance()
    steps = len(sizes) - 1
    return RequestAcceptance(steps=steps, accepted_tokens=output_tokens - 1 - steps, source=AcceptanceSource.CHUNKS)


def chunk_sizes(content: Sequence[AnswerChunk]) -> list[int]:
    """Return the tokens of each chunk that has any."""
    return [chunk.tokens for chunk in content if chunk.tokens]
