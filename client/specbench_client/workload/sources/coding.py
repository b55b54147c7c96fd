"""MBPP, InstructCoder and code edits: code from a description, and code from code."""

from __future__ import annotations

import re

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, always, asked, quoted, text_at

_INSTRUCT = "{input}\n\n{instruction} Just output the code, do not include any explanation."
_EDIT = (
    "Given a code file, please apply the change requests and generate the new file.\n\n"
    "Original file:\n```python\n{code}\n```\n\nChange request:\n{change_request}\n\n"
    'Please generate the new code file in the "New file" section below.'
)


def _mbpp(row: Row, _: Selection) -> Columns:
    name = "prompt" if row.columns.get("text") is None and row.columns.get("prompt") is not None else "text"
    return asked(text_at(row, name), row, "task_id", category="coding")


def _instructcoder(row: Row, _: Selection) -> Columns:
    code, instruction = text_at(row, "input"), text_at(row, "instruction")
    return asked(_filled(_INSTRUCT, input=code, instruction=instruction), row, "id", category="editing")


def _edit(row: Row, _: Selection) -> Columns:
    code, change = text_at(row, "code"), text_at(row, "change_request")
    return asked(_filled(_EDIT, code=code, change_request=change), row, "id", category="editing")


def _filled(template: str, **texts: str) -> str:
    """In one pass: a text that holds braces of its own is neither read as a template nor changed."""
    return re.sub(r"\{(\w+)\}", lambda found: texts[found[1]], template)


def _hub_edit(config: str | None) -> Hub:
    return Hub(f"vdaita/{config}", "train")


MBPP = Loader(
    what="MBPP: Python functions from one sentence (test: 500)",
    columns=("text | prompt",),
    template="`text` alone (sanitized files: `prompt`)",
    licence="CC BY 4.0",
    convert=_mbpp,
    hub=always(Hub("google-research-datasets/mbpp", "test", "full")),
)
INSTRUCTCODER = Loader(
    what="InstructCoder: edits of a given piece of code (108,000)",
    columns=("input", "instruction"),
    template=quoted(_INSTRUCT),
    licence="none is stated on the hub: do not pass it on",
    convert=_instructcoder,
    hub=always(Hub("likaixin/InstructCoder", "train")),
    note="answers repeat the input: prompt-lookup drafters shine here",
)
EDIT = Loader(
    what="Blazedit: whole files with a change request, answered with the whole new file",
    columns=("code", "change_request"),
    template=quoted(_EDIT),
    licence="not known here: see its page on the hub",
    convert=_edit,
    hub=_hub_edit,
    note="the template is Blazedit's, so that figures compare; answers repeat most of the input",
)
