"""Detects a dataset's source: from the words of a command line, from a file's name, and from its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from specbench_api.spec.dataset import FILE_SOURCES, GENERATED_SOURCES, OWN_SOURCES, Source
from specbench_client.errors import BadInput
from specbench_client.file_roots import similar_file
from specbench_client.workload.prompt_files import PromptRow, is_named, iterate_rows
from specbench_client.workload.row_parsing import CONTENT_COLUMNS, TIMES, role_of
from specbench_client.workload.row_shapes import messages_of

_MOONCAKE = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
_TEMPLATE_COLUMNS: Mapping[Source, frozenset[str]] = {
    Source.MATH_500: frozenset({"problem", "solution"}),
    Source.GPQA: frozenset({"Question", "Correct Answer"}),
    Source.CNN_DAILYMAIL: frozenset({"article", "highlights"}),
    Source.EDIT: frozenset({"code", "change_request"}),
}
"""Columns that identify sources whose prompts are made with a template. Of those with the same columns, such as
MATH-500 and AIME, only one is listed."""


def is_mooncake_row(columns: Iterable[str]) -> bool:
    """Return whether a row with these columns is from a Mooncake trace, whose timestamps are milliseconds.

    Traces with a chat_id (Alibaba's) have the same columns, and seconds.
    """
    names = set(columns)
    return names >= _MOONCAKE and "chat_id" not in names


_NAME_PROMPT = "name the column with the prompt's text: dataset.promptColumn"


def shape_hint(source: Source, columns: Mapping[str, Any]) -> str:
    """Suggest a fix for a user's own file with these columns but no prompt; empty if there is nothing to suggest."""
    present = {name for name, value in columns.items() if value is not None}
    if source not in OWN_SOURCES or not present or present & set(CONTENT_COLUMNS):
        return ""
    match = next((each for each, needed in _TEMPLATE_COLUMNS.items() if needed <= present), None)
    if match is None and source is Source.CSV:
        return f"{_NAME_PROMPT}; if the first line is a prompt, put a line with names before it, such as id,prompt"
    if match is None:
        return _NAME_PROMPT
    how = f"source: {match} in a spec, --source {match} for `specbench dataset`, {match}:FILE for `specbench measure`"
    return f"these are the columns of {match}: name that source ({how}), or {_NAME_PROMPT}"


def guess_dataset(text: str) -> dict[str, str]:
    """Return `source` and `uri` for a source's name, SOURCE:FILE or a file; no `uri` for the hub. Raises BadInput."""
    text = unquote(text.removeprefix("file://")) if text.startswith("file:///") else text
    name, colon, file = text.partition(":")
    known = {str(source): source for source in Source if source not in GENERATED_SOURCES}
    if colon and name in known and not file.startswith("//"):
        return {"source": name, "uri": file}
    if text in known and known[text] not in FILE_SOURCES and not Path(text).exists():
        return {"source": text}
    return {"source": str(guess_source(text)), "uri": text}


def guess_source(uri: str) -> Source:
    """Guess a file's source by its name, then by its first row. Remote files go by name only. Raises BadInput."""
    named = Source.CSV if is_named(uri) else Source.PARQUET if is_named(uri, "parquet") else Source.JSONL
    if "://" in uri:
        return Source.SPEC_BENCH if uri.endswith("/question.jsonl") else named
    path = Path(uri)
    if not path.is_file():
        there = "Is a directory" if path.is_dir() else "Is a pipe or a device, which cannot be read twice"
        reason = there if uri and path.exists() else "No such file or directory"
        hubs = ", ".join(str(source) for source in Source if source not in (*GENERATED_SOURCES, *FILE_SOURCES))
        files = "JSONL, JSON, Parquet, CSV, text"
        remedy = f"give a file of prompts ({files}), SOURCE:FILE, or a source of the hub ({hubs})"
        raise BadInput(f"{uri or repr(uri)}: {reason}: {remedy}.{similar_file(path, Path())}")
    try:
        row = next((row for row in iterate_rows(path, named) if isinstance(row, PromptRow)), None)
    except BadInput:  # reading reports it later
        return named
    return _source_of_row(row.columns, named) if row else named


def _source_of_row(row: Mapping[str, Any], named: Source) -> Source:
    """Detect published datasets, sessions and request logs by their columns; other rows are a user's own."""
    columns = {name for name, value in row.items() if value is not None}
    recognised = (
        (_is_session(row), Source.AGENT_TRACES),
        (bool(row.get("conversations")) and len(messages_of(row)) > 1, Source.SHAREGPT),
        (any(needed <= columns for needed in _LOG_COLUMNS) and not _ends_with_answer(row), Source.OPENAI_LOGS),
        (is_mooncake_row(columns), Source.MOONCAKE),
        ({"question_id", "turns", "multiturn"} <= columns, Source.SPEED_BENCH),
        ({"question_id", "turns"} <= columns and "id" not in columns, Source.SPEC_BENCH),
        ({"task_id", "prompt", "entry_point"} <= columns and "id" not in columns, Source.HUMANEVAL),
    )
    return next((source for matches, source in recognised if matches), named)


_LOG_COLUMNS = (
    {"custom_id", "body"},
    {"request", "response"},
    {"request_body", "response_body"},
    {"messages", "model"},
    {"input", "model"},
)
"""Columns of request logs: the batch API's input, a proxy's pairs, Helicone, plain requests, and Langfuse."""


def _ends_with_answer(row: Mapping[str, Any]) -> bool:
    messages = messages_of(row)
    return bool(messages) and role_of(messages[-1]) == "assistant"


def _is_session(row: Mapping[str, Any]) -> bool:
    """Return whether this is a recorded session: requests, spans, or messages with answers and tools or times."""
    if isinstance(row.get("requests"), list) or "resourceSpans" in row:
        return True
    messages = messages_of({"messages": row.get("messages")})
    recorded = row.get("tools") or any(one.get(name) for one in messages for name in ("tool_calls", *TIMES))
    return bool(recorded) and _ends_with_answer(row)
