"""What the server wants of whatever generates: a protocol without torch, and the words in which it is spoken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass of the target: its tokens, and how many drafts it verified and accepted.

    The first token comes from the prompt's own pass, which verifies no drafts, as on the engines. Accepted drafts are
    counted as far as they are part of the answer, so `len(tokens) == accepted + 1` always.
    """

    tokens: Tokens
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be generated. `temperature` 0 is greedy; without `seed` chance is free."""

    prompt: Tokens
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False


class Runtime(Protocol):
    """Generates for one request at a time; every method but `generate` returns at once."""

    version: str
    """Of the library, as `/version` says it."""
    model_name: str
    """Under which the model is served."""
    max_length: int
    """Tokens of prompt and answer together."""
    vocabulary: int
    """Token ids are below it."""
    speculative_tokens: int
    """Drafts a step, at most; 0: no drafter."""
    eos: frozenset[int]
    """Tokens that end an answer."""

    def facts(self) -> Mapping[str, str | int | None]:
        """What it is made of, by the names of docs/provenance.md; None where it cannot tell."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> Tokens:
        """The prompt of a conversation. Raises BadRequest where the model has no chat template."""
        ...

    def encode(self, text: str) -> Tokens:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Tokens) -> str:
        """The text of tokens, special ones left out."""
        ...

    def generate(self, job: Job, emit: Callable[[Step], None], stopped: Callable[[], bool]) -> None:
        """Emit every step until the answer ends, or until `stopped`. Blocks; called from one thread alone."""
        ...
