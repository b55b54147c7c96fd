"""Reads embeddings from files: .npy (row i is prompt i), .npz (`ids`, `vectors`) or Parquet (`id`, `embedding`)."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity import Vectors, stack_vectors, unit_vectors
from specbench_client.dataset.prompt_entries import PromptEntry
from specbench_client.errors import BadInput


class FileEmbedder:
    """Precomputed vectors. If the file has ids, prompts are matched by id, and other vectors are ignored."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self._file)

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if one is missing or the file is invalid."""
        try:
            vectors = self._read(entries)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise BadInput(f"{self._file}: cannot be read as embeddings: {error}: {self._expected()}") from error
        progress(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])

    def _read(self, entries: Sequence[PromptEntry]) -> npt.NDArray[np.floating]:
        if self._file.suffix == ".npy":
            vectors = np.load(self._file, allow_pickle=False)
            if vectors.ndim != 2 or len(vectors) != len(entries):
                raise BadInput(
                    f"{self._file}: its shape is {vectors.shape} for {len(entries)} prompts: {self._expected()}"
                )
            return _floats(vectors)
        ids, vectors = self._with_ids()
        places = {str(one): place for place, one in enumerate(ids)}
        missing = [entry.id for entry in entries if entry.id not in places]
        if missing:
            shown = ", ".join(missing[:3])
            raise BadInput(f"{self._file}: has no embedding of {len(missing)} prompts ({shown}): add them to the file")
        return vectors[[places[entry.id] for entry in entries]]

    def _with_ids(self) -> tuple[Sequence[Any], npt.NDArray[np.floating]]:
        if self._file.suffix == ".npz":
            with np.load(self._file, allow_pickle=False) as arrays:
                return list(arrays["ids"]), _floats(arrays["vectors"])
        import pyarrow.parquet  # noqa: PLC0415  only for Parquet

        table = pyarrow.parquet.read_table(self._file, columns=["id", "embedding"])
        rows = [np.asarray(row, dtype=np.float32) for row in table["embedding"].to_pylist()]
        return table["id"].to_pylist(), stack_vectors(rows, str(self._file))

    def _expected(self) -> str:
        shapes = {
            ".npy": "a matrix with a row for each prompt",
            ".npz": "ids and vectors",
            ".parquet": "id and embedding",
        }
        return f"{self._file.suffix} must contain {shapes[self._file.suffix]}"


def _floats(vectors: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(f"found {vectors.ndim} dimensions of {vectors.dtype}, expected two dimensions of float")
    return vectors
