"""Finds the prompt in a row of a file that any tool wrote: data sets, request logs, exports of traces. Pure.

A row has its prompt in the first of its records that has one: the row itself, or a request inside it (`NESTED`), as an
object or as its JSON text. A record's prompt is, in this order:

- a list of messages (`MESSAGES`), in OpenAI's, ShareGPT's or OpenInference's form; beside `messages`, `prompt` is their
  first question again (UltraChat), and beside `prompt` and `turns` only `messages` count;
- `turns`, texts of the user, objects with them, or lists of messages (BFCL's `question`); or token ids (`TOKENS`);
- a text: `prompt`, or the only one of `TEXTS`; of `instruction` and `input` or `context` (Alpaca, Dolly) both, with a
  blank line between them.

A system prompt beside it (`SYSTEMS`) becomes the first message. Other text that may belong to the prompt (`_PARTS`) is
not sent, but named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from specbench_client.bounded_json import parse_json
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import (
    CONTENT_COLUMNS,
    FUNCTIONS,
    BadRow,
    RowExcluded,
    RowWithoutText,
    role_of,
)

NESTED = (
    "request",
    "body",
    "request_body",
    "proxy_server_request",
    "input",
    "inputs",
    "attributes",
    "llm",
    "row",
    "params",
    "modelInput",
    "kwargs",
    "data",
    "fields",
    "payload",
    "item",
    "payloads",
    "arguments",
    "gen_args_0",
)
MESSAGES = (
    "messages",
    "conversations",
    "conversation",
    "input_messages",
    "input",
    "prompt",
    "chosen",
    "contents",
    "thread",
    "question",
    "arg_0",
)
TOKENS = ("token_ids", "input_ids", "prompt_token_ids", "prompt")
TEXTS = ("instruction", "question", "query", "text", "text_input", "input", "inputs", "arg_0")
_ADDED = ("input", "context")
"""Columns with the text that an instruction is about."""
_PARTS = (*_ADDED, "options", "choices", "passage", "document", "suffix")
"""Columns that may belong to a prompt, besides the one with its text."""
_MEDIA = (
    "previous_response_id",
    "conversation",
    "function",
    "involved_classes",
    "image",
    "images",
    "image_url",
    "image_urls",
    "image_files",
    "audio",
    "audios",
    "video",
    "videos",
)
"""Columns with what is no text; `conversation` may have messages."""
SYSTEMS = ("system", "system_prompt", "instructions", "systemInstruction", "system_instruction")
IDS = ("id", "question_id", "custom_id", "request_id", "instance_id", "uuid", "span_id")
"""Columns that name a row, the first that has a value; without any, the row's number in the file is its id."""
_ROUTES = ("completions", "responses", "messages")
"""Ends of the routes that answer prompts."""
_NESTED_MOST = 4
_OTHER_SPANS = (
    "CHAIN",
    "TOOL",
    "RETRIEVER",
    "EMBEDDING",
    "AGENT",
    "RERANKER",
    "GUARDRAIL",
    "EVALUATOR",
    "SPAN",
    "EVENT",
)
_TRACES = {"traceId", "trace_id", "context", "context.trace_id"}
"""Kinds of spans beside the calls of models in exports of Phoenix and Langfuse, and columns that show such files."""


def prompt_columns(row: PromptRow) -> dict[str, Any]:
    """Return the row's columns with its prompt in one of ours and its id; a row without a prompt gets only the id.

    Raises BadRow, RowWithoutText, and RowExcluded for spans of traces that are no calls of a model.
    """
    columns: Mapping[str, Any] = row.columns
    if columns.get("truncated_cells"):
        raise RowWithoutText("has truncated cells (truncated_cells): download the data set's file instead of its rows")
    if columns.get("span_kind", columns.get("type")) in _OTHER_SPANS and not columns.keys().isdisjoint(_TRACES):
        raise RowExcluded("is a span of a trace that is no call of a model")
    found = _found(columns)
    if not found and any("." in name for name in columns):
        columns = unflattened(columns)
        found = _found(columns)
    role = role_of({"role": columns.get("role")})
    if "prompt" in found and role in ("assistant", "system", "tool"):  # OpenAssistant has a row for each message
        raise RowExcluded(f"is a message of the role {role}")
    own = {name: value for name, value in row.columns.items() if not found or name not in CONTENT_COLUMNS}
    return {**own, **found, "id": row_id(row, columns)}


def own_columns(row: PromptRow, prompt_column: str | None = None) -> dict[str, Any]:
    """Return `prompt_columns` of a row of the user's own file: a conversation without its final answer.

    `prompt_column`: the column with the text of the prompt, if it is named. Raises BadRow.
    """
    if prompt_column is not None:
        if row.columns.get(prompt_column) is None:
            raise BadRow(f"{prompt_column} is missing: name one of the row's columns: {', '.join(row.columns)}")
        row = replace(
            row,
            columns={name: value for name, value in row.columns.items() if name not in CONTENT_COLUMNS}
            | {"prompt": row.columns[prompt_column]},
        )
    columns = prompt_columns(row)
    messages = columns.get("messages")
    if isinstance(messages, list) and any(isinstance(one, dict) and role_of(one) == "user" for one in messages):
        while isinstance(messages[-1], dict) and role_of(messages[-1]) == "assistant":
            messages = messages[:-1]
        columns["messages"] = messages
    return columns


def row_id(row: PromptRow, columns: Mapping[str, Any]) -> Any:
    """Return the row's id."""
    named = {**record_of(columns.get("context")), **columns}
    found = [value for name in IDS if (value := named.get(name)) is not None]
    missing = not found or (isinstance(found[0], float) and math.isnan(found[0]))
    return row.place.replace(" ", "-") if missing else found[0]


def _found(columns: Mapping[str, Any]) -> dict[str, Any]:
    url = columns.get("url")
    if isinstance(url, str) and url.startswith("/v1/") and not url.rstrip("/").endswith(_ROUTES):
        raise BadRow(f"is a request of {url}, which answers no prompts: remove the row")
    found = next(filter(None, map(_content, records(columns))), {})
    if not found and any("choices" in one for one in records(columns, ("response", "body"))):
        raise BadRow("is an answer without its prompt, as in the output of a batch: give the file of its requests")
    return found


def records(
    record: Mapping[str, Any], nested: Sequence[str] = NESTED, most: int = _NESTED_MOST
) -> Iterator[Mapping[str, Any]]:
    """Yield a record and those inside it, the outer ones first. `most`: levels of nesting."""
    yield record
    for name in nested if most else ():
        if inner := record_of(record.get(name)):
            yield from records(inner, nested, most - 1)


def _content(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record, with its tools; empty if it has none."""
    if record.get("functions"):
        raise RowWithoutText(FUNCTIONS)
    # Triton and the completions API have a text in a list.
    only = {name: _only(record[name]) for name in ("prompt", "messages", *TEXTS) if isinstance(record.get(name), list)}
    record = {**record, **only} if only else record
    asked = record.get("question")
    if isinstance(asked, list) and all(isinstance(one, list) for one in asked):  # BFCL's turns
        record = {**record, "turns": asked}
    messages = messages_of(record)
    tools = {"tools": record["tools"]} if record.get("tools") else {}
    if messages:
        return {"messages": messages, **tools}
    systems = _systems(record)
    lists = {name: record[name] for name in ("turns", *TOKENS) if isinstance(record.get(name), list)}
    if "turns" in lists and record.get("prompt") is None:
        turns = lists["turns"]
        if systems and turns:
            first = turns[0] if isinstance(turns[0], list) else [{"role": "user", "content": turns[0]}]
            turns = [[*(one for one in systems if one not in first), *first], *turns[1:]]
        return {"turns": turns, **tools}
    tokens = next((ids for ids in lists.values() if ids and all(isinstance(one, int) for one in ids)), None)
    if tokens is not None and not isinstance(record.get("prompt"), str):
        return {"token_ids": tokens}
    text = _text(record)
    if text is None or any(record.get(name) for name in CONTENT_COLUMNS if name != "prompt"):
        return {}
    if not systems:
        return {"prompt": text, **tools}
    return {"messages": [*systems, {"role": "user", "content": text}], **tools}


def _rows_of_table(value: Any) -> Any:
    """Return the messages of a list that is stored as one list for each field, as by `datasets`; others unchanged."""
    if not isinstance(value, Mapping) or not isinstance(role_of(value), list):
        return value
    fields = {name: one for name, one in value.items() if isinstance(one, list)}
    return [dict(zip(fields, row, strict=True)) for row in zip_longest(*fields.values())]


def messages_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the first list of messages in a record, with its system prompt; empty if it has none."""
    has_ours = any(record.get(name) is not None for name in ("prompt", "turns", "token_ids"))
    for name in ("messages", "prompt") if has_ours else MESSAGES:
        listed = _rows_of_table(parsed(record.get(name)) if name != "prompt" else record.get(name))
        if isinstance(listed, list) and listed and all(isinstance(one, Mapping) for one in listed):
            messages = [*map(_message, map(unflattened, listed))]
            if all(role_of(one) is None for one in messages):  # SGLang's files
                messages = [{"role": ("user", "assistant")[at % 2], **one} for at, one in enumerate(messages)]
            first = [messages[0].get(name) for name in ("content", "value")]
            return [*(one for one in _systems(record) if one["content"] not in first), *messages]
    return []


def _message(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message, also if it is inside an object without a text, as LangChain's `data` or `kwargs`.

    The `id` of a constructor is the path of its class, such as `HumanMessage`. Its `additional_kwargs` have the tool
    calls in OpenAI's form, in older versions only they.
    """
    outer = listed if all(listed.get(name) is None for name in ("content", "value", "text")) else {}
    inner, path = record_of(outer.get("data", outer.get("kwargs"))), outer.get("id")
    fields = {
        name: inner[name]
        for name in (
            "type",
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "invalid_tool_calls",
            "additional_kwargs",
        )
        if name in inner
    }
    kind = path[-1] if isinstance(path, list) and path else listed.get("type")
    message = record_of(outer.get("message")) or ({"type": kind, **fields} if fields else listed)
    added = {} if message.get("tool_calls") else record_of(message.get("additional_kwargs"))
    return {**message, **{name: added[name] for name in ("tool_calls", "function_call") if added.get(name)}}


def _systems(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = [record[name] for name in SYSTEMS if record.get(name)][:1]
    return [{"role": "system", "content": record_of(one).get("parts", one)} for one in found]  # parts: Gemini's


def _text(record: Mapping[str, Any]) -> str | None:
    if isinstance(record.get("prompt"), str):
        return str(record["prompt"])
    texts = {name: text for name in (*TEXTS, *_ADDED) if isinstance(text := record.get(name), str) and text.strip()}
    if "instruction" in texts and texts.keys() <= {"instruction", *_ADDED}:
        return "\n\n".join(texts.values())
    return next(iter(texts.values())) if len(texts) == 1 and "context" not in texts else None


def unsent_text(rows: Sequence[PromptRow]) -> str:
    """Return a note about what converted rows do not send: later questions, or columns that may belong to a prompt.

    Empty for none.
    """
    later = [
        count
        for row in rows
        if "messages" in row.columns and (count := _questions(row.published or {}) - _questions(row.columns)) > 0
    ]
    if later:
        return (
            f"{sum(later):,} later questions of {len(later):,} conversations are not sent: read as jsonl, a"
            " conversation is sent up to its last question"
        )
    found = set[str]()
    for row in rows:
        prompt, turns = row.columns.get("prompt"), row.columns.get("turns") or [()]
        first = row.columns.get("messages", turns[0])
        opened = isinstance(first, list) and any(role_of(one) in ("system", "developer") for one in first)
        names = _MEDIA if opened else (*_MEDIA, *SYSTEMS)
        for published in records(row.published or {}):
            there = {name: published[name] for name in names if published.get(name)}
            found |= {
                name for name, value in there.items() if isinstance(prompt, str) or not messages_of({name: value})
            }
            if isinstance(prompt, str):
                found |= {name for name in _PARTS if any(one not in prompt for one in _texts_of(published.get(name)))}
    return (
        f"the content of {', '.join(sorted(found))} is not sent: if it belongs to the prompts, put its text into the"
        " column with theirs"
        if found
        else ""
    )


def _texts_of(value: Any) -> list[str]:
    """Return a text, or those of a list; empty for anything else."""
    return [value] if isinstance(value, str) else list(map(str, value)) if isinstance(value, list) else []


def _questions(columns: Mapping[str, Any]) -> int:
    return sum(role_of(one) == "user" for one in messages_of(columns) or [])


def unflattened(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record whose names with points are nested records: `a.0.b` is member b of the first element of a."""
    if not any("." in name for name in record):
        return record
    found: dict[str, Any] = {}
    for name, value in record.items():
        *path, last = name.split(".")
        inner = found
        for step in path:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner[last] = value
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    """Return a nested record; if all its names are numbers, the list of its values in their order."""
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(one) for name, one in value.items()}
    if inner and all(name.isdecimal() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


def parsed(value: Any) -> Any:
    """Return the value of a JSON text of an object or a list; anything else unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def _only(value: Any) -> Any:
    """Return the only element of a list, unless it is a message or a token; anything else unchanged."""
    return value[0] if len(value) == 1 and isinstance(value[0], str | list) else value


def record_of(value: Any) -> Mapping[str, Any]:
    """Return an object, or that of its JSON text, or the only one of a list; empty for anything else."""
    found = parsed(value)
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    return found if isinstance(found, Mapping) else {}
