"""What the streams of all engines with OpenAI's chat route have in common: chunks of JSON, deltas, usage, an end.

Reads leniently what engines vary (nulls, missing keys) and refuses what would be miscounted: JSON that is none, an
error in mid-stream, a stream without its end or its usage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson

from specbench_client.dialects.dialect import BadAnswer, Chunk
from specbench_client.slices import SLICE, Slices
from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.sse import DONE, Event
from specbench_client.transport.words import cut, message_of, well_formed

_CLIENT_ERRORS = range(400, 500)
_MOST = 2**53
"""Above this it is no count, and no column of ours holds it."""


class Delta(NamedTuple):
    """One chunk: its text, and the whole document for what an engine adds."""

    ns: int
    document: dict[str, Any]
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    gathered: bool = False
    """As the event's, see `sse`."""


_new_delta: Callable[[tuple[int, dict[str, Any], str, str, str | None, bool]], Delta] = partial(tuple.__new__, Delta)
"""As `Delta`, without a call into Python."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A complete stream. `usage`: the last one, which counts the whole answer; `last`: the document that carried it."""

    deltas: tuple[Delta, ...]
    usage: dict[str, Any]
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return well_formed("".join(delta.text for delta in self.deltas))

    @property
    def reasoning(self) -> str:
        return well_formed("".join(delta.reasoning for delta in self.deltas))

    @property
    def finish_reason(self) -> str | None:
        reasons = [delta.finish_reason for delta in self.deltas if delta.finish_reason]
        return well_formed(reasons[-1]) if reasons else None

    @property
    def fingerprint(self) -> str | None:
        found = self.last.get("system_fingerprint")
        return well_formed(found) if isinstance(found, str) else None


def read_stream(events: Sequence[Event]) -> Slices[Stream]:
    """Read a stream with usage. Raises BadAnswer: malformed, truncated_stream, or what the engine said went wrong."""
    chunks = [event for event in events if event.data]  # an event without data says nothing
    told = len(chunks)
    while chunks and chunks[-1].data.strip() == DONE:
        chunks.pop()
    ended = len(chunks) < told
    deltas: list[Delta] = []
    for start in range(0, len(chunks), SLICE):
        deltas += [_delta(*event) for event in chunks[start : start + SLICE]]
        yield
    if not ended:
        raise BadAnswer(f"the stream ended after {len(deltas)} chunks without [DONE]", ErrorClass.TRUNCATED_STREAM)
    last = next((one.document for one in reversed(deltas) if isinstance(one.document.get("usage"), dict)), None)
    if last is None or count_in(last["usage"], "completion_tokens") is None:
        raise BadAnswer("the stream ended without the usage that was asked for", ErrorClass.TRUNCATED_STREAM)
    if not any(delta.finish_reason for delta in deltas):
        raise BadAnswer("the stream ended without a finish reason", ErrorClass.TRUNCATED_STREAM)
    stream = Stream(tuple(deltas), last["usage"], last)
    _refuse_uncounted(stream)
    return stream


def _refuse_uncounted(stream: Stream) -> None:
    if not count_in(stream.usage, "completion_tokens") and any(one.text or one.reasoning for one in stream.deltas):
        raise BadAnswer("the answer has text, and its usage counts no token", ErrorClass.MALFORMED)


def whole_answer(document: Any) -> Stream:
    """An answer that was not streamed, as a stream of one chunk. Raises BadAnswer as `read_stream` does."""
    if not isinstance(document, dict):
        raise BadAnswer("the answer is no object", ErrorClass.MALFORMED)
    if document.get("error"):
        raise _said(document, "error")
    choices = document.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer(f"one choice was asked for: {cut(repr(choices))}", ErrorClass.MALFORMED)
    if count_in(document.get("usage"), "completion_tokens") is None:
        raise BadAnswer("the answer came without its usage", ErrorClass.TRUNCATED_STREAM)
    message = choices[0].get("message") or {}
    if not isinstance(message, dict):
        raise BadAnswer(f"message is no object: {cut(repr(message))}", ErrorClass.MALFORMED)
    finish = _text(choices[0].get("finish_reason")) or None
    text = _text(message.get("content")) or _text(choices[0].get("text"))
    stream = Stream((Delta(0, document, text, _beside_text(message), finish),), document["usage"], document)
    _refuse_uncounted(stream)
    return stream


def count_in(block: Any, *path: str) -> int | None:
    """The count at this path, None where it is missing or no count at all."""
    for key in path:
        block = block.get(key) if isinstance(block, dict) else None
    is_count = isinstance(block, int) and not isinstance(block, bool) and 0 <= block <= _MOST
    return block if is_count else None


def counts_in(block: Any, key: str) -> tuple[int, ...] | None:
    """The list of counts at this key, None where it is missing or anything else."""
    found = block.get(key) if isinstance(block, dict) else None
    if not isinstance(found, list):
        return None
    counts = [count_in({"": one}, "") for one in found]
    return None if None in counts else tuple(one for one in counts if one is not None)


def first_model(listed: Any) -> str | None:
    """The first model of an answer of /v1/models, None where it is anything else."""
    rows = listed.get("data") if isinstance(listed, dict) else None
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    return well_formed(first["id"]) if isinstance(first.get("id"), str) else None


def tokens_told(content: Sequence[Chunk]) -> int | None:
    """The answer's tokens as its chunks told them, None where one of them did not."""
    told = [chunk.tokens for chunk in content if chunk.tokens is not None]
    return sum(told) if len(told) == len(content) else None


def _delta(ns: int, data: str, gathered: bool) -> Delta:  # noqa: FBT001 -- an event's fields as they are
    """One chunk. This is the client's innermost loop: a million calls for a million chunks."""
    document = _json(data)
    if not isinstance(document, dict):
        raise BadAnswer(f"a chunk is no object: {cut(data)}", ErrorClass.MALFORMED)
    if document.get("error"):
        raise _said(document, data)
    choices = document.get("choices")
    if not choices:
        return Delta(ns, document, gathered=gathered)
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise BadAnswer(f"choices is no list of objects: {cut(data)}", ErrorClass.MALFORMED)
    if len(choices) > 1:
        raise BadAnswer(f"one answer was asked for and {len(choices)} came", ErrorClass.MALFORMED)
    delta = choices[0].get("delta") or {}
    if not isinstance(delta, dict):
        raise BadAnswer(f"delta is no object: {cut(data)}", ErrorClass.MALFORMED)
    if choices[0].get("index"):
        raise BadAnswer(f"one answer was asked for and a further one came: {cut(data)}", ErrorClass.MALFORMED)
    finish = choices[0].get("finish_reason")
    text = _text(delta.get("content")) or _text(choices[0].get("text"))
    return _new_delta((ns, document, text, _beside_text(delta), _text(finish) or None, gathered))


def _beside_text(said: dict[str, Any]) -> str:
    """What the model generated that is no answer to be read on: thought, calls of tools, a refusal."""
    reasoning = said.get("reasoning_content") or said.get("reasoning") or said.get("refusal")
    calls = said.get("tool_calls") or said.get("function_call")
    return _text(reasoning) + (orjson.dumps(calls).decode() if calls else "")


def _said(document: dict[str, Any], data: str) -> BadAnswer:
    """What an engine says went wrong after it had begun to answer."""
    code = count_in(document["error"], "code")
    refused = code is not None and code in _CLIENT_ERRORS
    words = cut(message_of(document) or data)
    return BadAnswer(f"in mid-stream: {words}", ErrorClass.HTTP_4XX if refused else ErrorClass.HTTP_5XX)


def _json(text: str) -> Any:
    """By orjson, several times faster than json, which takes what orjson refuses: characters cut between two chunks."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"a chunk is no JSON: {cut(text)}", ErrorClass.MALFORMED) from error


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadAnswer(f"text is no string: {cut(repr(value))}", ErrorClass.MALFORMED)
    return value
