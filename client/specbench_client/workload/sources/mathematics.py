"""GSM8K, MATH-500 and AIME: mathematical problems whose answers are derivations."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    label_at,
    quoted,
    single_hub,
    single_turn_columns,
    text_at,
)

_BOXED = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{}."


def _gsm8k(row: PromptRow, _: Selection) -> Columns:
    return single_turn_columns(text_at(row, "question"), row, "id", category="math")


def _math_500(row: PromptRow, _: Selection) -> Columns:
    prompt = _BOXED.replace("{problem}", text_at(row, "problem"))
    subject, level = label_at(row, "subject"), label_at(row, "level")
    return single_turn_columns(prompt, row, "unique_id", category=subject or "math", difficulty=level)


def _aime(row: PromptRow, _: Selection) -> Columns:
    name = "Problem" if row.columns.get("Problem") is not None else "problem"
    return single_turn_columns(_BOXED.replace("{problem}", text_at(row, name)), row, "ID", "id", category="math")


_TEMPLATE = quoted(_BOXED)
GSM8K = SourceLoader(
    what="GSM8K: grade-school word problems (test: 1,319)",
    columns=("question",),
    template="`question` alone, no examples before it",
    licence="MIT",
    convert=_gsm8k,
    hub=single_hub(HubDataset("openai/gsm8k", "test", "main")),
    note="use the test rows: drafters were often trained on the training rows",
)
MATH_500 = SourceLoader(
    what="MATH-500: competition problems",
    columns=("problem",),
    template=_TEMPLATE,
    licence="MIT",
    convert=_math_500,
    hub=single_hub(HubDataset("HuggingFaceH4/MATH-500", "test")),
    note="category: subject; difficulty: level, 1 to 5",
)
AIME = SourceLoader(
    what="AIME 2022 to 2024: 90 problems, long derivations",
    columns=("problem",),
    template=_TEMPLATE,
    licence="Apache-2.0",
    convert=_aime,
    hub=single_hub(HubDataset("AI-MO/aimo-validation-aime", "train")),
    note="Maxwell-Jia/AIME_2024 (ID, Problem) is read as well",
)
