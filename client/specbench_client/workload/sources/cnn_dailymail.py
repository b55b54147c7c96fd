"""CNN/DailyMail: articles to summarise."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, always, asked, text_at

_BEFORE = "Could you summarize the following article, please reuse text from the article if possible: "


def _convert(row: Row, _: Selection) -> Columns:
    return asked(_BEFORE + text_at(row, "article"), row, "id", category="summarization")


LOADER = Loader(
    what="CNN/DailyMail 3.0.0: articles to summarise (test: 11,490)",
    columns=("article",),
    template=f"`{_BEFORE}{{article}}`",
    licence="Apache-2.0 on its card; the articles are their publishers'",
    convert=_convert,
    hub=always(Hub("abisee/cnn_dailymail", "test", "3.0.0")),
    note="the wording asks to reuse text, which favours prompt-lookup drafters: it is that of published figures",
)
