"""Bootstrap draws do not depend on block sizes or caching, and their sums equal a direct computation."""

from __future__ import annotations

import numpy as np
import pytest

from specbench_client.analysis.statistics import bootstrap as module
from specbench_client.analysis.statistics.bootstrap import draw_and_sum, draw_resamples

STRATA = np.repeat([0, 1, 2], [5, 6, 9])
RESAMPLES = 50


def matrices(repeats: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.lognormal(size=(repeats, STRATA.size)) for _ in range(3)]


def test_strata_and_repeats_are_drawn_as_often_as_they_have_members() -> None:
    ((repeats, prompts),) = draw_resamples(STRATA, 4, 1, RESAMPLES)
    assert (repeats.sum(axis=1) == 4).all()
    for stratum, size in enumerate(np.bincount(STRATA)):
        assert (prompts[:, stratum == STRATA].sum(axis=1) == size).all()


@pytest.mark.parametrize("repeats", [1, 2])
def test_sums_are_those_of_the_drawn_cells(repeats: int) -> None:
    expected = [
        [(matrix * drawn[0][:, np.newaxis] * drawn[1]).sum() for matrix in matrices(repeats)]
        for block in draw_resamples(STRATA, repeats, 1, RESAMPLES)
        for drawn in zip(*(each.astype(float) for each in block), strict=True)
    ]
    np.testing.assert_allclose(draw_and_sum(matrices(repeats), STRATA, 1, RESAMPLES), expected)


@pytest.mark.parametrize("name", ["PIECE_VALUES", "CACHED_VALUES"])
def test_block_and_cache_sizes_do_not_change_the_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw_and_sum(matrices(2), STRATA, 7, RESAMPLES)
    monkeypatch.setattr(module, name, 33)
    module._cached_draws.cache_clear()
    np.testing.assert_allclose(draw_and_sum(matrices(2), STRATA, 7, RESAMPLES), whole)
