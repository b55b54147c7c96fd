"""GPQA: questions of four choices, shuffled the same way everywhere.

Left as published, the right answer would always be (A). The order follows from the seed, the question's id and each
choice's number alone, by SHA-256: no state, no library's generator, no order of rows.
"""

from __future__ import annotations

import hashlib

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, asked, key_at, label_at, text_at

_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_LETTERS = "ABCD"
_FORMAT = 'Format your response as follows: "The correct answer is (insert answer here)"'
_QUESTION = "What is the correct answer to this question: "


def order_of_choices(seed: int, question: str) -> list[int]:
    """Which choice stands at (A), (B), (C) and (D)."""
    return sorted(
        range(len(_CHOICES)), key=lambda choice: hashlib.sha256(f"{seed}\0{question}\0{choice}".encode()).digest()
    )


def _convert(row: Row, selection: Selection) -> Columns:
    key = str(key_at(row, "Record ID"))
    shuffled = [_CHOICES[choice] for choice in order_of_choices(selection.seed or 0, key)]
    choices = [f"({letter}) {text_at(row, name).strip()}" for letter, name in zip(_LETTERS, shuffled, strict=True)]
    prompt = "\n".join([_QUESTION + text_at(row, "Question"), "", "Choices:", *choices, "", _FORMAT])
    domain, finer = label_at(row, "High-level domain"), label_at(row, "Subdomain")
    return {**asked(prompt, row, category=domain or "stem", sub_category=finer), "id": key}


def _hub(config: str | None) -> Hub:
    return Hub("Idavidrein/gpqa", "train", config)


LOADER = Loader(
    what="GPQA: graduate questions of four choices (main 448, diamond 198, extended 546)",
    columns=("Question", *_CHOICES),
    template=f"`{_QUESTION}{{Question}}⏎⏎Choices:⏎(A) …⏎(B) …⏎(C) …⏎(D) …⏎⏎{_FORMAT}`, choices shuffled by seed",
    licence="CC BY 4.0; must not be published in plain text",
    convert=_convert,
    hub=_hub,
    gated=True,
    note="category: High-level domain; sub-category: Subdomain",
)
