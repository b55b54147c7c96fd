"""Files of one's own: JSON Lines, Parquet and CSV with our columns."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import Columns, SourceLoader


def _unchanged(row: PromptRow, _: Selection) -> Columns:
    return row.columns


def _loader(what: str, note: str = "") -> SourceLoader:
    return SourceLoader(
        what=what,
        columns=("id", "category", "prompt | turns | messages | token_ids"),
        template="unchanged: `prompt` is one user message, `turns` are several, `messages` include the history",
        licence="yours",
        convert=_unchanged,
        note=note,
        ids=False,
    )


JSONL = _loader("your own JSON Lines")
PARQUET = _loader("your own Parquet file")
CSV = _loader(
    "your own CSV file, with a header",
    "the columns turns, messages and token_ids contain JSON; an empty cell is a missing value",
)
