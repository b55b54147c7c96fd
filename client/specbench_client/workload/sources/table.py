"""Which loader reads which source. Sources that are made of something else (mix, random) are not read."""

from __future__ import annotations

from specbench_api.spec.dataset import Source
from specbench_client.workload.sources import (
    cnn_dailymail,
    coding,
    gpqa,
    humaneval,
    mathematics,
    mt_bench,
    openai_logs,
    own,
    sharegpt,
    spec_bench,
    speed_bench,
)
from specbench_client.workload.sources.source import Loader

LOADERS: dict[Source, Loader] = {
    Source.JSONL: own.JSONL,
    Source.PARQUET: own.PARQUET,
    Source.CSV: own.CSV,
    Source.SPEED_BENCH: speed_bench.LOADER,
    Source.SPEC_BENCH: spec_bench.LOADER,
    Source.MT_BENCH: mt_bench.LOADER,
    Source.HUMANEVAL: humaneval.LOADER,
    Source.GSM8K: mathematics.GSM8K,
    Source.MATH_500: mathematics.MATH_500,
    Source.MBPP: coding.MBPP,
    Source.AIME: mathematics.AIME,
    Source.GPQA: gpqa.LOADER,
    Source.CNN_DAILYMAIL: cnn_dailymail.LOADER,
    Source.SHAREGPT: sharegpt.LOADER,
    Source.INSTRUCTCODER: coding.INSTRUCTCODER,
    Source.EDIT: coding.EDIT,
    Source.OPENAI_LOGS: openai_logs.LOADER,
}
