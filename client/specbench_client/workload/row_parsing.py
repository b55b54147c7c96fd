"""Parses one row into one prompt with its expected answer, or reports what is wrong with it and what to write instead.

Nothing is repaired, because a prompt that was trimmed, joined or guessed is a different prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any
from uuid import UUID

from specbench_api.errors import SpecbenchError
from specbench_api.spec.answers import AnswerMatch, ExpectedAnswer
from specbench_client.bounded_json import parse_json
from specbench_client.chat import ChatMessage, RequestStart
from specbench_client.workload.prompt_files import PromptRow

# What is compared of an answer and of the expected one: a number, the letter of a choice, or the text. Models' answers
# and those of data sets are read in the same way, so a row may have GSM8K's whole solution, which ends with `#### 18`.


_NUMBER = (
    r"(?:(?:(?<![\w.,)])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)"
    r"(?:e[+-]?[0-9]{1,3}(?!\w))?"
)
_ANY_NUMBER = re.compile(_NUMBER, re.IGNORECASE)
# A heading such as `#### 3. Add the costs` is no mark.
_MARKED_NUMBER = re.compile(
    rf"(?<!#)#{{4,}}+[^\w\n.#-]*+({_NUMBER})[^\n\d.:)]{{0,24}}+\.?[^\S\n]*+$", re.IGNORECASE | re.MULTILINE
)
# "I think" and "A train" begin with a word, "A is right" and "I because" with a choice.
_LETTER = r"(?:[B-HJ]|[AI](?!\s+(?!(?:and|as|because|by|due|for|is|or|since)\b)[a-z]))(?![\w'])"
# Possessive quantifiers keep it linear: an answer may end in thousands of spaces.
_NAMED_CHOICE = re.compile(
    r"answer\b(?:\s++is)?+\s*+:?[\s*_$\"'`]*+(?:(?:option|choice|letter)\b[\s:*_$\"'`]*+)?+(?:\\boxed\{|\\text\{)*+"
    rf"(?-i:[(\[]([a-j])[)\]]|[(\[]?({_LETTER}))",
    re.IGNORECASE,
)
_LONE_CHOICE = re.compile(rf"(?<![\w']){_LETTER}")


def extract_answer(text: str, match: AnswerMatch) -> str | None:
    """Return what is compared, in one spelling: `1,080.50` is `1080.5`; None if the text has no answer."""
    if match is AnswerMatch.EXACT:
        return text.strip() or None
    if match is AnswerMatch.CHOICE:
        named = _NAMED_CHOICE.findall(text)
        if named:
            return "".join(named[-1]).upper()
        lone = _LONE_CHOICE.findall(text)
        return lone[-1] if lone else None
    plain = text.replace("\u2212", "-")  # the minus sign
    numbers = _MARKED_NUMBER.findall(plain) or _ANY_NUMBER.findall(plain)
    return _one_spelling(numbers[-1]) if numbers else None


def _one_spelling(number: str) -> str:
    """Return a number without commas, leading zeros and trailing zeros after the point."""
    text = f"{Decimal(number.replace(',', '')):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("", "-0", "-") else text


PLACEHOLDER_TEXT = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""Text in those rows of SPEED-Bench whose real text may not be redistributed."""
PLACEHOLDER_REASON = "placeholder: the licence does not allow redistribution of the text"
CONTENT_COLUMNS = ("prompt", "turns", "messages", "token_ids")
"""Content columns: a row of a user's own file has exactly one of them."""
EXPECTED = "expected answer"
"""Column of converted rows with the expected answer, if the source or the workload names one."""
_SHOWN = 12
_ROW_EXAMPLE = '{"id": "q1", "prompt": "…"}'
_EXAMPLES = {
    "turns": '["first question", "second question"]',
    "messages": '[{"role": "user", "content": "…"}]',
    "token_ids": "[1, 15043]",
}
_ROLES = ("system", "developer", "user", "assistant", "tool")
_ASKING = ("user", "tool")
"""Roles whose messages the model answers."""
_ROLE_NAMES: Mapping[str, str] = {
    "human": "user",
    **dict.fromkeys(("humanmessage", "humanmessagechunk"), "user"),
    **dict.fromkeys(("aimessage", "aimessagechunk"), "assistant"),
    "systemmessage": "system",
    "toolmessage": "tool",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "prompter": "user",
}
"""Other names of roles, in ShareGPT's files and others, and of LangChain's classes."""
TIMES = ("timestamp", "created_at", "created", "time", "ts", "start_time", "startTime", "request_created_at")
"""Names of times in logs, of lines and of messages."""
_ROLE_KEYS, _TEXT_KEYS = ("role", "from", "type"), ("content", "value", "text", "parts")
_OF_USERS = ("hashed_ip", "header", "country", "state", "language", "toxic", "redacted", "turn_identifier")
"""What WildChat notes about a message and its user, which is not for a server."""
# In fine-tuning, and in LangChain.
_UNSENT_FIELDS = {*_ROLE_KEYS, *_TEXT_KEYS, *TIMES, *_OF_USERS, "weight", "additional_kwargs"}
_RESPONSES_PARTS = ("input_text", "output_text")
_TOOL_KEYS = {"tool_calls", "tool_call_id"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})
OTHER_PARTS = "has content other than text, which is not supported"
BAD_CALLS = "has tool calls without a name, or with arguments that are not valid JSON"
EMPTY_MESSAGE = "has an empty message"
FUNCTIONS = "has functions or function calls, the older form of tools, which is not supported"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation. Each turn contains the messages it adds to the history, usually one message of the user.

    A recorded session has `starts`, one for each turn. Its turns contain all messages of their requests, with recorded
    answers and tool results in place of the model's own: every arm then receives the same prompts.
    """

    id: str
    category: str | None
    turns: tuple[tuple[ChatMessage, ...], ...]
    output_tokens: int | None = None
    """Length of each answer, generated past its natural end; None: as the workload declares."""
    starts: tuple[RequestStart, ...] = ()
    expected: str | None = None
    """The expected answer to the last turn, as `extract_answer` returns it; None: it is not compared."""

    @property
    def messages(self) -> Sequence[ChatMessage]:
        """All messages of the conversation; of a recorded session those of its longest request."""
        if self.starts:
            return max(self.turns, key=lambda turn: sum(len(one.content) for one in turn))
        return tuple(chain.from_iterable(self.turns))

    @property
    def in_flight(self) -> Sequence[int]:
        """Requests that may be in flight when each begins, itself included."""
        follows = list[int]()  # a set of requests is an integer with a bit for each
        for start in self.starts:
            follows.append(reduce(or_, (follows[each] | 1 << each for each in start.after), 0))
        return [number + 1 - each.bit_count() for number, each in enumerate(follows)] or [1]

    @property
    def with_tools(self) -> bool:
        """Whether it offers tools or contains tool calls."""
        return any(
            one.tools or one.role == "tool" or (one.further and not _TOOL_KEYS.isdisjoint(json.loads(one.further)))
            for turn in self.turns
            for one in turn
        )


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The column `recorded` of a row that is a recorded session: its requests and their starts, see `Prompt`."""

    turns: tuple[tuple[ChatMessage, ...], ...]
    starts: tuple[RequestStart, ...]


class BadRow(SpecbenchError):
    """An invalid row; its message becomes one line of a BadInput."""


class RowExcluded(SpecbenchError):
    """The source's own rule excludes this row. The message is a short reason, equal for all rows of its kind."""


class RowWithoutText(SpecbenchError):
    """The row has no text that can be sent. The message is a short reason, equal for all rows of its kind."""


def parse_prompt(row: PromptRow, expected: ExpectedAnswer | None = None) -> Prompt:
    """Parse a row into a prompt, with its expected answer if one is declared. Raises BadRow and RowWithoutText."""
    answer = _expected(row.columns, expected) if expected is not None else None
    recorded = row.columns.get("recorded")
    if isinstance(recorded, RecordedSession):
        return Prompt(_id(row.columns), _category(row.columns), recorded.turns, starts=recorded.starts, expected=answer)
    first, *later = _turns(row.columns)
    tools = parse_tools(row.columns.get("tools")) if first[0].content or first[0].further else ""
    opening = (replace(first[0], tools=tools), *first[1:]) if tools else first
    return Prompt(_id(row.columns), _category(row.columns), (opening, *later), expected=answer)


def _id(columns: dict[str, Any]) -> str:
    value = columns.get("id")
    value = str(value) if isinstance(value, UUID) else value  # Parquet has both.
    if isinstance(value, float | Decimal) and value % 1 == 0:  # pandas makes such numbers of integers
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRow(f'id is {value!r}: give a non-empty string or a whole number, such as "q1"')
    return _encodable(str(value), "id")


def _expected(columns: dict[str, Any], declared: ExpectedAnswer) -> str:
    """Return the expected answer; `check_rows` has put it into the column EXPECTED."""
    value = columns.get(EXPECTED)
    name = declared.field or "the column answer"
    if value is None:
        raise BadRow(f"{name} is missing: name the right column in answers.expected.field")
    found = extract_answer(str(value), declared.match)
    if found is None:
        raise BadRow(f"{name} has no answer of the kind {declared.match}: correct it, or set answers.expected.match")
    return found


def _category(columns: dict[str, Any]) -> str | None:
    value = columns.get("category")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f'category is {value!r}: give a non-empty string, such as "qa", or leave it out')
    return _encodable(value, "category")


def _turns(columns: dict[str, Any]) -> tuple[tuple[ChatMessage, ...], ...]:
    present = [name for name in CONTENT_COLUMNS if columns.get(name) is not None]
    if len(present) != 1:
        raise BadRow(
            f"exactly one of {', '.join(CONTENT_COLUMNS)} is required, found"
            f" {' and '.join(present) or _column_names(columns)}: write a row such as {_ROW_EXAMPLE}, or remove it"
        )
    name, value = present[0], columns[present[0]]
    if name == "prompt":
        return ((ChatMessage("user", _text(value, "prompt")),),)
    if not isinstance(value, list) or not value:
        raise BadRow(f"{name} is {_shown(value)}: give a list with at least one element, such as {_EXAMPLES[name]}")
    if name == "token_ids":
        return ((ChatMessage("user", "", _token_ids(value)),),)
    if name == "turns":
        return tuple(_turn(turn, f"turns[{index}]") for index, turn in enumerate(value))
    return (_turn(value, name),)


def _turn(value: Any, where: str) -> tuple[ChatMessage, ...]:
    """Parse the user's text, as in Arena-Hard in an object, or a list of messages. Raises BadRow, RowWithoutText."""
    if not isinstance(value, list):
        is_object = isinstance(value, dict) and role_of(value) in (None, "user")
        return (ChatMessage("user", _text(value.get("text", value.get("content")) if is_object else value, where)),)
    messages = tuple(parse_message(message, f"{where}[{index}]") for index, message in enumerate(value))
    if not messages or messages[-1].role not in _ASKING:
        raise BadRow(f"{where} ends with no message of role user or tool, so there is nothing to answer: add one")
    return messages


def _column_names(columns: dict[str, Any]) -> str:
    """List the row's columns, which shows a misspelt name or a table separated by semicolons."""
    there = [name for name, value in columns.items() if value is not None and name != EXPECTED]
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f"none; the row's columns are: {', '.join(there[:_SHOWN])}{more}" if there else "none"


def _token_ids(value: list[Any]) -> tuple[int, ...]:
    wrong = next((one for one in value if isinstance(one, bool) or not isinstance(one, int) or one < 0), None)
    if wrong is not None:
        raise BadRow(
            f"token_ids contains {wrong!r}: give token ids of the model's tokenizer, whole numbers of 0 or more"
        )
    return tuple(value)


def role_of(message: Mapping[str, Any]) -> Any:
    """Return a message's role by its name in OpenAI's API; any other value unchanged."""
    role = next((message[key] for key in _ROLE_KEYS if message.get(key) is not None), None)
    return _ROLE_NAMES.get(role.lower(), role.lower()) if isinstance(role, str) else role


def parse_message(value: Any, where: str) -> ChatMessage:
    """Return a message in OpenAI's or ShareGPT's form, without `_UNSENT_FIELDS`. Raises BadRow, RowWithoutText."""
    if not isinstance(value, dict):
        raise BadRow(f'{where} is {_shown(value)}: give an object such as {{"role": "user", "content": "…"}}')
    role = role_of(value)
    if role == "function" or value.get("function_call") or value.get("invalid_tool_calls"):
        raise RowWithoutText(BAD_CALLS if value.get("invalid_tool_calls") else FUNCTIONS)
    if role not in _ROLES:
        raise BadRow(f"{where}.role is {role!r}: give one of {', '.join(_ROLES)}")
    further = {key: item for key, item in value.items() if key not in _UNSENT_FIELDS and item not in _EMPTY}
    if "tool_calls" in further:
        further["tool_calls"] = list(map(_tool_call, further["tool_calls"]))
    content = next((value[key] for key in _TEXT_KEYS if value.get(key) is not None), None)
    if content is None and "tool_calls" in further:
        return ChatMessage(role, "", further=_json({"content": None, **further}))
    if not content and (role == "tool" or "tool_calls" in further):
        return ChatMessage(role, "", further=_json(further))
    if not content or (isinstance(content, str) and not content.strip()):
        raise RowWithoutText(EMPTY_MESSAGE)
    text, parts = _content(content)
    return ChatMessage(role, _text(text, f"{where}.content"), parts=parts, further=_json(further))


def _content(content: Any) -> tuple[Any, str]:
    """Return the text, and the parts as JSON if it is a list of them; one plain text part is the same as its text."""
    content = [content] if isinstance(content, dict) else content
    if not isinstance(content, list) or not content:
        return content, ""
    parts = [
        {key: item for key, item in part.items() if item is not None} for part in content if isinstance(part, dict)
    ]
    # The Responses API has other names for parts of text, which the chat completions API rejects; Gemini has none.
    parts = [
        {**part, "type": "text"} if part.get("type") in _RESPONSES_PARTS or part.keys() == {"text"} else part
        for part in parts
    ]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return parts[0]["text"], ""
    texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
    if len(texts) < len(content):
        raise RowWithoutText(OTHER_PARTS)
    return "\n".join(texts), _json(parts)


def _tool_call(call: Any) -> dict[str, Any]:
    """Return a tool call with its arguments as an object, as chat templates expect; on the wire they are JSON text.

    Raises RowWithoutText: models generate calls that engines reject.
    """
    try:
        if "function" not in call:  # LangChain's
            call = {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call["name"], "arguments": call["args"]},
            }
        function = call["function"]
        arguments = function.get("arguments")
        arguments = parse_json(arguments or "{}") if isinstance(arguments, str) else arguments
        present = {key: value for key, value in call.items() if value is not None}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RowWithoutText(BAD_CALLS) from error
    if not isinstance(function.get("name"), str) or not isinstance(arguments, dict | None):
        raise RowWithoutText(BAD_CALLS)
    return {**present, "function": {**function, "arguments": arguments or {}}}


def parse_tools(value: Any) -> str:
    """Return tools as JSON text. `value`: a list of tools or one, each an object or its JSON text. Raises BadRow."""
    if value is None:
        return ""
    try:
        found = parse_json(value) if isinstance(value, str) else value
        listed = [found] if isinstance(found, dict) else found
        tools = [parse_json(one) if isinstance(one, str) else one for one in listed]
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRow(f"tools is not a list of objects, or not valid JSON: {error}") from error
    if not all(isinstance(tool, dict) for tool in tools):
        raise BadRow("tools is not a list of objects: give it as in a request of the chat completions API")
    return _json(tools)


def _json(value: Any) -> str:
    """Return the JSON text of a value; empty for an empty value."""
    try:
        return _encodable(json.dumps(value, ensure_ascii=False), "tools or tool_calls") if value else ""
    except TypeError as error:  # Parquet has times and decimal numbers
        raise BadRow(f"a field of a message is not JSON ({error}): remove it, or convert it to text") from error


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{where} is {_shown(value)}: give a string")
    if not value.strip():
        raise BadRow(f"{where} is empty: fill it in, or remove the row")
    if PLACEHOLDER_TEXT in value:
        raise RowWithoutText(PLACEHOLDER_REASON)
    return _encodable(value, where)


def _encodable(value: str, where: str) -> str:
    """Return `value` if it can be encoded as UTF-8. JSON can escape half of a character, which cannot be sent."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = ascii(value[error.start])
        raise BadRow(
            f"{where} contains half a character (the lone surrogate {half}): the text was truncated; correct it"
        ) from error
    return value


def _shown(value: Any) -> str:
    """Describe a value that is missing, empty, or of the wrong type."""
    if value is None:
        return "missing"
    return "empty" if value == [] else f"of type {type(value).__name__}"
