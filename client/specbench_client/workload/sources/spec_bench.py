"""Spec-Bench: question.jsonl in FastChat's format."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import (
    Columns,
    SourceLoader,
)


def _convert(row: PromptRow, _: Selection) -> Columns:
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


LOADER = SourceLoader(
    what="Spec-Bench: 480 questions in 13 categories, 80 of them with two turns",
    columns=("question_id", "category", "turns"),
    template="turns unchanged",
    licence="Apache-2.0 (its parts: WMT14, CNN/DailyMail, Natural Questions, GSM8K, MT-Bench)",
    convert=_convert,
    note="`data/spec_bench/question.jsonl` of github.com/hemingkx/Spec-Bench; its multilingual part repeats one"
    " sentence frame, and all but five of its categories have ten prompts each",
)
