"""Which prompts are meant by one word of a command line: a source's name, SOURCE:FILE, or a file of prompts.

The shape of a bare file is told by its name, then by its first row.
"""

from __future__ import annotations

import json
from pathlib import Path

from specbench_api.spec.dataset import MADE, OWN_FILES, Source
from specbench_client.errors import BadInput
from specbench_client.workload.files import opened

_FIRST_BYTES = 1_000_000


def guess_dataset(text: str) -> dict[str, str]:
    """`source` and `uri` of a dataset, `uri` left out where the hub serves it. Raises BadInput."""
    name, colon, file = text.partition(":")
    known = {str(source): source for source in Source if source not in MADE}
    if colon and name in known and not file.startswith("//"):
        return {"source": name, "uri": file}
    if text in known and known[text] not in OWN_FILES and not Path(text).exists():
        return {"source": text}
    return {"source": str(guess_source(text)), "uri": text}


def guess_source(uri: str) -> Source:
    """The shape. Raises BadInput where there is no such file. Files elsewhere are told by their names alone."""
    ending = uri.lower().removesuffix(".gz").rpartition(".")[2]
    if ending in (Source.PARQUET, Source.CSV):
        return Source(ending)
    if "://" in uri:
        return Source.SPEC_BENCH if uri.endswith("/question.jsonl") else Source.JSONL
    path = Path(uri)
    if not path.is_file():
        reason = "Is a directory" if path.is_dir() else "No such file or directory"
        named = ", ".join(str(source) for source in Source if source not in (*MADE, *OWN_FILES))
        remedy = f"give a file of prompts (JSONL, Parquet, CSV), SOURCE:FILE, or a source of the hub ({named})"
        raise BadInput(f"{uri}: {reason}: {remedy}")
    with opened(path) as file:
        first = file.readline(_FIRST_BYTES)
    try:
        row = json.loads(first)
    except ValueError:
        return Source.JSONL  # whoever reads it says what is wrong with the row
    return _shape(set(row)) if isinstance(row, dict) else Source.JSONL


def _shape(columns: set[str]) -> Source:
    """Published sets that are told by their columns; a row with an id is one of a file of one's own."""
    if "id" in columns:
        return Source.JSONL
    if {"question_id", "turns"} <= columns:
        return Source.SPEC_BENCH
    return Source.HUMANEVAL if {"task_id", "prompt", "entry_point"} <= columns else Source.JSONL
