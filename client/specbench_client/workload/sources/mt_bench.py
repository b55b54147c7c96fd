"""MT-Bench: two turns each, the second one on the model's own answer."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, always, key_at

TURNS = 2


def _convert(row: Row, _: Selection) -> Columns:
    columns = row.columns
    turns = columns.get("prompt") if columns.get("turns") is None else columns["turns"]
    if not isinstance(turns, list):
        raise BadRow("neither prompt nor turns is a list of two messages, as MT-Bench has them")
    if len(turns) != TURNS:
        raise BadRow(f"has {len(turns)} turns, and every question of MT-Bench has {TURNS}: it was cut")
    return {"id": key_at(row, "prompt_id", "question_id"), "category": columns.get("category"), "turns": turns}


LOADER = Loader(
    what="MT-Bench: 80 questions of eight categories, two turns each",
    columns=("prompt | turns", "category"),
    template="both turns as they are; the model's own answer stands between them",
    licence="Apache-2.0",
    convert=_convert,
    hub=always(Hub("HuggingFaceH4/mt_bench_prompts", "train")),
    note="FastChat's question.jsonl is read as well. vLLM's benchmark of this name sends the first turn alone",
)
