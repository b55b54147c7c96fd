"""Reads and writes prompt files for `specbench dataset`: each prompt with its text and all columns of its row."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from specbench_api.spec.workload import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow, read_rows
from specbench_client.workload.row_outcomes import RowOutcomes, check_rows, reject_faults
from specbench_client.workload.row_parsing import CONTENT_COLUMNS, Prompt
from specbench_client.workload.source_detection import guess_source
from specbench_client.workload.sources.registry import LOADERS

MESSAGE_SEPARATOR = "\n\n"
"""Separates the messages of a prompt when they are treated as one text."""
NO_CATEGORY = "(no category)"
"""Name of the group of prompts without a category in reports."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One prompt with the row that it came from. `columns` are unchanged."""

    prompt: Prompt
    columns: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The prompt's id."""
        return self.prompt.id

    @property
    def category(self) -> str | None:
        """The prompt's category; None if the row has none."""
        return self.prompt.category

    @property
    def text(self) -> str:
        """All its messages as one text; empty for a prompt of token ids."""
        return MESSAGE_SEPARATOR.join(message.content for message in self.prompt.messages if message.content)


def read_prompt_rows(
    file: Path, source: Source | None = None, faults: list[str] | None = None
) -> tuple[list[PromptRow], Dataset]:
    """Read a file's rows, and return them with its declaration; guess the source if none is given. Raises BadInput.

    `faults`: as of `read_rows`.
    """
    declared = Dataset(source=source or guess_source(str(file)), uri=str(file))
    return list(LOADERS[declared.source].assemble(read_rows(file, declared.source, faults=faults))), declared


def read_entries(file: Path, source: Source | None = None) -> list[PromptEntry]:
    """Read every prompt of the file, in order. Raises BadInput if a row is not a valid prompt, or if there is none."""
    rows, declared = read_prompt_rows(file, source)
    found = check_rows(rows, declared, with_tools=True)
    require_prompts(found, declared)
    return entries_of(found)


def require_prompts(found: RowOutcomes, declared: Dataset) -> None:
    """Raise BadInput with the words of a run if it would reject these rows, or if none of them is a prompt."""
    reject_faults(found, declared)
    if not found.prompts:
        raise BadInput(f"{declared.where}: none of the {found.read} rows is a prompt: give a file with prompts")


def entries_of(found: RowOutcomes) -> list[PromptEntry]:
    """Return the prompts, each with the columns of its row in the file."""
    return [PromptEntry(prompt, row.published or {}) for prompt, row in zip(found.prompts, found.rows, strict=True)]


def entry_columns(entry: PromptEntry) -> dict[str, Any]:
    """Return a row of our own format: `id`, `category`, the prompt as it is sent, then the row's other columns.

    The source's template has been applied to the prompt; the source's own columns are unchanged, as is the whole row of
    a recorded session.
    """
    if entry.prompt.starts:
        return {**entry.columns, "id": entry.id}
    own = ("id", "category", "question_id", "tools", *CONTENT_COLUMNS)
    rest = {name: value for name, value in entry.columns.items() if name not in own and value is not None}
    category = {} if entry.category is None else {"category": entry.category}
    return {"id": entry.id, **category, **_content(entry.prompt), **rest}


def _content(prompt: Prompt) -> dict[str, Any]:
    """Return the content column in the shortest of our formats that can represent the prompt."""
    first = prompt.turns[0]
    tools = {"tools": json.loads(first[0].tools)} if first[0].tools else {}
    if first[0].token_ids is not None:
        return {"token_ids": list(first[0].token_ids)}
    if any(len(turn) > 1 or turn[0].role != "user" or turn[0].parts or turn[0].further for turn in prompt.turns):
        return {"messages": [one.sent for one in first], **tools}
    texts = [turn[0].content for turn in prompt.turns]
    return {"prompt": texts[0], **tools} if len(texts) == 1 else {"turns": texts, **tools}


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines atomically: an existing file is replaced after the last line is written.

    Raises BadInput if the file cannot be written, or a value cannot be represented in JSON.
    """
    with replace_when_complete(file) as part, part.open("w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, allow_nan=False, default=_as_json) + "\n")


@contextmanager
def replace_when_complete(file: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `file` when the block succeeds. Raises BadInput if it cannot be written."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        os.close(handle)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give a file in an existing, writable folder") from error
    part = Path(name)
    try:
        yield part
        part.chmod(0o644)
        part.replace(file)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(
            f"{file}: a row contains a value that JSON cannot represent: {error}: remove it from the input"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def texts_of(entries: Sequence[PromptEntry]) -> list[str]:
    """Return the text of each entry. Raises BadInput for prompts of token ids, which need their model's tokenizer."""
    without_text = [entry.id for entry in entries if not entry.text]
    if without_text:
        raise BadInput(
            f"{without_text[0]!r} and {len(without_text) - 1} more prompts have token ids but no text to compare: "
            "give prompts with the column prompt, turns or messages, or give --embeddings FILE"
        )
    return [entry.text for entry in entries]


def _as_json(value: Any) -> str:
    """Convert Parquet's dates to ISO 8601 strings, because JSON has no dates."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise ValueError(f"a value of type {type(value).__name__}")
