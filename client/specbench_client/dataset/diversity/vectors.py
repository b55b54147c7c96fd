"""Embeddings as unit vectors, so that a dot product is a cosine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specbench_client.errors import BadInput

Vectors = npt.NDArray[np.float32]
"""(prompts, dimensions); each row of length 1."""
_ROWS_AT_ONCE = 4096


def unit_vectors(raw: npt.NDArray[np.floating], ids: list[str]) -> Vectors:
    """Each row divided by its length, in float32; in place where `raw` is float32 already, in slices of rows.

    Raises BadInput, with the id, where a row is not finite or is all zeros: it points nowhere.
    """
    vectors = np.ascontiguousarray(raw, dtype=np.float32)
    if not vectors.flags.writeable:
        vectors = vectors.copy()
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[start : start + _ROWS_AT_ONCE]
        lengths = np.linalg.norm(part.astype(np.float64), axis=1)
        wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
        if wrong.size:
            row = int(wrong[0])
            what = "is all zeros" if lengths[row] == 0 else "holds a number that is not finite"
            raise BadInput(f"the embedding of {ids[start + row]!r} {what}: embed it again, or leave the prompt out")
        part /= lengths[:, None]
    return vectors
