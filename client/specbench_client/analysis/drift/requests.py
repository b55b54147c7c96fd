"""A log of requests as one table, whether it comes from a run of ours or from production."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values

COLUMNS = ("accepted_tokens", "drafted_tokens", "steps", "category", "time", "prompt_id")
"""`time`: seconds since 1970, NaN where not known. `prompt_id`: what makes requests alike; None: each its own."""


@dataclass(frozen=True)
class Requests:
    """The requests that have a step and tell what was accepted, in their order, and how many do not."""

    source: str
    table: pd.DataFrame
    left_out: int
    repeated: int = 0
    """Of them, those that tell time, prompt and counts of an earlier one."""

    @property
    def log_lengths(self) -> Values:
        """log(1 + accepted / steps) of each request."""
        steps = self.table["steps"].to_numpy(float)
        return np.asarray(np.log1p(self.table["accepted_tokens"].to_numpy(float) / steps), dtype=np.float64)

    def when(self, index: int) -> str | None:
        """Time of a request, from 0, as RFC 3339; None where the log has none."""
        seconds = float(self.table["time"].iloc[index])
        return None if np.isnan(seconds) else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def requests_of(source: str, table: pd.DataFrame) -> Requests:
    """`table`: COLUMNS, in the log's order; sorted by time where every request has one."""
    told = table.reindex(columns=list(COLUMNS)).reset_index(drop=True)
    numbers = {
        name: pd.to_numeric(told[name]).to_numpy(float) for name in COLUMNS if name not in ("category", "prompt_id")
    }
    told = told.assign(**numbers)
    known = (numbers["steps"] >= 1) & ~np.isnan(numbers["accepted_tokens"])
    kept = told[known].reset_index(drop=True)
    if len(kept) and not kept["time"].isna().any():
        kept = kept.sort_values("time", kind="stable").reset_index(drop=True)
    timed = kept["time"].notna() & kept["prompt_id"].notna()
    repeated = int(kept[timed].duplicated().sum())
    alone = pd.Series([f"request {index}" for index in range(len(kept))], index=kept.index, dtype=object)
    kept["prompt_id"] = kept["prompt_id"].astype(object).where(kept["prompt_id"].notna(), alone)
    kept["category"] = kept["category"].astype(object).where(kept["category"].notna(), None)
    return Requests(source, kept, len(told) - len(kept), repeated)
