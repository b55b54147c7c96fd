"""Mooncake's traces: lengths and shared prefixes of recorded requests, without their texts.

https://github.com/kvcache-ai/Mooncake, FAST25-release/traces. A prompt has one hash id for each block of 512 tokens, of
which the last may be shorter. Rows that begin with the same ids had the same beginning, and get the same one here: the
words of a block are derived from its id. Such text is random, so every result with it is marked.
"""

from __future__ import annotations

from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import Columns, SourceLoader, key_at
from specbench_client.workload.sources.random_words import random_text

BLOCK_TOKENS = 512


def _convert(row: PromptRow, selection: Selection) -> Columns:
    tokens, limit = _count_at(row, "input_length"), _count_at(row, "output_length")
    ids = row.columns.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        raise BadRow("hash_ids is missing or not a list of whole numbers: give one id for each block of 512 tokens")
    blocks = -(-tokens // BLOCK_TOKENS)
    if len(ids) != blocks:
        raise BadRow(
            f"input_length is {tokens}, which is {blocks} blocks of {BLOCK_TOKENS} tokens, but hash_ids has {len(ids)}"
            " ids: correct one of them (traces with other blocks are not Mooncake's)"
        )
    sizes = [BLOCK_TOKENS] * (blocks - 1) + [tokens - BLOCK_TOKENS * (blocks - 1)]
    texts = [random_text(f"{selection.seed or 0}/block/{one}", size) for one, size in zip(ids, sizes, strict=True)]
    return {"id": key_at(row), "prompt": " ".join(texts), "output_length": limit}


def _count_at(row: PromptRow, name: str) -> int:
    value: Any = row.columns.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        shown = "missing" if value is None else f"{value!r:.60}"
        raise BadRow(f"{name} is {shown}: give a number of tokens, 1 or more")
    return value


LOADER = SourceLoader(
    what="a Mooncake trace: lengths and shared prefixes of recorded requests",
    columns=("timestamp", "input_length", "output_length", "hash_ids"),
    template="`input_length` random words of one token; equal `hash_ids` at the beginning give equal beginnings",
    licence="that of the trace; it contains no texts",
    convert=_convert,
    note=(
        "each answer has `output_length` tokens (`ignore_eos`), which `output.maxTokens` must allow. With"
        " `load.arrival: {process: Trace, uri: FILE}` requests also have the times of the trace, row by row"
    ),
)
