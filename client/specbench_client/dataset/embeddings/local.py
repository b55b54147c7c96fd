"""Embeddings of a sentence-transformers model on this machine: the extra `embeddings`, loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specbench_client.dataset.diversity.vectors import Vectors, unit_vectors
from specbench_client.dataset.embeddings.cache import EmbeddingCache
from specbench_client.dataset.embeddings.stacked import stacked
from specbench_client.dataset.entries import Entry, texts_of
from specbench_client.errors import BadInput

BATCH = 256


class LocalModel:
    """A model by its folder, or by its name in the hub's cache of this machine."""

    def __init__(self, model: str, cache: EmbeddingCache) -> None:
        self._model = model
        self._cache = cache

    @property
    def name(self) -> str:
        """The model."""
        return f"{self._model} (sentence-transformers)"

    def embed(self, entries: Sequence[Entry], told: Callable[[int, int], None]) -> Vectors:
        """One unit vector a prompt. Raises BadInput where the library or the model is not there."""
        texts = texts_of(entries)
        distinct = list(dict.fromkeys(texts))
        found = self._cache.known(self._model, distinct)
        missing = [text for text in distinct if text not in found]
        told(len(found), len(distinct))
        model = _loaded(self._model) if missing else None
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            assert model is not None
            encoded = np.asarray(model.encode(batch, show_progress_bar=False), dtype=np.float32)
            vectors = dict(zip(batch, encoded, strict=True))
            self._cache.keep(self._model, vectors)
            found.update(vectors)
            told(len(found), len(distinct))
        return unit_vectors(stacked([found[text] for text in texts], self.name), [entry.id for entry in entries])


def _loaded(model: str) -> Any:
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        remedy = "pip install 'specbench[embeddings]', or give an endpoint, a file, or lexical"
        raise BadInput(f"--embeddings local needs sentence-transformers ({error}): {remedy}") from error
    try:
        return library.SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"--model {model}: cannot be loaded: {error}: give the model's folder") from error
