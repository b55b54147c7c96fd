"""The percentiles over requests at which latencies are reported, limited and gated.

`spec.slo` has them as numbers, everything else has them as names like `p95`. To add one, extend both types below and
the fields of `status.Percentiles`.
"""

from __future__ import annotations

from typing import Literal, get_args

Percent = Literal[50, 95, 99]
"""A percentile as a number."""
Percentile = Literal["p50", "p95", "p99"]
"""A percentile by name: the suffix of a figure's name."""
PERCENTS: tuple[Percent, ...] = get_args(Percent)
PERCENTILES: tuple[Percentile, ...] = get_args(Percentile)
TERMINAL_STATISTICS: tuple[Percentile, ...] = ("p50", "p99")
REPORTED_PERCENTS: tuple[int, ...] = (50, 90, 95, 99)
"""The percentiles of latencies in results. The 90th, which other tools show, is neither limited nor gated."""
