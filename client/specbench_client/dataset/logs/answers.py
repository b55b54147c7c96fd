"""Prompts with their outputs, one answer a row: as token ids, or as texts that a tokenizer makes ids of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specbench_client.analysis.oracle.answers import Tokens
from specbench_client.analysis.replay.report import Log, Logged
from specbench_client.dataset.entries import JOINT, rows_of
from specbench_client.dataset.inspecting import OUTPUTS, output_of
from specbench_client.dataset.logs.ids import category_of, first_of, id_of, whole_numbers
from specbench_client.errors import BadInput
from specbench_client.workload.encoder import Encoder
from specbench_client.workload.rows import Row

PROMPT_IDS = ("prompt_token_ids", "input_token_ids")
OUTPUT_IDS = ("output_token_ids", "generated_token_ids")
OF_THE_FILE = "the file's own"
NO_PROMPT, NO_OUTPUT = "no prompt", "no output"


def read_log(file: Path, encoder: Encoder | None = None, outputs: str | None = None) -> Log:
    """Every row that has a prompt and an output; others are counted. `outputs`: the column with the outputs' texts.

    Raises BadInput where the file cannot be read, holds neither ids nor texts with a tokenizer, or a broken row.
    """
    rows, _ = rows_of(file)
    answers: list[Logged] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        found = _logged(row, f"{file}, {row.place}", encoder, outputs)
        if isinstance(found, Logged):
            answers.append(found)
        else:
            left_out[found] += 1
    if not answers:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out.items())
        raise BadInput(f"{file}: no row has a prompt and an output ({reasons}): {_WANTED}")
    by_ids = all(first_of(row.columns, OUTPUT_IDS) for row in rows)
    return Log(str(file), OF_THE_FILE if by_ids or encoder is None else encoder.told, answers, dict(left_out))


_WANTED = (
    f"give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}, or prompt (or messages) and one of {', '.join(OUTPUTS)}"
    " with --tokenizer"
)


def _logged(row: Row, where: str, encoder: Encoder | None, outputs: str | None) -> Logged | str:
    """The row's answer, or why it has none."""
    columns = row.columns
    prompt = _prompt(columns, where, encoder)
    output = _ids(columns, OUTPUT_IDS, where, output_of(columns, outputs), encoder)
    if prompt is None:
        return NO_PROMPT
    if output is None:
        return NO_OUTPUT
    return Logged(id_of(columns, row.place), category_of(columns), prompt, output)


def _prompt(columns: Mapping[str, Any], where: str, encoder: Encoder | None) -> Tokens | None:
    text = columns.get("prompt")
    messages = columns.get("messages")
    if text is None and isinstance(messages, list):
        said = [each.get("content") for each in messages if isinstance(each, Mapping)]
        text = JOINT.join(each for each in said if isinstance(each, str))
    return _ids(columns, PROMPT_IDS, where, text if isinstance(text, str) else None, encoder)


def _ids(
    columns: Mapping[str, Any], names: tuple[str, ...], where: str, text: str | None, encoder: Encoder | None
) -> Tokens | None:
    """Ids as the row has them, else its text's; None where it has neither."""
    name = first_of(columns, names)
    if name:
        return whole_numbers(columns, name, where)
    if not text:
        return None
    if encoder is None:
        remedy = f"add --tokenizer with the target's tokenizer.json, or give {PROMPT_IDS[0]} and {OUTPUT_IDS[0]}"
        raise BadInput(f"{where}: has texts and no token ids, and drafts are looked up in tokens: {remedy}")
    return np.array(encoder.encode(text), dtype=np.int64)
