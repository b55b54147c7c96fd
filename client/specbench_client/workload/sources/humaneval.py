"""HumanEval: functions to complete."""

from __future__ import annotations

from specbench_api.spec.dataset import Selection
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, always, asked, text_at

_CHAT = (
    "Complete the following Python function. Answer with the whole function in one code block."
    "\n\n```python\n{code}\n```"
)


def _convert(row: Row, selection: Selection) -> Columns:
    code = text_at(row, "prompt")
    prompt = code if selection.form == "raw" else _CHAT.replace("{code}", code.rstrip("\n"))
    return asked(prompt, row, "task_id", category="coding")


LOADER = Loader(
    what="HumanEval: 164 Python functions to complete",
    columns=("task_id", "prompt"),
    template=f"config chat: `{_CHAT}`; config raw: `prompt` alone as the user's message".replace("\n", "⏎"),
    licence="MIT",
    convert=_convert,
    hub=always(Hub("openai/openai_humaneval", "test")),
    note="HumanEval.jsonl.gz is read as it is. With config raw a chat model often answers with prose first",
)
