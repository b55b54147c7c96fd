"""Files whose columns are those of a published set, though nobody said so: what to say, or how to call a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.spec.dataset import Source
from specbench_client.workload.reading import CONTENT

_SHAPES: Mapping[Source, frozenset[str]] = {
    Source.GSM8K: frozenset({"question", "answer"}),
    Source.MATH_500: frozenset({"problem", "solution"}),
    Source.MBPP: frozenset({"text", "test_list"}),
    Source.GPQA: frozenset({"Question", "Correct Answer"}),
    Source.CNN_DAILYMAIL: frozenset({"article", "highlights"}),
    Source.SHAREGPT: frozenset({"conversations"}),
    Source.INSTRUCTCODER: frozenset({"instruction", "input"}),
    Source.EDIT: frozenset({"code", "change_request"}),
    Source.OPENAI_LOGS: frozenset({"request", "response"}),
}
"""Columns that tell a source. Sets of the same columns, such as MATH-500 and AIME, are told by the first."""


_OURS = (Source.JSONL, Source.PARQUET, Source.CSV)
_CALLED = "call the column that holds the prompt's text `prompt`"


def shape_hint(source: Source, columns: Mapping[str, Any]) -> str:
    """What to do with rows of these columns that were read as ones of our own; empty where nothing is known to do."""
    there = {name for name, value in columns.items() if value is not None}
    if source not in _OURS or not there or there & set(CONTENT):
        return ""
    if len(there) == 1 and ";" in "".join(there):
        return "columns of a CSV are parted by commas, and these by semicolons"
    meant = next((each for each, needed in _SHAPES.items() if needed <= there), None)
    if meant is None:
        return _CALLED
    said = f"source: {meant} in a spec, --source {meant} of `specbench dataset`, {meant}:FILE of `specbench measure`"
    return f"these are the columns of {meant}: say so ({said}), or {_CALLED}"
