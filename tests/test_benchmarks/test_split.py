"""The split of a net speed-up, compared with an independent engine that serves the same requests with nothing lost."""

from __future__ import annotations

import pytest

from continuous_batching.scenarios import SCENARIOS, SplitRun

pytestmark = pytest.mark.runs


@pytest.mark.parametrize(
    "name", ["one-stream", "open-loop", "chunked", "pauses", "superlinear", "eager", "exclusive-busy"]
)
def test_factor_of_reuse_is_that_of_the_engine(name: str) -> None:
    run = SplitRun(SCENARIOS[name], seed=1)
    found, missing = run.estimate
    assert missing is None
    assert found is not None
    assert found.reuse.value == pytest.approx(run.truth, rel=0.01)
    assert found.reuse.interval is not None
    assert found.reuse.interval.low < run.truth < found.reuse.interval.high
