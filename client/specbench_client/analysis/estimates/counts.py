"""Requests and tokens of a point or of a cell."""

from __future__ import annotations

import pandas as pd

from specbench_api.outcome.summary import Counts
from specbench_client.metrics.frame import Values, by_point, flags, numbers, sent, steady, total
from specbench_client.metrics.rows import Rows, among


def counts_of(rows: pd.DataFrame | Rows) -> Counts:
    """Count tidy rows.

    Turns that were skipped after an error were never sent and do not count, nor do fillers, which nobody asked for.
    """
    tried = sent(among(rows, ~flags(rows, "filler")))
    return Counts(
        requests=len(tried),
        steady_requests=len(steady(tried)),
        failed_requests=int((~flags(tried, "ok")).sum()),
        conversations=sum(int(each["conversation_id"].nunique()) for each in by_point(tried, ["conversation_id"])),
        prompts=int(tried["prompt_id"].nunique()),
        input_tokens=_whole(numbers(tried, "input_tokens")),
        output_tokens=_whole(numbers(tried, "output_tokens")),
    )


def _whole(values: Values) -> int | None:
    known = total(values)
    return None if known is None else round(known)
