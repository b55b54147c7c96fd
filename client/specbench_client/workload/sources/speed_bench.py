"""SPEED-Bench: NVIDIA's prepared Parquet, and the JSON Lines that NeMo-Skills makes of it.

Rows whose text may not be passed on are placeholders until somebody resolves them; they are refused by `reading`.
"""

from __future__ import annotations

from typing import Any

from specbench_api.spec.dataset import Selection
from specbench_client.workload.reading import BadRow
from specbench_client.workload.rows import Row
from specbench_client.workload.sources.source import Columns, Hub, Loader, NoText, label_at


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
        return _with_turns(columns["turns"], facts)
    return {**facts, "turns": _user_turns(columns["messages"])}


def _with_turns(turns: Any, facts: Columns) -> Columns:
    """Texts, or (config agentic) messages of one trajectory, which are one request with its history."""
    if isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns):
        return {**facts, "messages": _plain(turns)}
    return {**facts, "turns": turns}


def _plain(messages: list[Any]) -> list[Any]:
    """A trajectory without tools; what would have to be cut is told and not cut."""
    if any(message.get("role") == "tool" or message.get("tool_calls") for message in messages):
        raise NoText("a trajectory with tool calls: this version sends none")
    return messages


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
    note="about half of the rows are placeholders until `specbench dataset prepare` resolves them; agentic:"
    " trajectories with tool calls are left out (allowMissing)",
    files=_files,
)
