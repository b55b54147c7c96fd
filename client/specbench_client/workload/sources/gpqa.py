"""GPQA: questions with four choices, shuffled deterministically.

In the published order the correct answer would always be (A). The shuffled order depends only on the seed, the
question's id and the choice's number, by SHA-256, and not on a random generator or the order of rows.
"""

from __future__ import annotations

import hashlib

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    key_at,
    label_at,
    single_turn_columns,
    text_at,
)

_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_LETTERS = "ABCD"
_FORMAT = 'Format your response as follows: "The correct answer is (insert answer here)"'
_QUESTION = "What is the correct answer to this question: "


def order_of_choices(seed: int, question: str) -> list[int]:
    """Return the indices of the choices at (A), (B), (C) and (D)."""
    return sorted(
        range(len(_CHOICES)), key=lambda choice: hashlib.sha256(f"{seed}\0{question}\0{choice}".encode()).digest()
    )


def _convert(row: PromptRow, selection: Selection) -> Columns:
    key = str(key_at(row, "Record ID"))
    shuffled = [_CHOICES[choice] for choice in order_of_choices(selection.seed or 0, key)]
    choices = [f"({letter}) {text_at(row, name).strip()}" for letter, name in zip(_LETTERS, shuffled, strict=True)]
    prompt = "\n".join([_QUESTION + text_at(row, "Question"), "", "Choices:", *choices, "", _FORMAT])
    domain, subdomain = label_at(row, "High-level domain"), label_at(row, "Subdomain")
    return {**single_turn_columns(prompt, row, category=domain or "stem", sub_category=subdomain), "id": key}


def _hub(config: str | None) -> HubDataset:
    return HubDataset("Idavidrein/gpqa", "train", config)


LOADER = SourceLoader(
    what="GPQA: graduate-level questions with four choices (main 448, diamond 198, extended 546)",
    columns=("Question", *_CHOICES),
    template=f"`{_QUESTION}{{Question}}⏎⏎Choices:⏎(A) …⏎(B) …⏎(C) …⏎(D) …⏎⏎{_FORMAT}`, choices shuffled by seed",
    licence="CC BY 4.0; must not be published in plain text",
    convert=_convert,
    hub=_hub,
    gated=True,
    note="category: High-level domain; sub-category: Subdomain",
)
