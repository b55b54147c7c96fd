"""Request logs of one's own: chat completions (or completions) as JSON lines → the prompts that people really sent.

Of a line only what is sent is used: the messages as they are, or the prompt. A line that could not be sent again as it
was (pictures, an answer as the last message, text in several parts) is left out with its reason, never mended. Tools
and calls of them go along where the client applies the chat template.
Layouts that are read, the request and the response each as an object or as its JSON text:

    {"messages": …, "temperature": …, "max_tokens": …, "usage": …, "timestamp": …}        flat
    {"timestamp": …, "request": {…}, "response": {…}}                                     a proxy's pairs
    {"custom_id": …, "body": {…}}                                                         the batch API's input
    {"request_body": {…}, "response_body": {…}, "request_created_at": …}                  Helicone
    {"input": […], "output": …, "modelParameters": {…}, "usage": …, "startTime": …}       Langfuse
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow, tool_calls_of
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Loader, NoText, key_at, label_at

_REQUEST = ("request", "body", "request_body")
_RESPONSE = ("response", "response_body", "output")
_PARAMETERS = ("modelParameters", "model_parameters", "parameters", "kwargs")
_TIMES = ("timestamp", "created_at", "created", "time", "ts", "start_time", "startTime", "request_created_at")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True)
class Logged:
    """What one line says of its request; None where it does not."""

    temperature: float | None
    max_tokens: float | None
    input_tokens: float | None
    output_tokens: float | None
    seconds: float | None
    """Its time stamp, as seconds of whatever clock the log has."""


def _convert(row: Row, _: Selection) -> Columns:
    line = row.columns
    request, response = _body(_inner(line, _REQUEST)) or line, _body(_inner(line, _RESPONSE)) or {}
    parameters = _inner(line, _PARAMETERS) or {}
    said = {**parameters, **request}
    usage = _inner(response, ("usage",)) or _inner(line, ("usage",)) or {}
    logged = Logged(
        temperature=_number(said, "temperature"),
        max_tokens=_number(said, *_LIMITS),
        input_tokens=_number(usage, "prompt_tokens", "input_tokens", "input"),
        output_tokens=_number(usage, "completion_tokens", "output_tokens", "output"),
        seconds=_seconds(line, request),
    )
    key = key_at(row, "id", "custom_id", "request_id", "trace_id")
    return {"id": key, "category": label_at(row, "category"), **_content(request, line), "logged": logged}


def _content(request: Mapping[str, Any], line: Mapping[str, Any]) -> Columns:
    """Messages or prompt. Raises BadRow where the line holds no request at all, NoText where it cannot be sent."""
    messages = _parsed(request.get("messages", line.get("input")))
    if messages is None and isinstance(request.get("prompt"), str):
        return {"prompt": request["prompt"]}
    if isinstance(messages, str):
        return {"prompt": messages}
    if isinstance(messages, Mapping):
        messages = _parsed(messages.get("messages"))
    if messages is None:
        raise BadRow("holds no request: messages or prompt, at the top or under request, body, request_body or input")
    if request.get("functions"):
        raise NoText("offers functions, the older form of tools: it is not sent")
    tools = request.get("tools") or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools)):
        raise NoText("offers tools in a form of their own")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise BadRow("messages is no list of objects with role and content")
    if messages[-1].get("role") not in ("user", "tool"):
        raise NoText("does not end with the user's message")
    return {"messages": [_message(message) for message in messages], "tools": tools}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    if message.get("role") == "function" or message.get("function_call"):
        raise NoText("has calls of functions, the older form of tools: they are not sent")
    told = {name: message[name] for name in ("tool_calls", "tool_call_id") if message.get(name)}
    if "tool_calls" in told:
        try:
            tool_calls_of(told["tool_calls"], "tool_calls")
        except BadRow as error:  # models write such things, and engines refuse them
            raise NoText("has tool calls without a name, or with arguments that are no JSON") from error
    content = message.get("content")
    if not content and (message.get("role") == "tool" or "tool_calls" in told):
        return {"role": message.get("role"), "content": content, **told}
    return {"role": message.get("role"), "content": _text(content), **told}


def _text(content: Any) -> str:
    """A text, also as the only part of a list; several parts become one text in each engine's own way."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        content = content[0].get("text") if content[0].get("type") in ("text", "input_text") else content
    if isinstance(content, list):
        raise NoText("has content of several parts, or none of text: it is not sent in parts")
    if not isinstance(content, str) or not content.strip():
        raise NoText("has an empty message")
    return content


def _inner(record: Mapping[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    """The first of these members that is an object, or the JSON text of one."""
    for name in names:
        found = _parsed(record.get(name)) if record is not None else None
        if isinstance(found, Mapping):
            return dict(found)
    return None


def _body(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a proxy wraps once more with its headers or its status."""
    return _inner(record, ("body",)) or record


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _number(record: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def _seconds(*records: Mapping[str, Any]) -> float | None:
    for record in records:
        number = _number(record, *_TIMES)
        if number is not None:
            return number
        for name in _TIMES:
            moment = _moment(record.get(name))
            if moment is not None:
                return moment
    return None


def _moment(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


LOADER = Loader(
    what="request logs of your own: chat completions as JSON lines",
    columns=("messages | prompt, at the top or under request, body, request_body or input",),
    template="messages (or the prompt) as they were sent",
    licence="yours, and your users'",
    convert=_convert,
    note="lines that cannot be sent again as they were (pictures, content in parts, no last message of the user; tools,"
    " unless `chatTemplate.appliedBy: Client`) are refused, or left out with allowMissing; the log's own temperatures,"
    " limits and lengths are told with the results",
    ids=False,
)
