"""`--embeddings` and `--model` → the embedder that they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from specbench_client.dataset.diversity.vectors import Vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache
from specbench_client.dataset.embeddings.endpoint import Endpoint
from specbench_client.dataset.embeddings.files import FileEmbedder
from specbench_client.dataset.embeddings.lexical import Lexical
from specbench_client.dataset.embeddings.local import LocalModel
from specbench_client.dataset.entries import Entry
from specbench_client.errors import BadInput

Told = Callable[[int, int], None]
"""Progress: texts embedded, and texts in all."""
SUFFIXES = (".npy", ".npz", ".parquet")


class Embedder(Protocol):
    """Gives each prompt a direction."""

    @property
    def name(self) -> str:
        """What reports say the similarities rest on."""
        ...

    def embed(self, entries: Sequence[Entry], told: Told) -> Vectors:
        """One unit vector a prompt, in their order. Raises BadInput, or EngineFailed where an endpoint fails."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line said. `key_variable` names the environment variable with the endpoint's key."""

    embeddings: str
    model: str | None = None
    key_variable: str | None = None
    cache: Path | None = None


def choose(wanted: Wanted) -> Embedder:
    """The embedder. Raises BadInput with what may be given."""
    given = wanted.embeddings
    if given == "lexical":
        return Lexical()
    if given.startswith(("http://", "https://")):
        model = _model(wanted, "the name that the endpoint serves")
        return Endpoint(given, model, _key(wanted.key_variable), EmbeddingCache(wanted.cache or cache_folder()))
    if given == "local":
        model = _model(wanted, "a folder with a sentence-transformers model, or its name where it is cached")
        return LocalModel(model, EmbeddingCache(wanted.cache or cache_folder()))
    if given.endswith(SUFFIXES):
        return FileEmbedder(Path(given))
    raise BadInput(
        f"--embeddings {given}: give http://HOST:PORT/v1 (an OpenAI-compatible endpoint), local (a "
        f"sentence-transformers model), a file ({', '.join(SUFFIXES)}), or lexical (shared words; no model)"
    )


def cache_folder() -> Path:
    """Where embeddings are kept between runs: $XDG_CACHE_HOME/specbench/embeddings, or below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specbench" / "embeddings"


def _model(wanted: Wanted, what: str) -> str:
    if not wanted.model:
        raise BadInput(f"--embeddings {wanted.embeddings} needs --model: {what}")
    return wanted.model


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise BadInput(
            f"--api-key-env {variable}: this environment variable is not set: export it, or leave the option out"
        )
    return key
