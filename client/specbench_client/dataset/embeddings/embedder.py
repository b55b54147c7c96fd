"""Chooses the embedder for `--embeddings` and `--model`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specbench_client.dataset.diversity import Vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache
from specbench_client.dataset.embeddings.endpoint import EndpointEmbedder
from specbench_client.dataset.embeddings.files import FileEmbedder
from specbench_client.dataset.embeddings.lexical import LexicalEmbedder
from specbench_client.dataset.embeddings.local import LocalModelEmbedder
from specbench_client.dataset.prompt_entries import PromptEntry
from specbench_client.errors import BadInput

EmbeddingProgress = Callable[[int, int], None]
"""Called with the number of texts embedded and the total."""
SUFFIXES = (".npy", ".npz", ".parquet")


class Embedder(Protocol):
    """Computes a unit vector for each prompt."""

    @property
    def name(self) -> str:
        """The embedder's name in reports."""
        ...

    def embed(self, entries: Sequence[PromptEntry], progress: EmbeddingProgress) -> Vectors:
        """Return one unit vector per prompt, in order. Raises BadInput, or EngineFailed if an endpoint fails."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """Options of the command line. `key_variable`: the environment variable with the endpoint's API key."""

    embeddings: str
    model: str | None = None
    key_variable: str | None = None
    cache: Path | None = None


def choose_embedder(options: EmbeddingOptions) -> Embedder:
    """Return the embedder for the options. Raises BadInput with the allowed values."""
    embeddings = options.embeddings
    if embeddings == "lexical":
        return LexicalEmbedder()
    if embeddings.startswith(("http://", "https://")):
        model = _model(options, "the name that the endpoint serves")
        return EndpointEmbedder(
            embeddings, model, _key(options.key_variable), EmbeddingCache(options.cache or cache_folder())
        )
    if embeddings == "local":
        model = _model(options, "a folder with a sentence-transformers model, or its name where it is cached")
        return LocalModelEmbedder(model, EmbeddingCache(options.cache or cache_folder()))
    if embeddings.endswith(SUFFIXES):
        return FileEmbedder(Path(embeddings))
    raise BadInput(
        f"--embeddings {embeddings}: give http://HOST:PORT/v1 (an OpenAI-compatible endpoint), local (a "
        f"sentence-transformers model), a file ({', '.join(SUFFIXES)}), or lexical (shared words; no model)"
    )


def cache_folder() -> Path:
    """Return the cache folder: $XDG_CACHE_HOME/specbench/embeddings, by default in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specbench" / "embeddings"


def _model(options: EmbeddingOptions, description: str) -> str:
    if not options.model:
        raise BadInput(f"--embeddings {options.embeddings} requires --model: {description}")
    return options.model


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise BadInput(f"--api-key-env {variable}: this environment variable is not set: export it, or omit the option")
    return key
