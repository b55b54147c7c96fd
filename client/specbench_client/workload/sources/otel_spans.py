"""OpenTelemetry spans of agents: converts the JSON that OTLP file exporters write into the sessions of `agent_traces`.

A session is a trace, or all traces with the same `gen_ai.conversation.id`. Its requests are the spans of the GenAI
semantic conventions with `gen_ai.operation.name` chat or generate_content, and those that OpenLLMetry and OpenInference
mark as calls of a model. The messages are attributes of the span, or of its event
gen_ai.client.inference.operation.details, as values or as JSON text; or events, one each; or, as `gen_ai.prompt.0.role`
or `llm.input_messages.0.message.role`, attributes of their own. Other spans, such as execute_tool, only take time:
their results are messages of the next request. If a library and the client below it both record a request, one span is
inside the other, and the inner one is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_client.bounded_json import parse_json
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow, RowWithoutText
from specbench_client.workload.row_shapes import messages_of, parsed, record_of, unflattened

_REQUESTS = ("chat", "generate_content")
_BOUNDARIES = ("execute_tool", "invoke_agent")
_CONTENT_EVENT = "gen_ai.client.inference.operation.details"
_MESSAGE_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_EVENTS = "messages of events"
_CALLS = {"llm.request.type": "chat", "openinference.span.kind": "LLM"}
"""Attributes of calls of a model, as OpenLLMetry and OpenInference write them."""
_NO_CONTENT = (
    "has requests without gen_ai.input.messages: record the content of messages"
    " (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT)"
)
_MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What reading a document of another form raises."""
_EXPORT_AGAIN = "export the spans again with an exporter that writes OTLP JSON"
_NANOSECONDS = 1e9
_EARLIEST_NS = 10**17
"""A time of 1973 in nanoseconds; smaller numbers are other units."""


@dataclass(frozen=True)
class _Span:
    """A span with its decoded attributes, and its place in the file."""

    place: str
    fields: Mapping[str, Any]
    attributes: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.fields["traceId"], self.fields["spanId"]

    @property
    def parent(self) -> tuple[str, str]:
        return self.fields["traceId"], self.fields.get("parentSpanId") or ""

    @property
    def operation(self) -> Any:
        return self.attributes.get("gen_ai.operation.name")

    @property
    def is_request(self) -> bool:
        marked = any(self.attributes.get(name) == value for name, value in _CALLS.items())
        return self.operation in _REQUESTS or marked


def sessions_of_spans(rows: Sequence[PromptRow]) -> list[PromptRow]:
    """Return one row for each session of spans, in the order of their first requests; other rows are unchanged.

    A session that cannot be read has the column `error`, an exception.
    """
    sessions: list[PromptRow] = [row for row in rows if "resourceSpans" not in row.columns]
    by_key: dict[tuple[str, str], _Span] = {}
    for row in rows:
        try:
            for span in list(_spans(row)) if "resourceSpans" in row.columns else ():
                by_key.setdefault(span.key, span)  # exporters may write a span twice
        except BadRow as error:
            sessions.append(PromptRow(row.place, {"error": error}))
    spans = list(by_key.values())
    requests = [span for span in spans if span.is_request]
    if spans and not requests:
        problem = BadRow(
            f"none of {len(spans)} spans is a call of a model (gen_ai.operation.name {' or '.join(_REQUESTS)}): export"
            " those too"
        )
        return [*sessions, PromptRow(spans[0].place, {"error": problem})]
    conversations = {
        span.fields["traceId"]: name for span in spans if (name := span.attributes.get("gen_ai.conversation.id"))
    }
    by_session: dict[Any, list[_Span]] = {}
    for span in _innermost(requests, by_key):
        trace = span.fields["traceId"]
        name = span.attributes.get("gen_ai.conversation.id") or conversations.get(trace) or trace
        by_session.setdefault(name, []).append(span)
    return [*sessions, *(_session(name, members) for name, members in by_session.items())]


def _innermost(requests: Sequence[_Span], spans: Mapping[tuple[str, str], _Span]) -> list[_Span]:
    """Return the requests that contain no other request; those of a tool or an agent inside do not count."""
    outer = set[tuple[str, str]]()
    for request in requests:
        above, passed = spans.get(request.parent), set[tuple[str, str]]()
        while above is not None and above.key not in passed and above.operation not in _BOUNDARIES:
            passed.add(above.key)
            above = spans.get(above.parent)
        if request.key not in passed:  # otherwise spans contain each other, which no program records
            outer |= passed
    return [request for request in requests if request.key not in outer]


def _session(name: Any, spans: Sequence[_Span]) -> PromptRow:
    requests = []
    for span in spans:
        try:
            requests.append(_request(span))
        except SpecbenchError as error:
            return PromptRow(span.place, {"id": name, "error": error})
    return PromptRow(spans[0].place, {"id": name, "requests": requests})


def _spans(row: PromptRow) -> Iterator[_Span]:
    """Yield the spans of an OTLP document. Raises BadRow for others."""
    for resource in _objects(row.columns, "resourceSpans"):
        for scope in _objects(resource, "scopeSpans"):
            for span in _objects(scope, "spans"):
                yield _span(row.place, span)


def _objects(record: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects; exporters may leave an empty list out. Raises BadRow."""
    found = record.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise BadRow(f"is not OTLP JSON: {name} is not a list of objects: {_EXPORT_AGAIN}")
    return found


def _span(place: str, span: Mapping[str, Any]) -> _Span:
    try:
        attributes = _decoded(span.get("attributes", ()))
        for event in _objects(span, "events"):
            if event.get("name") == _CONTENT_EVENT:
                attributes |= _decoded(event.get("attributes", ()))
            elif role := _MESSAGE_EVENT.fullmatch(str(event.get("name"))):
                message = _decoded(event.get("attributes", ()))
                own = {name: value for name, value in message.items() if not name.startswith("gen_ai.")}
                attributes.setdefault(_EVENTS, []).append({"role": role[1], **own})
    except _MALFORMED as error:
        raise BadRow(f"is not OTLP JSON: attributes are not a list of key and value: {_EXPORT_AGAIN}") from error
    ids = [span.get("traceId"), span.get("spanId"), span.get("parentSpanId") or "none"]
    if not all(isinstance(one, str) and one for one in ids):
        raise BadRow(f"is not OTLP JSON: a traceId, spanId or parentSpanId is missing or is no text: {_EXPORT_AGAIN}")
    if not isinstance(attributes.get("gen_ai.conversation.id", ""), str):
        raise BadRow("has a gen_ai.conversation.id that is no text: correct it, or remove it")
    return _Span(place, span, attributes)


def _decoded(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in attributes}


def _value(value: Mapping[str, Any]) -> Any:
    """Return an AnyValue of OTLP as a plain value. 64-bit integers are strings in JSON."""
    for name, found in value.items():
        match name:
            case "arrayValue":
                return [_value(one) for one in found.get("values", ())]
            case "kvlistValue":
                return _decoded(found.get("values", ()))
            case "intValue":
                return int(found)
            case _:
                return found
    return None


def _request(span: _Span) -> dict[str, Any]:
    """Return a request of `agent_traces`. Raises BadRow and RowWithoutText."""
    name = span.fields.get("spanId")
    messages = _parsed(span, "gen_ai.input.messages")
    instructions = _parsed(span, "gen_ai.system_instructions")
    tools = _parsed(span, "gen_ai.tool.definitions")
    try:
        sent = [{"role": "system", "content": _text(instructions)}] if instructions else []
        if messages is None:
            sent += _own_messages(span)
        else:
            sent += [converted for message in messages for converted in _messages(message)]
        return {
            "messages": sent,
            "tools": [_tool(tool) for tool in tools] if tools else None,
            "start": _seconds(span, "startTimeUnixNano"),
            "end": _seconds(span, "endTimeUnixNano"),
        }
    except _MALFORMED as error:
        raise BadRow(
            f"span {name} does not follow the semantic conventions for GenAI: {type(error).__name__}: {error}: correct"
            " it, or remove its trace"
        ) from error


def _own_messages(span: _Span) -> list[dict[str, Any]]:
    """Return messages that are events, or have attributes of their own. Raises RowWithoutText if there are none."""
    nested = unflattened(span.attributes)
    llm = record_of(nested.get("llm"))
    if llm.get("tools") or record_of(llm.get("request")).get("functions"):
        raise RowWithoutText("offers tools in an unknown format")
    listed = {"messages": record_of(nested.get("gen_ai")).get("prompt") or span.attributes.get(_EVENTS), **llm}
    messages = messages_of(listed)
    if not messages:
        raise RowWithoutText(_NO_CONTENT)
    return [{**message, "content": _parsed_parts(message.get("content"))} for message in messages]


def _parsed_parts(content: Any) -> Any:
    """Return the parts of a content that OpenLLMetry wrote as JSON text; any other content unchanged."""
    found = parsed(content)
    is_parts = isinstance(found, list) and found and all(isinstance(one, Mapping) and "type" in one for one in found)
    return found if is_parts else content


def _seconds(span: _Span, field: str) -> float:
    """Return a time in seconds. Raises BadRow if it is not in nanoseconds."""
    nanoseconds = int(span.fields[field])
    if nanoseconds < _EARLIEST_NS:
        raise BadRow(
            f"span {span.fields['spanId']}: {field} is {nanoseconds}, which is before 1974: OTLP has nanoseconds since"
            " 1970, not seconds, milliseconds or microseconds"
        )
    return nanoseconds / _NANOSECONDS


def _parsed(span: _Span, attribute: str) -> Any:
    value = span.attributes.get(attribute)
    try:
        return parse_json(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        name = span.fields.get("spanId")
        raise BadRow(
            f"span {name}: {attribute} is not valid JSON: {error}: it may have been truncated; raise the"
            " exporter's limit of attribute lengths"
        ) from error


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages in OpenAI's form: one for each tool result, else one."""
    parts = message["parts"]
    results = [part for part in parts if part["type"] == "tool_call_response"]
    for part in results:
        response = part["response"] if "response" in part else part["result"]
        content = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": content}
    calls = [_call(part) for part in parts if part["type"] == "tool_call"]
    if len(results) < len(parts):
        yield {"role": message["role"], "content": _text(parts) or None, **({"tool_calls": calls} if calls else {})}


_NOT_SENT = ("reasoning", "tool_call", "tool_call_response")
"""Parts that are no text of their message: reasoning is not sent again, and the others are messages or fields."""


def _text(parts: Sequence[Mapping[str, Any]]) -> str:
    other = next((part["type"] for part in parts if part["type"] not in ("text", *_NOT_SENT)), None)
    if other is not None:
        raise RowWithoutText(f"has parts of type {other}, which are not supported")
    return "\n\n".join(part["content"] for part in parts if part["type"] == "text")


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": part["name"], "arguments": part.get("arguments") or {}}
    return {"id": part.get("id"), "type": "function", "function": function}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool definition in the form of the chat completions API, which templates expect."""
    if "function" in tool:
        return dict(tool)
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": tool.get("type", "function"), "function": function}
