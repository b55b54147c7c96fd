"""HumanEval, MBPP, InstructCoder and Blazedit: completing, generating and editing code."""

from __future__ import annotations

import re

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    quoted,
    single_hub,
    single_turn_columns,
    text_at,
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
