"""A user's own request logs: chat completions (or completions) as JSON Lines, read back into prompts.

Only the content of a line is used: its messages unchanged, or its prompt, wherever `row_shapes` finds them. A line that
cannot be sent again as it was (images, an assistant message at the end) is left out with a reason and never repaired.
Tools and tool calls are kept; sending them requires that the client applies the chat template.
Supported layouts, with the request and the response each as an object or as its JSON text:

    {"messages": …, "temperature": …, "max_tokens": …, "usage": …, "timestamp": …}        flat
    {"timestamp": …, "request": {…}, "response": {…}}                                     a proxy's pairs
    {"custom_id": …, "body": {…}}                                                         the batch API's input
    {"request_body": {…}, "response_body": {…}, "request_created_at": …}                  Helicone
    {"input": […], "output": …, "modelParameters": {…}, "usage": …, "startTime": …}       Langfuse
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import CONTENT_COLUMNS, TIMES, BadRow, RowWithoutText, role_of
from specbench_client.workload.row_shapes import NESTED, prompt_columns, record_of, records
from specbench_client.workload.sources.loader import Columns, SourceLoader, label_at

_FURTHER_RECORDS = (
    "response", "response_body", "output", "modelParameters", "model_parameters", "parameters", "kwargs"
)  # fmt: skip
"""Members of a line with parameters of its request, or with the usage of its answer."""
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
    settings = ChainMap(*map(dict, records(row.columns, (*NESTED, *_FURTHER_RECORDS))))
    usage = record_of(settings.get("usage"))
    logged = LoggedRequest(
        temperature=_number(settings, "temperature"),
        max_tokens=_number(settings, *_LIMITS),
        input_tokens=_number(usage, "prompt_tokens", "input_tokens", "input"),
        output_tokens=_number(usage, "completion_tokens", "output_tokens", "output"),
        seconds=seconds_at(row.columns, settings),
    )
    found = prompt_columns(row)
    content = {name: found[name] for name in ("id", *CONTENT_COLUMNS, "tools") if found.get(name) is not None}
    _check_request(content)
    return {"category": label_at(row, "category"), **content, "logged": logged}


def _check_request(content: Columns) -> None:
    """Raise BadRow for a line without a request, RowWithoutText if it cannot be sent."""
    tools, messages = content.get("tools"), content.get("messages")
    if messages is None and content.keys().isdisjoint(CONTENT_COLUMNS):
        raise BadRow(
            "contains no request: put messages or prompt at the top level or in request, body, request_body or input"
        )
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools)):
        raise RowWithoutText("offers tools in an unknown format")
    if messages is None:
        return
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise BadRow("messages is not a list of objects with role and content")
    if role_of(messages[-1]) not in ("user", "tool"):
        raise RowWithoutText("does not end with a message of role user or tool")


def _number(record: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def seconds_at(*records: Mapping[str, Any], names: tuple[str, ...] = TIMES) -> float | None:
    """Return the first time that a record has under one of these names, in seconds; None if there is none."""
    found = (time_of(record.get(name)) for record in records for name in names)
    return next((seconds for seconds in found if seconds is not None), None)


def time_of(value: Any) -> float | None:
    """Return a time in seconds, from a number or its text, a time, or RFC 3339 (UTC without an offset); else None."""
    if isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if isinstance(value, str) and math.isnan(seconds):
        with suppress(ValueError):
            value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):  # Parquet has times.
        seconds = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return seconds if math.isfinite(seconds) else None


LOADER = SourceLoader(
    what="your own request logs: chat completions as JSON Lines",
    columns=("messages | prompt, at the top level or in request, body, request_body or input",),
    template="messages (or the prompt) unchanged",
    licence="yours and your users'",
    convert=_convert,
    note="see [request logs](#request-logs)",
)
