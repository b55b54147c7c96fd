"""Loaders by source, and those of files of one's own.

`mix` and `sessions` read no file.
"""

from __future__ import annotations

from specbench_api.spec.dataset import CONFIGS, Source
from specbench_client.workload.row_shapes import own_columns
from specbench_client.workload.sources import agent_traces, published_datasets, random_words, request_logs
from specbench_client.workload.sources.loader import SourceLoader


def _loader(what: str, note: str = "") -> SourceLoader:
    return SourceLoader(
        what=what,
        columns=("id", "category", "prompt | turns | messages | token_ids, or [another shape](#shapes-of-rows)"),
        template="unchanged: `prompt` is one user message, `turns` are several, `messages` include the history",
        licence="yours",
        convert=lambda row, selection: own_columns(row, selection.prompt_column),
        note=note,
    )


JSONL = _loader("your own JSON Lines")
PARQUET = _loader("your own Parquet file")
CSV = _loader(
    "your own CSV file, with a header",
    "turns, messages and token_ids contain JSON; an empty cell is a missing value",
)


LOADERS: dict[Source, SourceLoader] = {
    Source.JSONL: JSONL,
    Source.PARQUET: PARQUET,
    Source.CSV: CSV,
    Source.SPEED_BENCH: published_datasets.SPEED_BENCH,
    Source.SPEC_BENCH: published_datasets.SPEC_BENCH,
    Source.MT_BENCH: published_datasets.MT_BENCH,
    Source.HUMANEVAL: published_datasets.HUMANEVAL,
    Source.GSM8K: published_datasets.GSM8K,
    Source.MATH_500: published_datasets.MATH_500,
    Source.MBPP: published_datasets.MBPP,
    Source.AIME: published_datasets.AIME,
    Source.GPQA: published_datasets.GPQA,
    Source.CNN_DAILYMAIL: published_datasets.CNN_DAILYMAIL,
    Source.SHAREGPT: published_datasets.SHAREGPT,
    Source.INSTRUCTCODER: published_datasets.INSTRUCTCODER,
    Source.EDIT: published_datasets.EDIT,
    Source.OPENAI_LOGS: request_logs.LOADER,
    Source.AGENT_TRACES: agent_traces.LOADER,
    Source.MOONCAKE: random_words.MOONCAKE,
}


def describe_origin(source: Source, loader: SourceLoader) -> str:
    """Describe briefly where a source comes from: its repositories on the hub, or a file."""
    if loader.hub is None:
        return "not on the hub: give a file"
    names = dict.fromkeys(loader.hub.of_config(config).name for config in CONFIGS.get(source, (None,)))
    return f"{', '.join(names)}{' (gated)' if loader.gated else ''}"
