"""Embeddings from a file: `.npy` (row i is prompt i), `.npz` (`ids`, `vectors`) or Parquet (`id`, `embedding`)."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity.vectors import Vectors, unit_vectors
from specbench_client.dataset.embeddings.stacked import stacked
from specbench_client.dataset.entries import Entry
from specbench_client.errors import BadInput


class FileEmbedder:
    """Vectors that somebody made. With ids, prompts are found by them; further vectors in the file are left alone."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """The file."""
        return str(self._file)

    def embed(self, entries: Sequence[Entry], told: Callable[[int, int], None]) -> Vectors:
        """One unit vector a prompt. Raises BadInput where one is missing or the file is no such file."""
        try:
            vectors = self._read(entries)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise BadInput(f"{self._file}: cannot be read as embeddings: {error}: {self._shape()}") from error
        told(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])

    def _read(self, entries: Sequence[Entry]) -> npt.NDArray[np.floating]:
        if self._file.suffix == ".npy":
            vectors = np.load(self._file, allow_pickle=False)
            if vectors.ndim != 2 or len(vectors) != len(entries):
                raise BadInput(
                    f"{self._file}: its shape is {vectors.shape} for {len(entries)} prompts: {self._shape()}"
                )
            return _floats(vectors)
        ids, vectors = self._with_ids()
        places = {str(one): place for place, one in enumerate(ids)}
        missing = [entry.id for entry in entries if entry.id not in places]
        if missing:
            shown = ", ".join(missing[:3])
            raise BadInput(f"{self._file}: has no embedding of {len(missing)} prompts: {shown}: embed them too")
        return vectors[[places[entry.id] for entry in entries]]

    def _with_ids(self) -> tuple[Sequence[Any], npt.NDArray[np.floating]]:
        if self._file.suffix == ".npz":
            with np.load(self._file, allow_pickle=False) as held:
                return list(held["ids"]), _floats(held["vectors"])
        import pyarrow.parquet  # noqa: PLC0415  seldom wanted

        table = pyarrow.parquet.read_table(self._file, columns=["id", "embedding"])
        rows = [np.asarray(row, dtype=np.float32) for row in table["embedding"].to_pylist()]
        return table["id"].to_pylist(), stacked(rows, str(self._file))

    def _shape(self) -> str:
        shapes = {
            ".npy": "a matrix with a row for each prompt",
            ".npz": "ids and vectors",
            ".parquet": "id and embedding",
        }
        return f"{self._file.suffix} holds {shapes[self._file.suffix]}"


def _floats(vectors: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(f"{vectors.ndim} dimensions of {vectors.dtype}, where two of float are needed")
    return vectors
