"""Caches embeddings on disk by model and text, so that no text is embedded (and paid for) twice.

SQLite survives a killed program, can be shared by two programs, and stores a hundred thousand small values in one file.
The key is the SHA-256 of model and text; the value is the vector in float32.
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
_KEYS_PER_QUERY = 500
"""SQLite allows at least 999 parameters per query."""
_LOCK_TIMEOUT_SECONDS = 60.0


class EmbeddingCache:
    """A cache in the file `embeddings.sqlite` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "embeddings.sqlite"

    def known(self, model: str, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the cached vectors by text. Raises BadInput if the file cannot be used."""
        by_key = {_key(model, text): text for text in texts}
        keys, found = list(by_key), {}
        with self._opened() as database:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                rows = database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)  # noqa: S608 marks alone
                found.update({by_key[key]: np.frombuffer(value, dtype="<f4") for key, value in rows})
        return found

    def store(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Store vectors by text. Raises BadInput if the file cannot be written."""
        rows = [(_key(model, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._opened() as database, database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file, timeout=_LOCK_TIMEOUT_SECONDS)) as database:
                database.execute("CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL)")
                yield database
        except (OSError, sqlite3.Error) as error:
            remedy = "delete the file, or give another folder with --cache"
            raise BadInput(f"{self._file}: the embedding cache cannot be used: {error}: {remedy}") from error


def _key(model: str, text: str) -> str:
    return hashlib.sha256(f"{model}\0{text}".encode()).hexdigest()
