"""Vectors of one length as one matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specbench_client.errors import BadInput


def stacked(vectors: Sequence[npt.NDArray[np.float32]], whence: str) -> npt.NDArray[np.float32]:
    """(vectors, dimensions). Raises BadInput where they differ in length: they are not of one model."""
    sizes = sorted({vector.shape for vector in vectors})
    if len(sizes) > 1:
        shown = " and ".join(str(size[0]) if len(size) == 1 else str(size) for size in sizes[:2])
        raise BadInput(f"{whence}: embeddings of {shown} numbers: these are of two models; give --cache another folder")
    matrix = np.empty((len(vectors), *(sizes[0] if sizes else (0,))), dtype=np.float32)
    for row, vector in enumerate(vectors):
        matrix[row] = vector
    return matrix
