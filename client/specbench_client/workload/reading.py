"""One row → one prompt, or what is wrong with the row and what to write instead.

Nothing is repaired: a prompt that was trimmed, joined or guessed is another prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specbench_api.errors import SpecbenchError
from specbench_api.spec.workload import Source
from specbench_client.chat import Message
from specbench_client.workload.rows import Row

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""What SPEED-Bench's rows hold whose text may not be redistributed."""
CONTENT = ("prompt", "turns", "messages", "token_ids")
"""Columns of which a row of our own has one."""
_SHOWN = 12
_ROLES = ("system", "developer", "user", "assistant", "tool")
_ASKING = ("user", "tool")
"""Whose messages a model answers."""
_FURTHER: Mapping[str, tuple[str, ...]] = {"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}
"""What a message may hold besides role and content, by its role."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation. Each turn is what is sent for it besides the history: usually one message of the user."""

    id: str
    category: str | None
    turns: tuple[tuple[Message, ...], ...]

    @property
    def with_tools(self) -> bool:
        """Whether it offers tools, or tells of calls of them."""
        return any(one.tools or one.further or one.role == "tool" for turn in self.turns for one in turn)


class BadRow(SpecbenchError):
    """What is wrong with a row; becomes a line of BadInput."""


class Placeholder(BadRow):
    """The row's text is one that its licence does not let be passed on: it must be fetched from its source."""


def read_prompt(row: Row, source: Source) -> Prompt:
    """The row's prompt. Raises BadRow."""
    first, *later = _turns(row.columns, source)
    tools = _tools(row.columns.get("tools")) if first[0].content or first[0].further else ""
    opening = (replace(first[0], tools=tools), *first[1:])
    return Prompt(_id(row.columns, source), _category(row.columns), (opening, *later))


def _id(columns: dict[str, Any], source: Source) -> str:
    name = "question_id" if source is Source.SPEC_BENCH else "id"
    value = columns.get(name)
    if value is None:
        if name == "id" and columns.get("question_id") is not None:
            raise BadRow("the column id is missing: the row has question_id, so set source: spec-bench")
        raise BadRow(f"the column {name} is missing: give every prompt a name of its own, or none")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRow(f"{name} is {value!r}: give a text or a whole number")
    return _whole(str(value), name)


def _category(columns: dict[str, Any]) -> str | None:
    value = columns.get("category")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"category is {value!r}: give a text, or leave it out")
    return _whole(value, "category")


def _turns(columns: dict[str, Any], source: Source) -> tuple[tuple[Message, ...], ...]:
    allowed = ("turns",) if source is Source.SPEC_BENCH else CONTENT
    given = [name for name in allowed if columns.get(name) is not None]
    if len(given) != 1:
        raise BadRow(f"one of {', '.join(allowed)} is needed, found {' and '.join(given) or _instead(columns)}")
    name, value = given[0], columns[given[0]]
    if name == "prompt":
        return ((Message("user", _text(value, "prompt")),),)
    if not isinstance(value, list) or not value:
        raise BadRow(f"{name} is {_shown(value)}: give a list with at least one element")
    if name == "token_ids":
        return ((Message("user", "", _token_ids(value)),),)
    if name == "turns":
        return tuple((Message("user", _text(turn, f"turns[{index}]")),) for index, turn in enumerate(value))
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(value))
    if messages[-1].role not in _ASKING:
        raise BadRow(
            f"the last of messages is the {messages[-1].role}'s: there is nothing to answer; end with the user's"
            " or a tool's"
        )
    return (messages,)


def _instead(columns: dict[str, Any]) -> str:
    """What there is, since a column may only be called otherwise, or a table be parted by semicolons."""
    there = [name for name, value in columns.items() if value is not None]
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f"none; the row's columns are: {', '.join(there[:_SHOWN])}{more}" if there else "none"


def _token_ids(value: list[Any]) -> tuple[int, ...]:
    wrong = next((one for one in value if isinstance(one, bool) or not isinstance(one, int) or one < 0), None)
    if wrong is not None:
        raise BadRow(f"token_ids holds {wrong!r}: give the model's token ids, whole numbers from 0 on")
    return tuple(value)


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise BadRow(f"{where} is {_shown(value)}: give an object with role and content")
    role = value.get("role")
    if role not in _ROLES:
        raise BadRow(f"{where}.role is {role!r}: give one of {', '.join(_ROLES)}")
    told = {key: content for key, content in value.items() if key not in ("role", "content") and content is not None}
    strange = sorted(told.keys() - set(_FURTHER.get(role, ())))
    if strange:
        also = " and ".join(_FURTHER.get(role, ()))
        may = f"role, content{', ' if also else ''}{also}"
        raise BadRow(f"{where} has {strange[0]!r}, which would not be sent: of a message of the {role}, only {may} are")
    if "tool_calls" in told:
        told["tool_calls"] = tool_calls_of(told["tool_calls"], f"{where}.tool_calls")
    content = value.get("content")
    if content is None and "tool_calls" in told:
        return Message(role, "", further=_json({"content": None, **told}))
    may_be_empty = content == "" and (role == "tool" or "tool_calls" in told)
    return Message(role, "" if may_be_empty else _text(content, f"{where}.content"), further=_json(told))


def tool_calls_of(calls: Any, where: str) -> list[dict[str, Any]]:
    """Arguments as an object, which is what chat templates are written for; on the wire they are its JSON text.

    Raises BadRow.
    """
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BadRow(f"{where} is no list of objects")
    return [_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _call(call: dict[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRow(f"{where} has no function with a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise BadRow(f"{where}.function.arguments is no JSON: {error}") from error
    if not isinstance(arguments, dict | None):
        raise BadRow(f"{where}.function.arguments is {_shown(arguments)}: give an object, or its JSON text")
    told = {key: value for key, value in call.items() if value is not None}
    return {**told, "function": {**function, "arguments": arguments or {}}}


def _tools(value: Any) -> str:
    """The JSON text of the row's column, which may be one already."""
    if value is None:
        return ""
    try:
        tools = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise BadRow(f"tools is no JSON: {error}") from error
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRow("tools is no list of objects, as the chat completions API has them")
    return _json(tools)


def _json(value: Any) -> str:
    """Empty for what is empty."""
    return _whole(json.dumps(value, ensure_ascii=False), "tools or tool_calls") if value else ""


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{where} is {_shown(value)}: give a text")
    if not value.strip():
        raise BadRow(f"{where} is empty: leave the row out, or fill it")
    if PLACEHOLDER in value:
        raise Placeholder(
            f"{where} is a placeholder: the data set's licence does not let its text be passed on; "
            "fetch it from its source first, as its publisher describes"
        )
    return _whole(value, where)


def _whole(value: str, where: str) -> str:
    """JSON can escape half of a character, which no UTF-8 can carry: it could neither be sent nor kept."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = ascii(value[error.start])
        raise BadRow(
            f"{where} holds half a character (the lone surrogate {half}): it was cut; mend the text"
        ) from error
    return value


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "missing"
