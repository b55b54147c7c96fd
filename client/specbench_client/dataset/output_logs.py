"""Reads files of prompts with outputs, one answer per row, as token ids or as texts to be tokenized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specbench_client.analysis.what_if.answers import Tokens
from specbench_client.analysis.what_if.ngram import AnswerLog, LoggedAnswer
from specbench_client.dataset.inspection import OUTPUT_COLUMNS, output_of
from specbench_client.dataset.prompt_entries import MESSAGE_SEPARATOR, read_prompt_rows
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompt_lengths import TokenEncoder

_BOUND = 2**31
"""Exclusive upper bound of token ids and counts; a larger number is certainly something else."""


def whole_numbers(columns: Mapping[str, Any], name: str, where: str, least: int = 0) -> Tokens:
    """Return a column that is a list of whole numbers of `least` or more. Raises BadInput."""
    value = columns[name]
    wrong = f"{where}: {name} must be a list of whole numbers of {least} or more, such as [{least}, {least + 1}]"
    if not isinstance(value, list) or any(type(each) is not int or not least <= each < _BOUND for each in value):
        raise BadInput(wrong)
    return np.array(value, dtype=np.int64)


def first_of(columns: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these columns that has a value in the row."""
    return next((name for name in names if columns.get(name) is not None), None)


def category_of(columns: Mapping[str, Any]) -> str | None:
    """Return the row's category; None if it has no non-empty string."""
    value = columns.get("category")
    return value if isinstance(value, str) and value else None


def id_of(columns: Mapping[str, Any], place: str) -> str:
    """Return the row's id, or else its line or row number."""
    name = first_of(columns, ("id", "question_id"))
    return str(columns[name]) if name else place


PROMPT_IDS = ("prompt_token_ids", "input_token_ids")
OUTPUT_IDS = ("output_token_ids", "generated_token_ids")
FILE_TOKENIZER = "the file's own"
NO_PROMPT, NO_OUTPUT = "no prompt", "no output"


def read_log(file: Path, encoder: TokenEncoder | None = None, outputs: str | None = None) -> AnswerLog:
    """Read every row that has a prompt and an output; count the others. `outputs`: the column with the output texts.

    Raises BadInput if the file cannot be read, a row is invalid, or there are texts but no tokenizer.
    """
    rows, _ = read_prompt_rows(file)
    answers: list[LoggedAnswer] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        found = _logged(row, f"{file}, {row.place}", encoder, outputs)
        if isinstance(found, LoggedAnswer):
            answers.append(found)
        else:
            left_out[found] += 1
    if not answers:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out.items())
        raise BadInput(f"{file}: no row has a prompt and an output ({reasons}): {_REQUIRED_COLUMNS}")
    by_ids = all(first_of(row.columns, OUTPUT_IDS) for row in rows)
    return AnswerLog(
        str(file), FILE_TOKENIZER if by_ids or encoder is None else encoder.description, answers, dict(left_out)
    )


_REQUIRED_COLUMNS = (
    f"give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}, or prompt (or messages) and one of {', '.join(OUTPUT_COLUMNS)}"
    " with --tokenizer"
)


def _logged(row: PromptRow, where: str, encoder: TokenEncoder | None, outputs: str | None) -> LoggedAnswer | str:
    """Return the row's answer, or the reason why it has none."""
    columns = row.columns
    prompt = _prompt(columns, where, encoder)
    output = _ids(columns, OUTPUT_IDS, where, output_of(columns, outputs), encoder)
    if prompt is None:
        return NO_PROMPT
    if output is None:
        return NO_OUTPUT
    return LoggedAnswer(id_of(columns, row.place), category_of(columns), prompt, output)


def _prompt(columns: Mapping[str, Any], where: str, encoder: TokenEncoder | None) -> Tokens | None:
    text = columns.get("prompt")
    messages = columns.get("messages")
    if text is None and isinstance(messages, list):
        contents = [each.get("content") for each in messages if isinstance(each, Mapping)]
        text = MESSAGE_SEPARATOR.join(each for each in contents if isinstance(each, str))
    return _ids(columns, PROMPT_IDS, where, text if isinstance(text, str) else None, encoder)


def _ids(
    columns: Mapping[str, Any], names: tuple[str, ...], where: str, text: str | None, encoder: TokenEncoder | None
) -> Tokens | None:
    """Return the row's token ids, or else those of its text; None if it has neither."""
    name = first_of(columns, names)
    if name:
        return whole_numbers(columns, name, where)
    if not text:
        return None
    if encoder is None:
        remedy = f"add --tokenizer with the target's tokenizer.json, or give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}"
        raise BadInput(f"{where}: has texts but no token ids, which n-gram lookup needs: {remedy}")
    return np.array(encoder.encode(text), dtype=np.int64)
