"""How much of an output stands in its prompt, in words, for any model: see `analysis.replay.overlap`."""

from __future__ import annotations

import re

from specbench_client.analysis.replay import overlap

_WORD = re.compile(r"\w+|[^\w\s]")


def copied_share(prompt: str, output: str) -> float | None:
    """Share of the output's word 4-grams that occur in the prompt; None for an output of fewer than four words."""
    return overlap.copied_share(_words(prompt), _words(output))


def bleu_4(prompt: str, output: str) -> float | None:
    """Sentence BLEU-4 of the output against the prompt; None for an output of fewer than four words."""
    return overlap.bleu_4(_words(prompt), _words(output))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
