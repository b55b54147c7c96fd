"""One cell beside its baseline → whether its answers are the baseline's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from specbench_api.outcome.lossless import Losslessness
from specbench_api.spec.workload import Sampling
from specbench_client.analysis.lossless.greedy import judge_greedy
from specbench_client.analysis.lossless.places import first_differences
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
    """Both: tidy rows of one workload × load, all repeats, and `found`: how often their answers differ.

    `records`: by point; read once more where words were kept.

    None where no answer of the two can be compared: nothing was answered, or no digest was kept.
    """
    if found.rate is None:
        return None
    if sampling.temperature > 0:
        told = judge_sampled(arm, baseline, records, sampling.seed)
        return Losslessness(
            verdict=told.verdict,
            message=told.message,
            temperature=sampling.temperature,
            compared_by=told.by,
            tests=list(told.tests),
        )
    greedy = judge_greedy(found, sampling.seed)
    if greedy is None:
        return None
    by, places = first_differences(arm, baseline, records)
    return Losslessness(
        verdict=greedy.verdict,
        message=greedy.message,
        temperature=0.0,
        compared_by=by,
        divergence=greedy.rate,
        control=greedy.control,
        excess=greedy.excess,
        detectable=greedy.detectable,
        first_difference=places,
    )
