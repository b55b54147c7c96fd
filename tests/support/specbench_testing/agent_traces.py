"""Synthetic traces of agents: a session, and OpenTelemetry spans as OTLP file exporters write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_CALLS = [
    {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}
    for number, path in enumerate(["a.py", "b.py"], start=1)
]
SESSION: dict[str, Any] = {
    "id": "fix-1",
    "category": "coding",
    "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "Fix a.py."},
        {"role": "assistant", "content": None, "tool_calls": _CALLS, "timestamp": 10.0},
        {"role": "tool", "tool_call_id": "c1", "content": "x = 1", "timestamp": 11},
        {"role": "tool", "tool_call_id": "c2", "content": "y = 2", "timestamp": "1970-01-01T00:00:12.5Z"},
        {"role": "assistant", "content": "Shall I?", "timestamp": 42.5},
        {"role": "user", "content": "Yes.", "timestamp": 72.5},
        {"role": "assistant", "content": "Done."},
    ],
}
"""Three requests: two tool calls at once, a question to the user, and its answer."""


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the GenAI semantic conventions."""
    return {"role": role, "parts": list(parts)}


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return message("user", {"type": "text", "content": text})


def span(
    trace: str,
    start_s: float,
    end_s: float,
    messages: Sequence[dict[str, Any]] | str | None,
    *,
    operation: str = "chat",
    instructions: str | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    as_text: bool = False,
    in_event: bool = False,
    parent: dict[str, Any] | None = None,
    conversation: str | None = None,
) -> dict[str, Any]:
    """Return a span; `as_text`: messages are JSON text; `in_event`: the content is in an event of the span."""
    content: dict[str, Any] = {
        "gen_ai.input.messages": json.dumps(messages) if as_text else messages,
        "gen_ai.system_instructions": instructions and [{"type": "text", "content": instructions}],
        "gen_ai.tool.definitions": tools,
    }
    events = [{"name": "gen_ai.client.inference.operation.details", "attributes": _attributes(content)}]
    return {
        "traceId": trace,
        "spanId": f"{trace}-{start_s}",
        "parentSpanId": parent["spanId"] if parent else "",
        "startTimeUnixNano": str(int((1_700_000_000 + start_s) * 1e9)),
        "endTimeUnixNano": str(int((1_700_000_000 + end_s) * 1e9)),
        "attributes": _attributes(
            {
                "gen_ai.operation.name": operation,
                "gen_ai.usage.input_tokens": 7,
                "gen_ai.conversation.id": conversation,
                **({} if in_event else content),
            }
        ),
        "events": events if in_event else [],
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    """Return an OTLP document, which is one line of an exporter's file."""
    resource = {"attributes": _attributes({"service.name": "agent"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items() if value is not None]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case dict():
            return {"kvlistValue": {"values": _attributes(value)}}
        case _:
            return {"arrayValue": {"values": [_any_value(each) for each in value]}}
