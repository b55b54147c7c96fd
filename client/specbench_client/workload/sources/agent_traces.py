"""Recorded sessions of agents: each answer of the model is one request, with everything recorded before it.

A session is one line, in one of two forms:

    {"id": …, "messages": [{"role": …, "content": …, "tool_calls": …, "timestamp": …}, …], "tools": […]}
    {"id": …, "requests": [{"messages": […], "tools": […], "start": …, "end": …}, …]}

The first is one history, of which each answer is a request. The second has requests with histories of their own, some
of which may have been in flight at once. `otel_spans` makes the second form of OpenTelemetry spans.

Tools are not run: the recorded results are sent. Neither are the model's own answers: with them, the prompts of two
arms would differ after the first difference in an answer, and with the prompts the share that a prompt cache can reuse.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_api.spec.dataset import Selection
from specbench_client.chat import ChatMessage, RequestStart
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import (
    TIMES,
    BadRow,
    RecordedSession,
    RowWithoutText,
    parse_message,
    parse_tools,
)
from specbench_client.workload.sources.loader import Columns, SourceLoader, key_at, label_at
from specbench_client.workload.sources.otel_spans import sessions_of_spans
from specbench_client.workload.sources.request_logs import seconds_at

_ASKING = ("user", "tool")
_MAX_SHOWN = 80
_SECONDS_END = 1e11
"""A time in seconds is smaller: this is the year 5138, or 1973 in milliseconds."""
_EXAMPLE = '{"id": "s1", "messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'


def _convert(row: PromptRow, _: Selection) -> Columns:
    columns = row.columns
    if isinstance(columns.get("error"), SpecbenchError):
        raise columns["error"]
    if columns.get("requests") is not None:
        recorded = _of_requests(columns["requests"], columns.get("tools"))
    elif columns.get("messages") is not None:
        recorded = _of_messages(columns["messages"], columns.get("tools"))
    else:
        raise BadRow(f"messages and requests are missing: give the messages of the session, such as {_EXAMPLE}")
    key = key_at(row, "id", "session_id", "conversation_id", "trace_id")
    return {**columns, "id": key, "category": label_at(row, "category"), "recorded": recorded}


def _of_messages(messages: Any, tools: Any) -> RecordedSession:
    """Return the requests of one history: one before each answer, and one at the end if it awaits an answer."""
    _check_objects(messages, "messages")
    for at, message in enumerate(messages):
        _seconds(message, f"messages[{at}]")
    roles = [message.get("role") for message in messages]
    ends = [
        at for at in range(1, len(roles) + 1) if roles[at - 1] in _ASKING and roles[at : at + 1] in ([], ["assistant"])
    ]
    if not ends:
        raise BadRow("messages has no answer, which follows a message of role user or tool: a session has at least one")
    read = _MessageReader().request(messages[: ends[-1]], tools, "messages")
    starts = [RequestStart()]
    for number, end in enumerate(ends[1:]):
        answered = next(at for at in range(ends[number], end) if roles[at] != "assistant") - 1
        starts.append(RequestStart((number,), _wait_s(messages, answered, end - 1)))
    return RecordedSession(tuple(read[:end] for end in ends), tuple(starts))


def _wait_s(messages: Sequence[Mapping[str, Any]], answered: int, asked: int) -> float | None:
    """Return the time from an answer to the end of what was asked next, which is where tools ran or a user thought."""
    before, after = (_seconds(messages[at], f"messages[{at}]") for at in (answered, asked))
    if before is None or after is None:
        return None
    if after < before:
        raise BadRow(
            f"messages[{asked}] is {before - after:g} s earlier than messages[{answered}]: correct their times"
        )
    return after - before


def _seconds(record: Mapping[str, Any], where: str, names: tuple[str, ...] = TIMES) -> float | None:
    """Return when it was recorded, None if it has no time. Raises BadRow for a time that cannot be read."""
    seconds = seconds_at(record, names=names)
    if seconds is None and (name := next((one for one in names if record.get(one) is not None), None)):
        raise BadRow(
            f"{where}.{name} is {str(record[name])[:_MAX_SHOWN]!r}, which is no time: give seconds or ISO 8601, such as"
            " 2026-01-31T12:00:00Z, or remove it"
        )
    if seconds is not None and seconds >= _SECONDS_END:
        name = next(one for one in names if record.get(one) is not None)
        raise BadRow(
            f"{where}.{name} is {str(record[name])[:_MAX_SHOWN]}, which is after the year 5000 in seconds: times are in"
            " seconds, so divide milliseconds by 1,000 and nanoseconds by 1,000,000,000"
        )
    return seconds


def _of_requests(requests: Any, tools: Any) -> RecordedSession:
    _check_objects(requests, "requests")
    reader = _MessageReader()
    spans = [_span(request, f"requests[{at}]") for at, request in enumerate(requests)]
    known = [span for span in spans if span is not None]
    if known and len(known) < len(spans):
        raise BadRow(f"requests[{spans.index(None)}] has no start and end, but others have: give both for all, or none")
    order = sorted(range(len(requests)), key=known.__getitem__) if known else range(len(requests))
    turns = []
    for at in order:
        messages, where = requests[at].get("messages"), f"requests[{at}].messages"
        _check_objects(messages, where)
        if messages[-1].get("role") not in _ASKING:
            raise RowWithoutText("has a request that does not end with a message of role user or tool")
        turns.append(reader.request(messages, requests[at].get("tools", tools), where))
    starts = recorded_starts(sorted(known)) if known else [RequestStart((at - 1,) if at else ()) for at in order]
    return RecordedSession(tuple(turns), tuple(starts))


def _span(request: Mapping[str, Any], where: str) -> tuple[float, float] | None:
    start, end = (_seconds(request, where, (name,)) for name in ("start", "end"))
    if start is None or end is None:
        return None
    if end < start:
        raise BadRow(f"{where} ends {start - end:g} s before it starts: correct start or end")
    return start, end


def recorded_starts(spans: Sequence[tuple[float, float]]) -> list[RequestStart]:
    """Return when requests start that were recorded at these times (start, end), which are in order of their starts.

    A request may need the answer of any request that had ended when it started. So it starts after all of these, of
    which those that another one of them started after are left out. Requests that overlapped may overlap again.
    """
    starts = []
    running: list[tuple[float, int]] = []
    last: list[int] = []
    last_start, begun = -math.inf, spans[0][0]
    for number, (start, end) in enumerate(spans):
        while running and running[0][0] <= start:
            begun, at = heapq.heappop(running)
            last_start = max(last_start, spans[at][0])
            last.append(at)
        last = [at for at in last if spans[at][1] > last_start or spans[at][0] == last_start]
        starts.append(RequestStart(tuple(sorted(last)), start - begun))
        heapq.heappush(running, (end, number))
    return starts


def _check_objects(value: Any, where: str) -> None:
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        raise BadRow(f"{where} is not a list of objects with at least one element: give a session such as {_EXAMPLE}")


@dataclass(frozen=True)
class _MessageReader:
    """Reads the messages of a session. Equal messages become one object, since each request repeats its history."""

    _by_identity: dict[int, ChatMessage] = field(default_factory=dict)
    _known: dict[ChatMessage, ChatMessage] = field(default_factory=dict)

    def request(self, messages: Sequence[Mapping[str, Any]], tools: Any, where: str) -> tuple[ChatMessage, ...]:
        """Return the messages of one request, the first with the tools. Raises BadRow and RowWithoutText."""
        first, *rest = (self._message(message, f"{where}[{at}]") for at, message in enumerate(messages))
        return self._shared(replace(first, tools=parse_tools(tools))), *rest

    def _message(self, message: Mapping[str, Any], where: str) -> ChatMessage:
        if id(message) not in self._by_identity:
            self._by_identity[id(message)] = self._shared(parse_message(message, where))
        return self._by_identity[id(message)]

    def _shared(self, message: ChatMessage) -> ChatMessage:
        return self._known.setdefault(message, message)


LOADER = SourceLoader(
    what="recorded sessions of agents, or their OpenTelemetry GenAI spans",
    columns=("messages | requests | resourceSpans",),
    template="each answer is one request with all messages before it; recorded answers and tool results are sent",
    licence="yours and your users'",
    convert=_convert,
    note="see [agent traces](#agent-traces)",
    assemble=sessions_of_spans,
)
