"""MT-Bench: questions in two turns, the second after the model's own answer."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    key_at,
    single_hub,
)

_TURNS = 2


def _convert(row: PromptRow, _: Selection) -> Columns:
    columns = row.columns
    turns = columns.get("prompt") if columns.get("turns") is None else columns["turns"]
    if not isinstance(turns, list):
        raise BadRow("neither prompt nor turns is a list: a row of MT-Bench has a list of two messages in one of them")
    if len(turns) != _TURNS:
        raise BadRow(f"has {len(turns)} turns, but every question of MT-Bench has {_TURNS}: the row is incomplete")
    return {"id": key_at(row, "prompt_id", "question_id"), "category": columns.get("category"), "turns": turns}


LOADER = SourceLoader(
    what="MT-Bench: 80 questions in eight categories, two turns each",
    columns=("prompt | turns", "category"),
    template="both turns unchanged, with the model's own answer between them",
    licence="Apache-2.0",
    convert=_convert,
    hub=single_hub(HubDataset("HuggingFaceH4/mt_bench_prompts", "train")),
    note="FastChat's question.jsonl is read as well. vLLM's benchmark of the same name sends only the first turn",
)
