"""GSM8K, MATH-500 and AIME: problems whose answers are derivations."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, always, asked, label_at, quoted, text_at

_BOXED = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{}."


def _gsm8k(row: Row, _: Selection) -> Columns:
    return asked(text_at(row, "question"), row, "id", category="math")


def _math_500(row: Row, _: Selection) -> Columns:
    prompt = _BOXED.replace("{problem}", text_at(row, "problem"))
    subject, level = label_at(row, "subject"), label_at(row, "level")
    return asked(prompt, row, "unique_id", category=subject or "math", difficulty=level)


def _aime(row: Row, _: Selection) -> Columns:
    name = "Problem" if row.columns.get("Problem") is not None else "problem"
    return asked(_BOXED.replace("{problem}", text_at(row, name)), row, "ID", "id", category="math")


_TEMPLATE = quoted(_BOXED)
GSM8K = Loader(
    what="GSM8K: grade-school word problems (test: 1,319)",
    columns=("question",),
    template="`question` alone, no examples before it",
    licence="MIT",
    convert=_gsm8k,
    hub=always(Hub("openai/gsm8k", "test", "main")),
    note="of a file with the training rows, those are measured: drafters were often trained on them",
)
MATH_500 = Loader(
    what="MATH-500: competition problems",
    columns=("problem",),
    template=_TEMPLATE,
    licence="MIT",
    convert=_math_500,
    hub=always(Hub("HuggingFaceH4/MATH-500", "test")),
    note="category: subject; difficulty: level, 1 to 5",
)
AIME = Loader(
    what="AIME 2022 to 2024: 90 problems, long derivations",
    columns=("problem",),
    template=_TEMPLATE,
    licence="Apache-2.0",
    convert=_aime,
    hub=always(Hub("AI-MO/aimo-validation-aime", "train")),
    note="Maxwell-Jia/AIME_2024 (ID, Problem) is read as well",
)
