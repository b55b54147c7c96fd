"""The interface between the server and a generating runtime, with its errors; without a dependency on torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from specbench_api.spec.drafter import Method


class ResearchError(Exception):
    """Base class of the research runtime's errors."""


class BadResearchSetup(ResearchError):
    """An option cannot be served; the message names it and what to write instead."""


TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GenerationStep:
    """One forward pass of the target: its tokens, and the number of draft tokens verified and accepted.

    As in the engines, the first token comes from the pass over the prompt, which verifies no draft tokens. Only
    accepted tokens that are part of the answer are counted, so `len(tokens) == accepted + 1` always holds.
    """

    tokens: TokenIds
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Parameters of a generation. `temperature` 0 is greedy; without `seed` sampling is not reproducible."""

    prompt: TokenIds
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False


class GenerationRuntime(Protocol):
    """Generates for one request at a time; all methods except `generate` return immediately."""

    version: str
    """The library's version, shown by `/version`."""
    model_name: str
    """The name under which the model is served."""
    max_length: int
    """Maximum tokens of prompt and answer together."""
    vocabulary: int
    """Size of the vocabulary; all token ids are smaller."""
    speculative_tokens: int
    """Maximum draft tokens per step; 0 without a drafter."""
    eos: frozenset[int]
    """Tokens that end an answer."""

    def facts(self) -> Mapping[str, str | int | None]:
        """Return facts about models and device, named as in docs/reference/provenance.md; None for unknown ones."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> TokenIds:
        """Return the prompt of a conversation. Raises RejectedBody if the model has no chat template."""
        ...

    def encode(self, text: str) -> TokenIds:
        """Return the token ids of a text."""
        ...

    def decode(self, tokens: TokenIds) -> str:
        """Return the text of token ids without special tokens."""
        ...

    def generate(
        self, job: GenerationRequest, emit: Callable[[GenerationStep], None], stopped: Callable[[], bool]
    ) -> None:
        """Emit every step until the answer ends or `stopped` returns True. Blocks; called from a single thread."""
        ...


DRAFTING_METHODS = (Method.NONE, Method.DRAFT_MODEL, Method.NGRAM, Method.MEDUSA)


@dataclass(frozen=True)
class ResearchSettings:
    """Command-line settings: target, drafter and device. Models are local folders or names on the hub."""

    model: str
    revision: str | None = None
    served_model_name: str | None = None
    tokenizer: str | None = None
    max_model_len: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    drafter: Method = Method.NONE
    drafter_model: str | None = None
    drafter_revision: str | None = None
    num_speculative_tokens: int = 3
    prompt_lookup_max: int = 3
