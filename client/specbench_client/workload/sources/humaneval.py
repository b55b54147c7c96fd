"""HumanEval: functions to complete."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.sources.loader import (
    Columns,
    HubDataset,
    SourceLoader,
    single_hub,
    single_turn_columns,
    text_at,
)

_CHAT = (
    "Complete the following Python function. Answer with the whole function in one code block."
    "\n\n```python\n{code}\n```"
)


def _convert(row: PromptRow, selection: Selection) -> Columns:
    code = text_at(row, "prompt")
    prompt = code if selection.form == "raw" else _CHAT.replace("{code}", code.rstrip("\n"))
    return single_turn_columns(prompt, row, "task_id", category="coding")


LOADER = SourceLoader(
    what="HumanEval: 164 Python functions to complete",
    columns=("task_id", "prompt"),
    template=f"config chat: ````` {_CHAT} `````; config raw: `prompt` alone as the user's message".replace("\n", "⏎"),
    licence="MIT",
    convert=_convert,
    hub=single_hub(HubDataset("openai/openai_humaneval", "test")),
    note="HumanEval.jsonl.gz can be read directly. With config raw, a chat model often starts its answer with prose",
)
