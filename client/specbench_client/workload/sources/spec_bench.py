"""Spec-Bench: question.jsonl as it is published."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Loader


def question(row: Row, _: Selection) -> Columns:
    """Our columns of a row in FastChat's form: question_id, category, turns. Raises BadRow."""
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: give every prompt a name of its own, or none")
    if columns.get("turns") is None:
        raise BadRow("the column turns is missing: a list of the user's messages")
    return {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": columns.get("sub_category"),
        "turns": columns["turns"],
    }


LOADER = Loader(
    what="Spec-Bench: 480 questions of 13 categories, 80 of two turns",
    columns=("question_id", "category", "turns"),
    template="turns as they are",
    licence="Apache-2.0 (its parts: WMT14, CNN/DailyMail, Natural Questions, GSM8K, MT-Bench)",
    convert=question,
    note="`data/spec_bench/question.jsonl` of github.com/hemingkx/Spec-Bench; its multilingual part is one sentence"
    " frame, its categories hold ten prompts each but for five",
)
