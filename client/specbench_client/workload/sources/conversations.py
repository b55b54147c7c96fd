"""MT-Bench, Spec-Bench and ShareGPT: questions to a chat bot. Later turns follow the model's own answers."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    RowExcluded,
    SourceLoader,
    key_at,
    single_hub,
    single_turn_columns,
)

_MT_BENCH_TURNS = 2


def _mt_bench(row: PromptRow, _: Selection) -> Columns:
    columns = row.columns
    turns = columns.get("prompt") if columns.get("turns") is None else columns["turns"]
    if not isinstance(turns, list):
        raise BadRow("neither prompt nor turns is a list: a row of MT-Bench has a list of two messages in one of them")
    if len(turns) != _MT_BENCH_TURNS:
        raise BadRow(
            f"has {len(turns)} turns, but every question of MT-Bench has {_MT_BENCH_TURNS}: the row is incomplete"
        )
    return {"id": key_at(row, "prompt_id", "question_id"), "category": columns.get("category"), "turns": turns}


MT_BENCH = SourceLoader(
    what="MT-Bench: 80 questions in eight categories, two turns each",
    columns=("prompt | turns", "category"),
    template="both turns unchanged, with the model's own answer between them",
    licence="Apache-2.0",
    convert=_mt_bench,
    hub=single_hub(HubDataset("HuggingFaceH4/mt_bench_prompts", "train")),
    note="FastChat's question.jsonl is read as well. vLLM's benchmark of the same name sends only the first turn",
)


def _spec_bench(row: PromptRow, _: Selection) -> Columns:
    """Convert a row in FastChat's format (question_id, category, turns) to our columns. Raises BadRow."""
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: every row of Spec-Bench has a unique one")
    if columns.get("turns") is None:
        raise BadRow('the column turns is missing: give the list of user messages, such as ["…", "…"]')
    return {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": columns.get("sub_category"),
        "turns": columns["turns"],
    }


SPEC_BENCH = SourceLoader(
    what="Spec-Bench: 480 questions in 13 categories, 80 of them with two turns",
    columns=("question_id", "category", "turns"),
    template="turns unchanged",
    licence="Apache-2.0 (its parts: WMT14, CNN/DailyMail, Natural Questions, GSM8K, MT-Bench)",
    convert=_spec_bench,
    note="`data/spec_bench/question.jsonl` of github.com/hemingkx/Spec-Bench; its multilingual part repeats one"
    " sentence frame, and all but five of its categories have ten prompts each",
)


_SHAREGPT_LEAST_MESSAGES = 2
_HUMAN = ("human", "user")
_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"


def _sharegpt(row: PromptRow, _: Selection) -> Columns:
    found = row.columns.get("conversations")
    if not isinstance(found, list):
        raise BadRow("the column conversations is missing: a row of ShareGPT has a list of messages in it")
    if len(found) < _SHAREGPT_LEAST_MESSAGES:
        raise RowExcluded("fewer than two messages")
    first = found[0]
    if not isinstance(first, dict) or not isinstance(first.get("value"), str):
        raise BadRow('conversations[0] is not a message: give {"from": "human", "value": "…"}')
    if first.get("from") not in _HUMAN:
        raise RowExcluded("does not begin with a user's message")
    if not first["value"].strip():
        raise RowExcluded("begins with an empty message")
    return single_turn_columns(first["value"], row, "id", category="chat")


SHAREGPT = SourceLoader(
    what="ShareGPT: first messages of real conversations (about 94,000)",
    columns=("id", "conversations"),
    template="`conversations[0].value` alone",
    licence="Apache-2.0 according to its uploader; the text belongs to its users",
    convert=_sharegpt,
    hub=single_hub(HubDataset("anon8231489123/ShareGPT_Vicuna_unfiltered", "train", file=_FILE)),
    note="rows with fewer than two messages, or whose first message is not from the user, are left out and counted;"
    " for the usual lengths add `inputTokens: {min: 4, max: 1024}`. EAGLE heads were trained on it, which inflates"
    " acceptance",
)
