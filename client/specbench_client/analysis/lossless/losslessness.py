"""The conclusion for one cell: whether its answers are equal to the baseline's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from specbench_api.outcome.lossless import Losslessness
from specbench_api.spec.workload import Sampling
from specbench_client.analysis.lossless.greedy import first_differences, judge_greedy
from specbench_client.analysis.lossless.sampled import judge_sampled
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.rows import Rows


def losslessness(
    found: Divergence,
    arm: pd.DataFrame | Rows,
    baseline: pd.DataFrame | Rows,
    records: Mapping[str, Iterable[pd.DataFrame]],
    sampling: Sampling,
) -> Losslessness | None:
    """Return the conclusion, given the tidy rows of one workload × load over all repeats and their divergence.

    `records`, by point, are read again if texts were stored. None if no answers can be compared: nothing was
    answered, or no digest was stored.
    """
    if found.rate is None:
        return None
    if sampling.temperature > 0:
        sampled = judge_sampled(arm, baseline, records, sampling.seed)
        return Losslessness(
            verdict=sampled.verdict,
            message=sampled.message,
            temperature=sampling.temperature,
            compared_by=sampled.by,
            tests=list(sampled.tests),
        )
    greedy = judge_greedy(found, sampling.seed)
    if greedy is None:
        return None
    by, difference = first_differences(arm, baseline, records)
    return Losslessness(
        verdict=greedy.verdict,
        message=greedy.message,
        temperature=0.0,
        compared_by=by,
        divergence=greedy.rate,
        control=greedy.control,
        excess=greedy.excess,
        detectable=greedy.detectable,
        first_difference=difference,
    )
