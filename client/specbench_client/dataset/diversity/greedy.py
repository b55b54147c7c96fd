"""Greedy selection: each next prompt is the one least similar to those taken already.

`load[i]`, the sum of cosines between prompt i and all that are taken, grows by one matrix-vector product for each
prompt taken: N × d products a step, and N numbers of memory besides the vectors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity.similarity import vector_sum
from specbench_client.dataset.diversity.vectors import Vectors

TIE = 1e-5
"""Sums of cosines nearer than this are the same: products in float32 differ by about 1e-6 from one machine's linear
algebra to another's, and that must not choose prompts. The lower row wins."""


def first_least(values: npt.NDArray[np.float64]) -> int:
    """The lowest index among the least values, all within `TIE` of the least."""
    return int(np.flatnonzero(values <= values.min() + TIE)[0])


def greedy(vectors: Vectors, count: int) -> list[int]:
    """Indices of `count` rows, in the order in which they were taken. `count` is at most the number of rows.

    The first is the row least similar to all rows together.
    """
    load = products(vectors, vector_sum(vectors))
    chosen: list[int] = []
    for _ in range(count):
        following = first_least(load)
        if not chosen:
            load[:] = 0.0
        chosen.append(following)
        load += products(vectors, vectors[following])
        load[chosen] = np.inf
    return chosen


def products(vectors: Vectors, with_vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Dot product of each row with the vector: computed in float32, given in float64 for sums."""
    return (vectors @ with_vector.astype(np.float32)).astype(np.float64)
