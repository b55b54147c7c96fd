"""Data sets of tasks with a known answer: mathematics, multiple choice, code."""

from __future__ import annotations

import hashlib
import re

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import EXPECTED
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    key_at,
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
    columns = single_turn_columns(_BOXED.replace("{problem}", text_at(row, name)), row, "ID", "id", category="math")
    return {**columns, EXPECTED: label_at(row, "Answer", "answer")}


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


_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_LETTERS = "ABCD"
_FORMAT = 'Format your response as follows: "The correct answer is (insert answer here)"'
_QUESTION = "What is the correct answer to this question: "


def order_of_choices(seed: int, question: str) -> list[int]:
    """Return the indices of the choices at (A), (B), (C) and (D).

    In the published order the correct answer would always be (A). The shuffled order depends only on the seed, the
    question's id and the choice's number, by SHA-256, and not on a random generator or the order of rows.
    """
    return sorted(
        range(len(_CHOICES)), key=lambda choice: hashlib.sha256(f"{seed}\0{question}\0{choice}".encode()).digest()
    )


def _gpqa_columns(row: PromptRow, selection: Selection) -> Columns:
    key = str(key_at(row, "Record ID"))
    order = order_of_choices(selection.seed or 0, key)
    shuffled = [_CHOICES[choice] for choice in order]
    choices = [f"({letter}) {text_at(row, name).strip()}" for letter, name in zip(_LETTERS, shuffled, strict=True)]
    prompt = "\n".join([_QUESTION + text_at(row, "Question"), "", "Choices:", *choices, "", _FORMAT])
    domain, subdomain = label_at(row, "High-level domain"), label_at(row, "Subdomain")
    columns = single_turn_columns(prompt, row, category=domain or "stem", sub_category=subdomain)
    return {**columns, "id": key, EXPECTED: _LETTERS[order.index(0)]}


def _gpqa_hub(config: str | None) -> HubDataset:
    return HubDataset("Idavidrein/gpqa", "train", config)


GPQA = SourceLoader(
    what="GPQA: graduate-level questions with four choices (main 448, diamond 198, extended 546)",
    columns=("Question", *_CHOICES),
    template=f"`{_QUESTION}{{Question}}⏎⏎Choices:⏎(A) …⏎(B) …⏎(C) …⏎(D) …⏎⏎{_FORMAT}`, choices shuffled by seed",
    licence="CC BY 4.0; must not be published in plain text",
    convert=_gpqa_columns,
    hub=_gpqa_hub,
    gated=True,
    note="category: High-level domain; sub-category: Subdomain",
)


_COMPLETE = (
    "Complete the following Python function. Answer with the whole function in one code block."
    "\n\n```python\n{code}\n```"
)

_INSTRUCT = "{input}\n\n{instruction} Just output the code, do not include any explanation."

_EDIT = (
    "Given a code file, please apply the change requests and generate the new file.\n\n"
    "Original file:\n```python\n{code}\n```\n\nChange request:\n{change_request}\n\n"
    'Please generate the new code file in the "New file" section below.'
)


def _humaneval(row: PromptRow, selection: Selection) -> Columns:
    code = text_at(row, "prompt")
    prompt = code if selection.form == "raw" else _COMPLETE.replace("{code}", code.rstrip("\n"))
    return single_turn_columns(prompt, row, "task_id", category="coding")


def _mbpp(row: PromptRow, _: Selection) -> Columns:
    name = "prompt" if row.columns.get("text") is None and row.columns.get("prompt") is not None else "text"
    return single_turn_columns(text_at(row, name), row, "task_id", category="coding")


def _instructcoder(row: PromptRow, _: Selection) -> Columns:
    code, instruction = text_at(row, "input"), text_at(row, "instruction")
    return single_turn_columns(
        _fill_template(_INSTRUCT, input=code, instruction=instruction), row, "id", category="editing"
    )


def _edit(row: PromptRow, _: Selection) -> Columns:
    code, change = text_at(row, "code"), text_at(row, "change_request")
    return single_turn_columns(_fill_template(_EDIT, code=code, change_request=change), row, "id", category="editing")


def _fill_template(template: str, **texts: str) -> str:
    """Fill all fields in one pass, so that braces inside a text are neither interpreted nor changed."""
    return re.sub(r"\{(\w+)\}", lambda found: texts[found[1]], template)


def _hub_edit(config: str | None) -> HubDataset:
    return HubDataset(f"vdaita/{config}", "train")


HUMANEVAL = SourceLoader(
    what="HumanEval: 164 Python functions to complete",
    columns=("task_id", "prompt"),
    template=f"config chat: ````` {_COMPLETE} `````; config raw: `prompt` alone as the user's message".replace(
        "\n", "⏎"
    ),
    licence="MIT",
    convert=_humaneval,
    hub=single_hub(HubDataset("openai/openai_humaneval", "test")),
    note="HumanEval.jsonl.gz can be read directly. With config raw, a chat model often starts its answer with prose",
)


MBPP = SourceLoader(
    what="MBPP: Python functions from one sentence (test: 500)",
    columns=("text | prompt",),
    template="`text` alone (sanitized files: `prompt`)",
    licence="CC BY 4.0",
    convert=_mbpp,
    hub=single_hub(HubDataset("google-research-datasets/mbpp", "test", "full")),
)

INSTRUCTCODER = SourceLoader(
    what="InstructCoder: edits of a given piece of code (108,000)",
    columns=("input", "instruction"),
    template=quoted(_INSTRUCT),
    licence="not stated on the hub: do not redistribute it",
    convert=_instructcoder,
    hub=single_hub(HubDataset("likaixin/InstructCoder", "train")),
    note="answers repeat the input, which favours prompt-lookup drafters",
)

EDIT = SourceLoader(
    what="Blazedit: whole files with a change request, answered with the whole new file",
    columns=("code", "change_request"),
    template=quoted(_EDIT),
    licence="unknown: see its page on the hub",
    convert=_edit,
    hub=_hub_edit,
    note="the template is Blazedit's own, so that figures are comparable; answers repeat most of the input",
)
