"""What the streams of all engines with OpenAI's chat route have in common: chunks of JSON, deltas, usage, an end.

Reads leniently what engines vary (nulls, missing keys) and refuses what would be miscounted: JSON that is none, an
error in mid-stream, a stream without its end or its usage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench_client.dialects.dialect import BadAnswer, Chunk
from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.sse import DONE, Event
from specbench_client.transport.words import cut, message_of, well_formed

_CLIENT_ERRORS = range(400, 500)
_MOST = 2**53
"""Above this it is no count, and no column of ours holds it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One chunk: its text, and the whole document for what an engine adds."""

    ns: int
    document: dict[str, Any]
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None


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


def read_stream(events: Sequence[Event]) -> Stream:
    """Read a stream with usage. Raises BadAnswer: malformed, truncated_stream, or what the engine said went wrong."""
    deltas = [_delta(event) for event in events if event.data.strip() != DONE]
    if not events or events[-1].data.strip() != DONE:
        raise BadAnswer(f"the stream ended after {len(deltas)} chunks without [DONE]", ErrorClass.TRUNCATED_STREAM)
    with_usage = [delta.document for delta in deltas if isinstance(delta.document.get("usage"), dict)]
    if not with_usage or count_in(with_usage[-1]["usage"], "completion_tokens") is None:
        raise BadAnswer("the stream ended without the usage that was asked for", ErrorClass.TRUNCATED_STREAM)
    if not any(delta.finish_reason for delta in deltas):
        raise BadAnswer("the stream ended without a finish reason", ErrorClass.TRUNCATED_STREAM)
    return Stream(tuple(deltas), with_usage[-1]["usage"], with_usage[-1])


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
    return first["id"] if isinstance(first.get("id"), str) else None


def tokens_told(content: Sequence[Chunk]) -> int | None:
    """The answer's tokens as its chunks told them, None where one of them did not."""
    told = [chunk.tokens for chunk in content if chunk.tokens is not None]
    return sum(told) if len(told) == len(content) else None


def _delta(event: Event) -> Delta:
    document = _document(event)
    choices = document.get("choices") or []
    if not isinstance(choices, list) or any(not isinstance(choice, dict) for choice in choices):
        raise BadAnswer(f"choices is no list of objects: {cut(event.data)}", ErrorClass.MALFORMED)
    if len(choices) > 1:
        raise BadAnswer(f"one answer was asked for and {len(choices)} came", ErrorClass.MALFORMED)
    if not choices:
        return Delta(event.ns, document)
    delta = choices[0].get("delta") or {}
    if not isinstance(delta, dict):
        raise BadAnswer(f"delta is no object: {cut(event.data)}", ErrorClass.MALFORMED)
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    finish = choices[0].get("finish_reason")
    return Delta(event.ns, document, _text(delta.get("content")), _text(reasoning), _text(finish) or None)


def _document(event: Event) -> dict[str, Any]:
    try:
        document = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"a chunk is no JSON: {cut(event.data)}", ErrorClass.MALFORMED) from error
    if not isinstance(document, dict):
        raise BadAnswer(f"a chunk is no object: {cut(event.data)}", ErrorClass.MALFORMED)
    if document.get("error"):
        code = count_in(document["error"], "code")
        refused = code is not None and code in _CLIENT_ERRORS
        words = cut(message_of(document) or event.data)
        raise BadAnswer(f"in mid-stream: {words}", ErrorClass.HTTP_4XX if refused else ErrorClass.HTTP_5XX)
    return document


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadAnswer(f"text is no string: {cut(repr(value))}", ErrorClass.MALFORMED)
    return value
