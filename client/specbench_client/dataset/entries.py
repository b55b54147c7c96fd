"""A prompts file as `specbench dataset` handles it: each prompt with its text and with all that its row holds."""

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
from specbench_client.chat import Message
from specbench_client.errors import BadInput
from specbench_client.workload.checking import convert, parts_of
from specbench_client.workload.guess import guess_source
from specbench_client.workload.prompts import select
from specbench_client.workload.reading import CONTENT, Prompt
from specbench_client.workload.rows import Row, read_rows
from specbench_client.workload.sources.table import LOADERS

JOINT = "\n\n"
"""Between the messages of a prompt where they are looked at as one text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One prompt with the row it came from. `columns` are as the file has them."""

    prompt: Prompt
    columns: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The prompt's id."""
        return self.prompt.id

    @property
    def category(self) -> str | None:
        """Its category; None where the row has none."""
        return self.prompt.category

    @property
    def text(self) -> str:
        """All its messages as one text; empty for a prompt of token ids."""
        return JOINT.join(message.content for turn in self.prompt.turns for message in turn if message.content)


def rows_of(file: Path, source: Source | None = None) -> tuple[list[Row], Dataset]:
    """The file's rows, and its declaration; the shape is guessed where none is given. Raises BadInput."""
    declared = Dataset(source=source or guess_source(str(file)), uri=str(file))
    return read_rows(file, declared.source), declared


def read_entries(file: Path, source: Source | None = None) -> list[Entry]:
    """Every prompt of the file, in its order. Raises BadInput where one row cannot be a prompt."""
    rows, declared = rows_of(file, source)
    prompts = select(rows, declared, with_tools=True).rows
    loader = LOADERS[declared.source]
    converted = convert(rows, declared, loader)
    left_out = {fault.row.place for fault in converted.faults}
    used = [row for row in rows if row.place not in left_out for _ in parts_of(row, loader)]
    return [Entry(prompt, row.columns) for prompt, row in zip(prompts, used, strict=True)]


def our_row(entry: Entry) -> dict[str, Any]:
    """The row in the shape of a prompts file of ours: `id`, `category`, the prompt, then what the row holds besides.

    The prompt is what is sent: a source's own template is applied, and its columns stay as what they are.
    """
    ours = ("id", "category", "question_id", "tools", *CONTENT)
    rest = {name: value for name, value in entry.columns.items() if name not in ours and value is not None}
    category = {} if entry.category is None else {"category": entry.category}
    return {"id": entry.id, **category, **_content(entry.prompt), **rest}


def _content(prompt: Prompt) -> dict[str, Any]:
    """Its column: the shortest of our forms that says it."""
    first = prompt.turns[0]
    tools = {"tools": json.loads(first[0].tools)} if first[0].tools else {}
    if first[0].token_ids is not None:
        return {"token_ids": list(first[0].token_ids)}
    if any(len(turn) > 1 or turn[0].role != "user" for turn in prompt.turns):
        return {"messages": [_message(one) for one in first], **tools}
    texts = [turn[0].content for turn in prompt.turns]
    return {"prompt": texts[0], **tools} if len(texts) == 1 else {"turns": texts, **tools}


def _message(message: Message) -> dict[str, Any]:
    further = json.loads(message.further) if message.further else {}
    return {"role": message.role, "content": message.content, **further}


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines, whole or not at all: a file of this name is replaced when the last line is written.

    Raises BadInput where the file cannot be written, or a value has no form in JSON.
    """
    with replaced(file) as part, part.open("w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, allow_nan=False, default=_as_json) + "\n")


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """A new file beside `file` that takes its place when all went well. Raises BadInput where it cannot be written."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        os.close(handle)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give a file in a folder that is there and can be written") from error
    part = Path(name)
    try:
        yield part
        part.chmod(0o644)
        part.replace(file)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{file}: a row holds what JSON has no form for: {error}: take it out of the input") from error
    finally:
        part.unlink(missing_ok=True)


def texts_of(entries: Sequence[Entry]) -> list[str]:
    """The text of each. Raises BadInput where one has none: token ids say nothing without their model's tokenizer."""
    silent = [entry.id for entry in entries if not entry.text]
    if silent:
        raise BadInput(
            f"{silent[0]!r} and {len(silent) - 1} more prompts have token ids and no text: "
            "texts are compared, so give the prompts as prompt, turns or messages, or --embeddings FILE"
        )
    return [entry.text for entry in entries]


def _as_json(value: Any) -> str:
    """Parquet's dates, which JSON does not have, as ISO 8601."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise ValueError(f"a {type(value).__name__}")
