"""A user's own request logs: chat completions (or completions) as JSON Lines, read back into prompts.

Only the content of a line is used: its messages unchanged, or its prompt. A line that cannot be sent again as it was
(images, an assistant message at the end, text in several parts) is left out with a reason and never repaired. Tools and
tool calls are kept; sending them requires that the client applies the chat template.
Supported layouts, with the request and the response each as an object or as its JSON text:

    {"messages": …, "temperature": …, "max_tokens": …, "usage": …, "timestamp": …}        flat
    {"timestamp": …, "request": {…}, "response": {…}}                                     a proxy's pairs
    {"custom_id": …, "body": {…}}                                                         the batch API's input
    {"request_body": {…}, "response_body": {…}, "request_created_at": …}                  Helicone
    {"input": […], "output": …, "modelParameters": {…}, "usage": …, "startTime": …}       Langfuse
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.bounded_json import parse_json
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow, RowWithoutText, parse_tool_calls
from specbench_client.workload.sources.loader import Columns, SourceLoader, key_at, label_at

_REQUEST = ("request", "body", "request_body")
_RESPONSE = ("response", "response_body", "output")
_PARAMETERS = ("modelParameters", "model_parameters", "parameters", "kwargs")
TIMES = ("timestamp", "created_at", "created", "time", "ts", "start_time", "startTime", "request_created_at")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True)
class LoggedRequest:
    """Parameters and lengths that one log line records of its request; None where it records none."""

    temperature: float | None
    max_tokens: float | None
    input_tokens: float | None
    output_tokens: float | None
    seconds: float | None
    """Its time stamp in seconds, by the log's own clock."""


def _convert(row: PromptRow, _: Selection) -> Columns:
    line = row.columns
    request, response = _body(_inner(line, _REQUEST)) or line, _body(_inner(line, _RESPONSE)) or {}
    parameters = _inner(line, _PARAMETERS) or {}
    settings = {**parameters, **request}
    usage = _inner(response, ("usage",)) or _inner(line, ("usage",)) or {}
    logged = LoggedRequest(
        temperature=_number(settings, "temperature"),
        max_tokens=_number(settings, *_LIMITS),
        input_tokens=_number(usage, "prompt_tokens", "input_tokens", "input"),
        output_tokens=_number(usage, "completion_tokens", "output_tokens", "output"),
        seconds=seconds_at(line, request),
    )
    key = key_at(row, "id", "custom_id", "request_id", "trace_id")
    return {"id": key, "category": label_at(row, "category"), **_content(request, line), "logged": logged}


def _content(request: Mapping[str, Any], line: Mapping[str, Any]) -> Columns:
    """Return messages or prompt. Raises BadRow for a line without a request, RowWithoutText if it cannot be sent."""
    messages = _parsed(request.get("messages", line.get("input")))
    if messages is None and isinstance(request.get("prompt"), str):
        return {"prompt": request["prompt"]}
    if isinstance(messages, str):
        return {"prompt": messages}
    if isinstance(messages, Mapping):
        messages = _parsed(messages.get("messages"))
    if messages is None:
        raise BadRow(
            "contains no request: put messages or prompt at the top level or in request, body, request_body or input"
        )
    if request.get("functions"):
        raise RowWithoutText("offers functions, the older form of tools, which is not supported")
    tools = request.get("tools") or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools)):
        raise RowWithoutText("offers tools in an unknown format")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise BadRow("messages is not a list of objects with role and content")
    if messages[-1].get("role") not in ("user", "tool"):
        raise RowWithoutText("does not end with a message of role user or tool")
    return {"messages": [logged_message(message) for message in messages], "tools": tools}


def logged_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a message that is sent again. Raises RowWithoutText if it cannot be."""
    if message.get("role") == "function" or message.get("function_call"):
        raise RowWithoutText("has function calls, the older form of tool calls, which is not supported")
    further = {name: message[name] for name in ("tool_calls", "tool_call_id") if message.get(name)}
    if "tool_calls" in further:
        try:
            further["tool_calls"] = parse_tool_calls(further["tool_calls"], "tool_calls")
        except BadRow as error:  # models generate such calls, and engines reject them
            raise RowWithoutText("has tool calls without a name, or with arguments that are not valid JSON") from error
    content = message.get("content")
    if not content and (message.get("role") == "tool" or "tool_calls" in further):
        return {"role": message.get("role"), "content": content, **further}
    return {"role": message.get("role"), "content": _text(content), **further}


def _text(content: Any) -> str:
    """Return the text, also if it is the only part of a list. Engines join several parts in different ways."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        content = content[0].get("text") if content[0].get("type") in ("text", "input_text") else content
    if isinstance(content, list):
        raise RowWithoutText("has content in several parts, or without text, which is not supported")
    if not isinstance(content, str) or not content.strip():
        raise RowWithoutText("has an empty message")
    return content


def _inner(record: Mapping[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the first of these members that is an object, or the JSON text of one."""
    for name in names:
        found = _parsed(record.get(name)) if record is not None else None
        if isinstance(found, Mapping):
            return dict(found)
    return None


def _body(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the `body` inside a proxy's wrapper with headers or a status; the record itself if there is none."""
    return _inner(record, ("body",)) or record


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return parse_json(value)
    except (ValueError, RecursionError):
        return value


def _number(record: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def seconds_at(*records: Mapping[str, Any], names: tuple[str, ...] = TIMES) -> float | None:
    """Return the first time that a record has under one of these names, in seconds; None if there is none."""
    for record in records:
        number = _number(record, *names)
        if number is not None:
            return number
        for name in names:
            timestamp = _timestamp(record.get(name))
            if timestamp is not None:
                return timestamp
    return None


def _timestamp(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        timestamp = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()


LOADER = SourceLoader(
    what="your own request logs: chat completions as JSON Lines",
    columns=("messages | prompt, at the top level or in request, body, request_body or input",),
    template="messages (or the prompt) unchanged",
    licence="yours and your users'",
    convert=_convert,
    note="see [request logs](#request-logs)",
    ids=False,
)
