"""SPEED-Bench: NVIDIA's prepared Parquet, and the JSON Lines that NeMo-Skills makes of it.

Rows whose text may not be passed on are placeholders until somebody resolves them; they are refused by `reading`.
A row of config agentic is a whole trajectory: each of its assistant's messages is one request, asked with all that
came before it as it was recorded, and with the tools that the row's `extras` hold.
"""

from __future__ import annotations

import json
from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, label_at

_SENT = ("tool_calls", "tool_call_id")


def _convert(row: Row, _: Selection) -> Columns:
    columns = row.columns
    if columns.get("question_id") is None:
        raise BadRow("the column question_id is missing: SPEED-Bench's rows have one")
    facts: Columns = {
        "id": columns["question_id"],
        "category": columns.get("category"),
        "sub_category": label_at(row, "sub_category"),
        "difficulty": label_at(row, "difficulty"),
        "language": label_at(row, "language"),
        "origin": label_at(row, "source"),
    }
    if columns.get("turns") is None and columns.get("messages") is None:
        raise BadRow("one of turns (prepared Parquet) and messages (NeMo-Skills) is needed, found none")
    if columns.get("turns") is not None:
        return _with_turns(columns["turns"], _tools(columns.get("extras")), facts)
    return {**facts, "turns": _user_turns(columns["messages"])}


def _with_turns(turns: Any, tools: Any, facts: Columns) -> Columns:
    """Texts, or (config agentic) the messages of one request, see `_steps`."""
    if _is_trajectory(turns):
        return {**facts, "messages": [_plain(message) for message in turns], "tools": tools}
    return {**facts, "turns": turns}


def _is_trajectory(turns: Any) -> bool:
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, dict) for turn in turns)


def _steps(row: Row) -> list[Row]:
    """A trajectory up to each of its answers, and whole where it ends with a question."""
    turns: Any = row.columns.get("turns")
    if not _is_trajectory(turns) or row.columns.get("question_id") is None:
        return [row]
    roles = [turn.get("role") for turn in turns]
    ends = [place for place, role in enumerate(roles) if role == "assistant" and place > 0]
    ends += [len(turns)] if roles[-1] != "assistant" else []
    key = row.columns["question_id"]
    return [
        Row(row.place, {**row.columns, "question_id": f"{key}/step-{number}", "turns": turns[:end]})
        for number, end in enumerate(ends, start=1)
    ]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """What the publisher's own client sends of a message; of Parquet, every message has every column."""
    told = {name: message[name] for name in _SENT if message.get(name) not in (None, [])}
    return {"role": message.get("role"), "content": message.get("content"), **told}


def _tools(extras: Any) -> Any:
    try:
        held = json.loads(extras) if isinstance(extras, str) else extras
    except (ValueError, RecursionError) as error:
        raise BadRow(f"extras is no JSON: {error}") from error
    return held.get("tools") if isinstance(held, dict) else None


def _user_turns(messages: Any) -> Any:
    """NeMo-Skills writes every turn of the user and no answer: each is a turn, not one history."""
    whole = isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages)
    if not whole or any(message.get("role") != "user" for message in messages):
        raise BadRow("messages is no list of the user's turns: NeMo-Skills' files hold nothing else")
    return [message.get("content") for message in messages]


def _hub(config: str | None) -> Hub:
    return Hub("nvidia/SPEED-Bench", "test", config)


def _files(config: str | None) -> tuple[str, ...]:
    return f"{config}/test.parquet", f"{config}.jsonl", f"{config}.parquet"


LOADER = Loader(
    what="SPEED-Bench: 880 diverse prompts (qualitative), 1,536 a length and three entropy tiers (throughput)",
    columns=("question_id", "category", "turns | messages"),
    template="turns as they are, in order; the model's own answers stand between them",
    licence="NVIDIA Evaluation Dataset License; its parts have their own",
    convert=_convert,
    hub=_hub,
    note="about half of the rows are placeholders until `specbench dataset prepare` resolves them; agentic: each"
    " assistant's message of a trajectory is one request, with all that was recorded before it; tools and their calls"
    " need `chatTemplate.appliedBy: Client`",
    files=_files,
    split=_steps,
)
