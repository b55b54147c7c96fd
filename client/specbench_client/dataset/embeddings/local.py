"""Embeds texts with a local sentence-transformers model (extra `embeddings`), which is loaded on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specbench_client.dataset.diversity import Vectors, stack_vectors, unit_vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache
from specbench_client.dataset.prompt_entries import PromptEntry, texts_of
from specbench_client.errors import BadInput

BATCH = 256


class LocalModelEmbedder:
    """A local model, given by its folder or by its name in this machine's hub cache."""

    def __init__(self, model: str, cache: EmbeddingCache) -> None:
        self._model = model
        self._cache = cache

    @property
    def name(self) -> str:
        """The model's name in reports."""
        return f"{self._model} (sentence-transformers)"

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if the library or the model is missing."""
        texts = texts_of(entries)
        distinct = list(dict.fromkeys(texts))
        found = self._cache.known(self._model, distinct)
        missing = [text for text in distinct if text not in found]
        progress(len(found), len(distinct))
        model = _load_model(self._model) if missing else None
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            assert model is not None
            encoded = np.asarray(model.encode(batch, show_progress_bar=False), dtype=np.float32)
            vectors = dict(zip(batch, encoded, strict=True))
            self._cache.store(self._model, vectors)
            found.update(vectors)
            progress(len(found), len(distinct))
        return unit_vectors(stack_vectors([found[text] for text in texts], self.name), [entry.id for entry in entries])


def _load_model(model: str) -> Any:
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        remedy = "pip install 'specbench[embeddings]', or give an endpoint, a file, or lexical"
        raise BadInput(f"--embeddings local requires sentence-transformers ({error}): {remedy}") from error
    try:
        return library.SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"--model {model}: cannot be loaded: {error}: give the model's folder") from error
