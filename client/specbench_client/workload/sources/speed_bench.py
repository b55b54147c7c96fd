"""SPEED-Bench: NVIDIA's prepared Parquet files, and the JSON Lines that NeMo-Skills converts them to.

Rows whose text may not be redistributed contain placeholders until `specbench dataset prepare` resolves them; until
then `row_validation` rejects them. A row of config agentic is a whole trajectory: each assistant message becomes one
request, sent with all recorded messages before it and with the tools in the row's `extras`.
"""

from __future__ import annotations

from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.bounded_json import parse_json
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import BadRow
from specbench_client.workload.sources.loader import Columns, HubDataset, SourceLoader, label_at

_SENT = ("tool_calls", "tool_call_id")


def _convert(row: PromptRow, _: Selection) -> Columns:
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: every row of SPEED-Bench has one")
    labels: Columns = {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": label_at(row, "sub_category"),
        "difficulty": label_at(row, "difficulty"),
        "language": label_at(row, "language"),
        "origin": label_at(row, "source"),
    }
    if columns.get("turns") is None and columns.get("messages") is None:
        raise BadRow(
            "neither turns (prepared Parquet) nor messages (NeMo-Skills) is present: prepare the dataset again"
        )
    if columns.get("turns") is not None:
        return _with_turns(columns["turns"], _tools(columns.get("extras")), labels)
    return {**labels, "turns": _user_turns(columns["messages"])}


def _with_turns(turns: Any, tools: Any, labels: Columns) -> Columns:
    """Add the turns: strings, or for config agentic the messages of one request (see `_steps`)."""
    if _is_trajectory(turns):
        return {**labels, "messages": [_plain(message) for message in turns], "tools": tools}
    return {**labels, "turns": turns}


def _is_trajectory(turns: Any) -> bool:
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, dict) for turn in turns)


def _steps(row: PromptRow) -> list[PromptRow]:
    """Split a trajectory into requests: one up to each assistant message, and all of it if another role ends it."""
    turns: Any = row.columns.get("turns")
    if not _is_trajectory(turns) or row.columns.get("question_id") is None:
        return [row]
    roles = [turn.get("role") for turn in turns]
    ends = [place for place, role in enumerate(roles) if role == "assistant" and place > 0]
    ends += [len(turns)] if roles[-1] != "assistant" else []
    key = row.columns["question_id"]
    return [
        PromptRow(row.place, {**row.columns, "question_id": f"{key}/step-{number}", "turns": turns[:end]})
        for number, end in enumerate(ends, start=1)
    ]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Keep the keys that the publisher's own client sends. In Parquet every message has every column."""
    further = {name: message[name] for name in _SENT if message.get(name) not in (None, [])}
    return {"role": message.get("role"), "content": message.get("content"), **further}


def _tools(extras: Any) -> Any:
    try:
        parsed = parse_json(extras) if isinstance(extras, str) else extras
    except (ValueError, RecursionError) as error:
        raise BadRow(f"extras is not valid JSON: {error}") from error
    return parsed.get("tools") if isinstance(parsed, dict) else None


def _user_turns(messages: Any) -> Any:
    """Return the contents of user messages. NeMo-Skills stores the turns of the user without answers."""
    is_list = isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages)
    if not is_list or any(message.get("role") != "user" for message in messages):
        raise BadRow("messages is not a list of user messages, which is all that NeMo-Skills' files contain")
    return [message.get("content") for message in messages]


def _hub(config: str | None) -> HubDataset:
    return HubDataset("nvidia/SPEED-Bench", "test", config)


def _files(config: str | None) -> tuple[str, ...]:
    return f"{config}/test.parquet", f"{config}.jsonl", f"{config}.parquet"


LOADER = SourceLoader(
    what="SPEED-Bench: 880 diverse prompts (qualitative); 1,536 per length in three entropy tiers (throughput)",
    columns=("question_id", "category", "turns | messages"),
    template="turns unchanged, in order, with the model's own answers between them",
    licence="NVIDIA Evaluation Dataset License; its parts have their own",
    convert=_convert,
    hub=_hub,
    note="about half of the rows are placeholders until `specbench dataset prepare` resolves them; agentic: each"
    " assistant message of a trajectory is one request, with everything recorded before it; tool calls need"
    " `chatTemplate.appliedBy: Client`",
    files=_files,
    split=_steps,
)
