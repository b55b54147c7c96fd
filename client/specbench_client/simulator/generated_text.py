"""Generates the simulated model's text: deterministic words, one token each, or answers of a prescribed form. Pure.

The text depends only on model, seed and prompt (and on the request's seed if it is sampled), never on the drafter.
Speculative decoding must not change greedy output, and a client that checks this needs an engine where it holds
exactly. With ``ignore_eos`` the text continues past its natural end, like that of a real model.

Prescribed are JSON documents that match a schema, tool calls, and a number as in GSM8K. A document consists of the
schema's properties in their order, with values drawn from the vocabulary and within the schema's bounds. Its tokens are
the parts between spaces, so that all tokens joined by spaces are the document. It ends where it is complete, also with
``ignore_eos``. A tool call is a document that matches the parameters of one of the request's tools; its tokens are the
arguments. A text of a prompt with a question mark and at least two whole numbers is a question as in GSM8K: the last
line of its answer is ``#### N``, and N is the sum of all whole numbers in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil, floor
from random import Random
from typing import Any

from specbench_client.openai_server_formats import RejectedBody

# Shape 4 gives lengths a standard deviation of half their mean, like chat answers, without a long tail.
LENGTH_SHAPE = 4.0

_WORDS = """
the a and of to in is it that for on with as by this from at or an be are was which one all can has more when if
will so no not but what there use each how their them then these some would make like into time look two write
go see number way could people than first water been call who oil its now find long down day did get come made
may part over new sound take only little work know place year live me back give most very after thing our just
name good sentence man think say great where help through much before line right too mean old any same tell boy
follow came want show also around form three small set put end does another well large must big even such
because turn here why ask went men read need land different home us move try kind hand picture again change off
play spell air away animal house point page letter mother answer found study still learn should world
"""
VOCABULARY: tuple[str, ...] = tuple(_WORDS.split())
TOKEN_IDS: dict[str, int] = {word: index for index, word in enumerate(VOCABULARY)}


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """The words of an answer, its finish reason, and the identity that seeds all its randomness.

    ``faults``: names of the faults that changed it.
    """

    identity: str
    words: tuple[str, ...]
    finish_reason: str
    faults: tuple[str, ...] = ()


def generate_text(
    model: str,
    prompt: str,
    max_tokens: int,
    *,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    sample: str | None = None,
    seed: int,
    mean_tokens: float,
) -> GeneratedText:
    """Return the complete answer; the engine then only determines its timing. ``sample`` is None for greedy decoding.

    The text depends on nothing else.
    """
    identity = sha256("\0".join((model, str(seed), prompt, sample or "")).encode()).hexdigest()
    natural = max(min_tokens, _natural_length(identity, mean_tokens))
    ends = natural <= max_tokens and not ignore_eos
    words = Random(f"words:{identity}").choices(VOCABULARY, k=natural if ends else max_tokens)  # noqa: S311 -- a simulation
    return GeneratedText(identity, tuple(words), "stop" if ends else "length")


def alter_text(answer: GeneratedText, *, start: int) -> GeneratedText:
    """Return the answer with different words and numbers from ``start`` on, and the same length."""
    shift = 1 + Random(f"reworded:{answer.identity}").randrange(len(VOCABULARY) - 1)  # noqa: S311 -- a simulation
    other = tuple(_altered(word, shift) for word in answer.words[start:])
    return replace(answer, words=answer.words[:start] + other)


def _altered(word: str, shift: int) -> str:
    """Return another word or number; tokens that are neither, such as JSON's punctuation, stay as they are."""
    if word in TOKEN_IDS:
        return VOCABULARY[(TOKEN_IDS[word] + shift) % len(VOCABULARY)]
    return str(int(word) + shift) if word.isdecimal() else word


def render(words: tuple[str, ...], *, first: bool) -> str:
    """Return the text of tokens; every word except the first of the answer has a leading space."""
    joined = " ".join(words)
    return joined if first or not words else f" {joined}"


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a text: its words, at least one."""
    return tuple(text.split()) or ("",)


def message_words(role: str, text: str) -> tuple[str, ...]:
    """Return the tokens of a chat message; the first one contains the role, which costs no token of its own."""
    first, *rest = split_tokens(text)
    return (f"{role}\0{first}", *rest)


def _natural_length(identity: str, mean_tokens: float) -> int:
    drawn = Random(f"length:{identity}").gammavariate(LENGTH_SHAPE, mean_tokens / LENGTH_SHAPE)  # noqa: S311 -- a simulation
    return max(1, round(drawn))


NUMBER_MARK = "\n####"
"""The token before the number of an answer to a question as in GSM8K."""
MAX_DEPTH = 16
"""Maximum depth of a document."""
SHALLOW = 8
"""From this depth, objects have only their required properties and arrays the fewest items."""
_WHOLE_NUMBER = re.compile(r"\d{1,9}")
_ANNOTATIONS = {"title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions"}
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "null": set[str](),
}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that a request prescribes: ``schema`` of the document, and the name of the tool that is called."""

    schema: Any = None
    tool: str | None = None
    named: bool = False
    """Whether the request names the tool."""


FREE_FORM = AnswerForm()


def prescribe(answer: GeneratedText, form: AnswerForm, texts: Sequence[str], max_tokens: int) -> GeneratedText:
    """Return the answer in its prescribed form. Raises RejectedBody for a schema that is not imitated."""
    if form.schema is not None:
        rng = Random(f"document:{answer.identity}")  # noqa: S311 -- a simulation
        words = tuple(_document(form.schema, rng).split(" "))
        reason = "stop" if len(words) <= max_tokens else "length"
        return replace(answer, words=words[:max_tokens], finish_reason=reason)
    number = expected_number(texts[-1]) if texts else None
    if number is None or len(answer.words) < len((NUMBER_MARK, number)):
        return answer
    return replace(answer, words=(*answer.words[:-2], NUMBER_MARK, str(number)))


def expected_number(question: str) -> int | None:
    """Return the number that answers a question as in GSM8K; None for any other text."""
    found = _WHOLE_NUMBER.findall(question) if "?" in question else []
    return sum(map(int, found)) if len(found) > 1 else None


def choose_tool(tools: Sequence[Any], choice: Any, prompt: str) -> AnswerForm:
    """Return the call of the tool that the request names, or of one that depends on the prompt."""
    functions = [tool.get("function") if isinstance(tool, Mapping) else None for tool in tools]
    by_name = {one["name"]: one for one in functions if isinstance(one, Mapping) and isinstance(one.get("name"), str)}
    if len(by_name) != len(tools):
        raise RejectedBody("Each of tools must be a function with a name of its own.", param="tools")
    if choice not in (None, "auto", "required", "none") and not isinstance(choice, Mapping):
        raise RejectedBody(f"The simulator does not imitate tool_choice={choice!r}.", param="tool_choice")
    if choice == "none" or not by_name:
        return FREE_FORM
    named = isinstance(choice, Mapping)
    name = (choice.get("function") or {}).get("name") if named else Random(f"tool:{prompt}").choice(list(by_name))  # noqa: S311 -- a simulation
    if name not in by_name:
        raise RejectedBody(f"tool_choice names {name!r}, which tools does not contain.", param="tool_choice")
    return AnswerForm(by_name[name].get("parameters") or {"type": "object"}, name, named)


def _document(schema: Any, rng: Random) -> str:
    try:
        return json.dumps(_value(schema, schema, rng, 0), ensure_ascii=False)
    except (TypeError, ValueError, AttributeError, IndexError) as error:  # for example a minimum above the maximum
        raise _not_imitated(f"this schema ({error})") from error


def _value(schema: Any, root: Any, rng: Random, depth: int) -> Any:
    """Return a value that matches the schema."""
    schema = _resolved(schema, root, rng, depth)
    if "const" in schema or "enum" in schema:
        _reject_unknown(schema, {"const", "enum"})
        return schema["const"] if "const" in schema else rng.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind not in _KEYWORDS:
        raise _not_imitated(f"the type {kind!r}")
    _reject_unknown(schema, _KEYWORDS[kind])
    if kind == "object":
        return _object(schema, root, rng, depth)
    return _array(schema, root, rng, depth) if kind == "array" else _scalar(kind, schema, rng)


def _resolved(schema: Any, root: Any, rng: Random, depth: int) -> Mapping[str, Any]:
    """Return the schema that a reference or a choice stands for."""
    for _ in range(MAX_DEPTH - depth):
        schema = {} if schema is True else schema
        if not isinstance(schema, Mapping):
            raise _not_imitated(f"{schema!r} as a schema")
        if "$ref" not in schema and "anyOf" not in schema:
            return schema
        _reject_unknown(schema, {"$ref", "anyOf"})
        if "$ref" in schema:
            schema = _referenced(schema["$ref"], root)
        else:
            flat = [one for one in schema["anyOf"] if "$ref" not in one] if depth >= SHALLOW else []
            schema = rng.choice(flat or schema["anyOf"])
    raise _not_imitated(f"a document of more than {MAX_DEPTH} levels")


def _reject_unknown(schema: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(schema) - _ANNOTATIONS - known - {"type"})
    if unknown:
        raise _not_imitated(f"{', '.join(unknown)} in {json.dumps(schema)}")


def _object(schema: Mapping[str, Any], root: Any, rng: Random, depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    names = dict.fromkeys([*properties, *required])
    shown = [name for name in names if name in required or depth < SHALLOW]
    return {name: _value(properties.get(name, True), root, rng, depth + 1) for name in shown}


def _array(schema: Mapping[str, Any], root: Any, rng: Random, depth: int) -> list[Any]:
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + 3), least + 3)
    length = least if depth >= SHALLOW else rng.randint(least, most)
    return [_value(schema.get("items", True), root, rng, depth + 1) for _ in range(length)]


def _scalar(kind: str, schema: Mapping[str, Any], rng: Random) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string":
        least = schema.get("minLength", 0)
        text = " ".join(rng.choices(VOCABULARY, k=rng.randint(1, 6) + least))
        return text[: schema.get("maxLength")]
    least = schema.get("minimum", min(0, schema.get("maximum", 0)))
    most = schema.get("maximum", least + 1000)
    if kind == "integer":
        return rng.randint(ceil(least), floor(most))
    return least + (most - least) * rng.random()


def _referenced(reference: Any, root: Any) -> Any:
    """Return the schema that a reference within the document names."""
    found = root
    for key in str(reference).removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not str(reference).startswith("#/") or found is None:
        raise _not_imitated(f"the reference {reference!r}")
    return found


def _not_imitated(what: str) -> RejectedBody:
    return RejectedBody(f"The simulator does not imitate {what}: omit it.", param="response_format")
