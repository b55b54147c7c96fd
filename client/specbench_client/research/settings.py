"""What the command line says, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Drafting(StrEnum):
    """How drafts are made."""

    NONE = "none"
    DRAFT_MODEL = "draft_model"
    NGRAM = "ngram"
    MEDUSA = "medusa"


@dataclass(frozen=True)
class Settings:
    """The target, its drafter and the machine. Models are folders on this machine or names on the hub."""

    model: str
    revision: str | None = None
    served_model_name: str | None = None
    tokenizer: str | None = None
    max_model_len: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    drafter: Drafting = Drafting.NONE
    drafter_model: str | None = None
    drafter_revision: str | None = None
    num_speculative_tokens: int = 3
    prompt_lookup_max: int = 3
