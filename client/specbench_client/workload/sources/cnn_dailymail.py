"""CNN/DailyMail: articles to summarise."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    single_hub,
    single_turn_columns,
    text_at,
)

_INSTRUCTION = "Could you summarize the following article, please reuse text from the article if possible: "


def _convert(row: PromptRow, _: Selection) -> Columns:
    return single_turn_columns(_INSTRUCTION + text_at(row, "article"), row, "id", category="summarization")


LOADER = SourceLoader(
    what="CNN/DailyMail 3.0.0: articles to summarise (test: 11,490)",
    columns=("article",),
    template=f"`{_INSTRUCTION}{{article}}`",
    licence="Apache-2.0 according to its card; the articles belong to their publishers",
    convert=_convert,
    hub=single_hub(HubDataset("abisee/cnn_dailymail", "test", "3.0.0")),
    note="published figures use this wording, which favours prompt-lookup drafters",
)
