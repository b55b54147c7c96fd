"""Rows a few prompts at a time: what is compared within a prompt needs no more of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.rows import Columns

BUCKET_ROWS = 50_000
"""Rows that are looked at together, of all sides; the rows of one prompt are never parted."""
Places = NDArray[np.int32]


def by_prompt(sides: Sequence[Columns]) -> Iterator[tuple[Places, ...]]:
    """Yield, for some prompts after the other and in their order, the numbers of each side's rows of them, rising."""
    codes, prompts = _codes(sides)
    orders = [np.argsort(each, kind="stable").astype(np.int32) for each in codes]
    counts = [np.bincount(each, minlength=prompts) for each in codes]
    ends = [np.concatenate([[0], np.cumsum(each)]) for each in counts]
    for first, last in _buckets(np.sum(counts, axis=0)):
        yield tuple(np.sort(order[end[first] : end[last]]) for order, end in zip(orders, ends, strict=True))


def _codes(sides: Sequence[Columns]) -> tuple[list[Places], int]:
    """The number of each row's prompt, by the order of prompts over all sides."""
    factorized = [pd.factorize(side["prompt_id"].to_numpy(object)) for side in sides]
    every = sorted({str(prompt) for _, found in factorized for prompt in found})
    numbers = {prompt: number for number, prompt in enumerate(every)}
    mapped = [
        np.array([*(numbers[str(each)] for each in found), len(every)], dtype=np.int32)[codes]
        for codes, found in factorized
    ]
    return mapped, len(every) + 1


def _buckets(rows: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Spans of prompts with no more than `BUCKET_ROWS` rows together, but of one prompt at least."""
    begun, held = 0, 0
    for prompt, count in enumerate(rows):
        if held and held + count > BUCKET_ROWS:
            yield begun, prompt
            begun, held = prompt, 0
        held += int(count)
    yield begun, len(rows)
