"""Embeddings kept on disk, by model and text: what was embedded once is not paid for again.

SQLite, because a killed program leaves it whole, two programs may share it, and a hundred thousand small values are
one file. The key is the SHA-256 of model and text; the value is the vector in float32.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbench_client.errors import BadInput

Vector = npt.NDArray[np.float32]
_AT_ONCE = 500
"""Keys a query: SQLite takes at least 999."""
_PATIENCE_SECONDS = 60.0


class EmbeddingCache:
    """One file, `embeddings.sqlite`, in the folder given."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "embeddings.sqlite"

    def known(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Text → vector, of those that are kept. Raises BadInput where the file cannot be used."""
        by_key = {_key(model, text): text for text in texts}
        keys, found = list(by_key), {}
        with self._opened() as database:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                rows = database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)  # noqa: S608 marks alone
                found.update({by_key[key]: np.frombuffer(value, dtype="<f4") for key, value in rows})
        return found

    def keep(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Keep text → vector. Raises BadInput where the file cannot be written."""
        rows = [(_key(model, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._opened() as database, database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file, timeout=_PATIENCE_SECONDS)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL)")
                yield database
        except (OSError, sqlite3.Error) as error:
            remedy = "remove the file, or give another folder with --cache"
            raise BadInput(f"{self._file}: the cache of embeddings cannot be used: {error}: {remedy}") from error


def _key(model: str, text: str) -> str:
    return hashlib.sha256(f"{model}\0{text}".encode()).hexdigest()
