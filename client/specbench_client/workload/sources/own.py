"""Files of one's own: JSON Lines, Parquet and CSV with our columns."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Loader


def _as_it_is(row: Row, _: Selection) -> Columns:
    return row.columns


def _loader(what: str, note: str = "") -> Loader:
    return Loader(
        what=what,
        columns=("id", "category", "prompt | turns | messages | token_ids"),
        template="as it is: a prompt is one message of the user, turns are several, messages are one with its history",
        licence="yours",
        convert=_as_it_is,
        note=note,
        ids=False,
    )


JSONL = _loader("JSON Lines of your own")
PARQUET = _loader("Parquet of your own")
CSV = _loader(
    "CSV of your own, with a header", "the columns turns, messages and token_ids hold JSON; an empty cell is none"
)
