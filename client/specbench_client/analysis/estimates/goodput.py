"""What a cell delivers within the run's targets."""

from __future__ import annotations

import pandas as pd

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.goodput import Goodput
from specbench_api.spec.slo import Slo
from specbench_client.analysis.estimates.figures import Sample, ratio_figures
from specbench_client.analysis.statistics.bootstrap import LEVEL, t_bounds
from specbench_client.metrics.goodput import (
    RATE_DEFINITION,
    RATE_UNIT,
    good_of_points,
    judged,
    share,
    share_of_one,
)
from specbench_client.metrics.rows import Rows


def goodput_of(rows: pd.DataFrame | Rows, slo: Slo, seed: int) -> Goodput:
    """Judge the tidy rows of a cell, over all its repeats, by the targets. `seed`: of the intervals over prompts."""
    together, each = share(slo), {name: share_of_one(name, target) for name, target in slo.targets.items()}
    figures = ratio_figures(Sample(judged(rows), seed), [together, *each.values()])
    return Goodput(
        slo=slo,
        rate=_rate(rows, slo),
        share=figures[together.name],
        by_target={name: figures[ratio.name] for name, ratio in each.items()},
    )


def _rate(rows: pd.DataFrame | Rows, slo: Slo) -> Figure:
    good, seconds = good_of_points(rows, slo)
    value = float(good.sum() / seconds.sum()) if seconds.size else None
    bounds = t_bounds(value, good / seconds) if value is not None else None
    interval = bounds and FigureInterval(
        low=max(0.0, bounds.low), high=bounds.high, level=LEVEL, method=f"t over {seconds.size} repeats, unit: repeat"
    )
    n = int(seconds.size)
    return Figure(value=value, unit=RATE_UNIT, definition=RATE_DEFINITION, n=n, interval=interval, source="both")
