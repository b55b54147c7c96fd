"""Detects a dataset's source: from the words of a command line, from a file's name, and from its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specbench_api.spec.dataset import FILE_SOURCES, GENERATED_SOURCES, Source
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import is_json_array, json_array_rows, open_decompressed
from specbench_client.workload.row_parsing import CONTENT_COLUMNS

_SOURCE_COLUMNS: Mapping[Source, frozenset[str]] = {
    Source.GSM8K: frozenset({"question", "answer"}),
    Source.MATH_500: frozenset({"problem", "solution"}),
    Source.MBPP: frozenset({"text", "test_list"}),
    Source.GPQA: frozenset({"Question", "Correct Answer"}),
    Source.CNN_DAILYMAIL: frozenset({"article", "highlights"}),
    Source.SHAREGPT: frozenset({"conversations"}),
    Source.INSTRUCTCODER: frozenset({"instruction", "input"}),
    Source.EDIT: frozenset({"code", "change_request"}),
    Source.OPENAI_LOGS: frozenset({"request", "response"}),
    Source.MOONCAKE: frozenset({"timestamp", "input_length", "output_length", "hash_ids"}),
}
"""Columns that identify a source. Of datasets with the same columns, such as MATH-500 and AIME, only one is listed."""


def is_mooncake_row(columns: Iterable[str]) -> bool:
    """Return whether a row with these columns is from a Mooncake trace, whose timestamps are milliseconds.

    Traces with a chat_id (Alibaba's) have the same columns, and seconds.
    """
    names = set(columns)
    return names >= _SOURCE_COLUMNS[Source.MOONCAKE] and "chat_id" not in names


_OURS = (Source.JSONL, Source.PARQUET, Source.CSV)
_RENAME_PROMPT = "rename the column that contains the prompt's text to `prompt`"


def shape_hint(source: Source, columns: Mapping[str, Any]) -> str:
    """Suggest a fix for a user's own file with these columns but no prompt; empty if there is nothing to suggest."""
    present = {name for name, value in columns.items() if value is not None}
    if source not in _OURS or not present or present & set(CONTENT_COLUMNS):
        return ""
    if len(present) == 1 and ";" in "".join(present):
        return "the columns are separated by semicolons: save the CSV with commas"
    match = next((each for each, needed in _SOURCE_COLUMNS.items() if needed <= present), None)
    if match is None:
        return _RENAME_PROMPT
    how = f"source: {match} in a spec, --source {match} for `specbench dataset`, {match}:FILE for `specbench measure`"
    return f"these are the columns of {match}: name that source ({how}), or {_RENAME_PROMPT}"


_FIRST_BYTES = 1_000_000


def guess_dataset(text: str) -> dict[str, str]:
    """Return `source` and `uri` for a source's name, SOURCE:FILE or a file; no `uri` for the hub. Raises BadInput."""
    name, colon, file = text.partition(":")
    known = {str(source): source for source in Source if source not in GENERATED_SOURCES}
    if colon and name in known and not file.startswith("//"):
        return {"source": name, "uri": file}
    if text in known and known[text] not in FILE_SOURCES and not Path(text).exists():
        return {"source": text}
    return {"source": str(guess_source(text)), "uri": text}


def guess_source(uri: str) -> Source:
    """Guess a file's source by its name, then by its first row. Remote files go by name only. Raises BadInput.

    A JSON array is read like JSON Lines.
    """
    ending = uri.lower().removesuffix(".gz").rpartition(".")[2]
    if ending in (Source.PARQUET, Source.CSV):
        return Source(ending)
    if "://" in uri:
        return Source.SPEC_BENCH if uri.endswith("/question.jsonl") else Source.JSONL
    path = Path(uri)
    if not path.is_file():
        reason = "Is a directory" if uri and path.is_dir() else "No such file or directory"
        named = ", ".join(str(source) for source in Source if source not in (*GENERATED_SOURCES, *FILE_SOURCES))
        remedy = f"give a file of prompts (JSONL, Parquet, CSV), SOURCE:FILE, or a source of the hub ({named})"
        raise BadInput(f"{uri or repr(uri)}: {reason}: {remedy}")
    row = _first_row(path)
    return _source_of_row(row) if isinstance(row, dict) else Source.JSONL


def _first_row(path: Path) -> Any:
    """Return the first row of a JSON Lines file or a JSON array; None if it is damaged, which reading reports later."""
    try:
        if is_json_array(path):
            return next((row.columns for row in json_array_rows(path)), None)
        with open_decompressed(path) as file:
            return parse_json(file.readline(_FIRST_BYTES))
    except (ValueError, BadInput):
        return None


def _source_of_row(row: Mapping[str, Any]) -> Source:
    """Detect published datasets and request logs by their columns; other rows with an `id` are a user's own."""
    columns = {name for name, value in row.items() if value is not None}
    is_session = isinstance(row.get("requests"), list) or _ends_with_answer(row.get("messages"))
    recognised = (
        (_is_sharegpt(row), Source.SHAREGPT),
        (is_session or "resourceSpans" in columns, Source.AGENT_TRACES),
        (any(needed <= columns for needed in _LOG_COLUMNS), Source.OPENAI_LOGS),
        (is_mooncake_row(columns), Source.MOONCAKE),
        ("id" in columns, Source.JSONL),
        ({"question_id", "turns"} <= columns, Source.SPEC_BENCH),
        ({"task_id", "prompt", "entry_point"} <= columns, Source.HUMANEVAL),
    )
    return next((source for matches, source in recognised if matches), Source.JSONL)


_LOG_COLUMNS = (
    {"custom_id", "body"},
    {"request", "response"},
    {"request_body", "response_body"},
    {"messages", "model"},
)
"""Columns of request logs: the batch API's input, a proxy's pairs, Helicone, and plain requests."""


def _ends_with_answer(messages: Any) -> bool:
    """Return whether these are the messages of a whole session; those of a request end with what is to be answered."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, dict) and last.get("role") == "assistant"


def _is_sharegpt(row: Mapping[str, Any]) -> bool:
    messages = row.get("conversations")
    first = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(first, dict) and {"from", "value"} <= set(first)
