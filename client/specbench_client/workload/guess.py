"""Which shape a prompt file has, where nobody said: by its name, then by its first row."""

from __future__ import annotations

import json
from pathlib import Path

from specbench_api.spec.workload import Source
from specbench_client.errors import BadInput

_FIRST_BYTES = 1_000_000


def guess_source(uri: str) -> Source:
    """The shape. Raises BadInput where there is no such file. Files elsewhere are told by their names alone."""
    if uri.endswith(".parquet"):
        return Source.PARQUET
    if "://" in uri:
        return Source.SPEC_BENCH if uri.endswith("/question.jsonl") else Source.JSONL
    try:
        with Path(uri).open("rb") as file:
            first = file.readline(_FIRST_BYTES)
    except OSError as error:
        raise BadInput(f"{uri}: {error.strerror}: give a file of prompts, JSONL or Parquet") from error
    try:
        row = json.loads(first)
    except ValueError:
        return Source.JSONL  # whoever reads it says what is wrong with the row
    is_spec_bench = isinstance(row, dict) and "id" not in row and "question_id" in row and "turns" in row
    return Source.SPEC_BENCH if is_spec_bench else Source.JSONL
