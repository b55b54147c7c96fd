"""How much of an output stands in its prompt, in words, for any model: see `analysis.replay.overlap`."""

from __future__ import annotations

import re

import numpy as np

from specbench_client.analysis.replay.overlap import Overlap, overlap

_WORD = re.compile(r"\w+|[^\w\s]")


def copied_share(prompt: str, output: str) -> float | None:
    """Share of the output's word 4-grams that occur in the prompt; None for an output of fewer than four words."""
    return _overlap(prompt, output).copied_share


def bleu_4(prompt: str, output: str) -> float | None:
    """Sentence BLEU-4 of the output against the prompt; None for an output of fewer than four words."""
    return _overlap(prompt, output).bleu_4


def _overlap(prompt: str, output: str) -> Overlap:
    numbers: dict[str, int] = {}
    asked, said = (
        np.array([numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.casefold())], dtype=np.int64)
        for text in (prompt, output)
    )
    return overlap(asked, said)
