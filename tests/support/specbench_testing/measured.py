"""Which of a point's records are the measured ones."""

from __future__ import annotations

import pandas as pd

from specbench_client.load.fillers import is_filler


def measured_rows(records: pd.DataFrame) -> pd.DataFrame:
    """Without warm-up and without the fillers that held the load."""
    return records[(records.phase != "warmup") & ~records.prompt_id.map(is_filler)]
