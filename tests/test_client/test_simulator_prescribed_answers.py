"""Answers of the simulator whose form is prescribed: valid, as each engine sends them, and the same with a drafter."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.drafter import Method
from specbench_client.simulator import SimulatorConfig, make_drafter
from specbench_client.simulator.errors import SimulatorBadRequest
from specbench_client.simulator.generated_text import AnswerForm, GeneratedText, expected_number, prescribe
from specbench_testing.simulator_client import (
    CHAT,
    COMPLETION,
    accepted_response,
    key_structure,
    post_request,
    serve_dialect,
)

BASELINE = SimulatorConfig(time_scale=0, output_mean_tokens=40)
DRAFTING = replace(BASELINE, drafter=make_drafter(Method.EAGLE3, 3))
DIALECTS = pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
SCHEMA: dict[str, Any] = {
    "$defs": {"tree": {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}},
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "share": {"type": "number", "minimum": 0.5, "maximum": 0.75},
        "kind": {"enum": ["two  spaces", "a\nline", 3, None]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
        "or": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"const": {"fixed": 1}}]},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["name", "age", "extra"],
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
BODY = {
    "model": "simulated", "temperature": 0, "max_tokens": 400, "ignore_eos": True,
    "messages": [{"role": "user", "content": "Tell me more"}],
}  # fmt: skip
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


def json_format(name: str, schema: Any = SCHEMA) -> dict[str, Any]:
    if name == "tensorrt-llm":
        return {"response_format": {"type": "json", "schema": schema}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}}


def document(identity: str, schema: Any, max_tokens: int = 10_000) -> GeneratedText:
    return prescribe(GeneratedText(identity, (), "length"), AnswerForm(schema), ("text",), max_tokens)


@given(st.text(max_size=8))
def test_documents_match_their_schema_and_are_their_tokens_joined(identity: str) -> None:
    answer = document(identity, SCHEMA)
    jsonschema.validate(json.loads(" ".join(answer.words)), SCHEMA)
    assert (answer, answer.finish_reason) == (document(identity, SCHEMA), "stop")
    cut = document(identity, SCHEMA, max_tokens=5)
    assert (cut.words, cut.finish_reason) == (answer.words[:5], "length")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a+"}, {"type": "integer", "multipleOf": 7}, {"oneOf": [{"type": "null"}]},
        {"type": "array", "uniqueItems": True}, {"type": "date"}, {"$ref": "#/$defs/none"}, {"$ref": "#"}, False, 3,
        {"type": "integer", "minimum": 3, "maximum": 2}, {"enum": []}, {"type": "array", "minItems": "two"},
        {"type": "object", "properties": {"next": {"$ref": "#/properties"}}, "required": ["next"]},
        {"$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}, "$ref": "#/$defs/a"},
    ],
)  # fmt: skip
def test_schemas_that_are_not_imitated_are_refused(schema: Any) -> None:
    with pytest.raises(SimulatorBadRequest, match="does not imitate"):
        document("one", schema)


@pytest.mark.parametrize(
    ("text", "number"),
    [("A has 16 eggs and sells 3. How many are left?", 19), ("Is 7 a prime?", None), ("Add 16 and 3.", None),
     ("What are $1,200 and 5%?", 206)],
)  # fmt: skip
def test_questions_as_in_gsm8k_are_answered_with_the_sum_of_their_numbers(text: str, number: int | None) -> None:
    assert expected_number(text) == number


@DIALECTS
async def test_every_dialect_answers_the_same_with_and_without_a_drafter(name: str) -> None:
    question = [{"role": "user", "content": "16 and 3, how many?"}]
    bodies = [{**BODY, **json_format(name)}, {**BODY, "tools": TOOLS}, {**BODY, "messages": question}]
    found = []
    for config in (BASELINE, DRAFTING):
        async with serve_dialect(name, config) as client:
            found.append([await accepted_response(client, body) for body in bodies])
    choices = [[answer["choices"][0] for answer in answers] for answers in found]
    for one, other in zip(*choices, strict=True):
        message = {**other["message"], "tool_calls": None}
        assert {**one["message"], "tool_calls": None} == message
        assert called(one) == called(other)
        assert one["finish_reason"] == other["finish_reason"]
    content, call, number = [choice["message"]["content"] for choice in choices[0]]
    jsonschema.validate(json.loads(content), SCHEMA)
    assert call in (None, "")
    assert number.splitlines()[-1] == "#### 19"
    assert [choice["finish_reason"] for choice in choices[0]] == ["stop", "tool_calls", "length"]


def called(choice: dict[str, Any]) -> list[Any]:
    return [each["function"] for each in choice["message"]["tool_calls"] or []]


@DIALECTS
async def test_a_streamed_tool_call_is_the_whole_one_in_parts(name: str) -> None:
    """Only the first part has the tool's name; all arguments together match the tool's schema."""
    tools = {"tools": TOOLS[:1]}
    async with serve_dialect(name, DRAFTING) as client:
        (whole,) = (await accepted_response(client, {**BODY, **tools}))["choices"]
        chunks = await accepted_response(client, {**STREAM, **tools})
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    parts = [each for choice in choices for each in choice["delta"].get("tool_calls") or []]
    assert len(parts) > 5
    assert {each["index"] for each in parts} == {0}
    assert [each["function"].get("name") for each in parts] == ["weather"] + [None] * (len(parts) - 1)
    assert [bool(each.get("id")) for each in parts] == [True] + [False] * (len(parts) - 1)
    arguments = "".join(each["function"]["arguments"] for each in parts)
    assert called(whole) == [{"name": "weather", "arguments": arguments}]
    jsonschema.validate(json.loads(arguments), SCHEMA)
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "tool_calls"
    assert not any(choice["delta"].get("content") for choice in choices)


FIRST_AND_NEXT_PART = {
    "vllm": ("id type index function{name arguments}", "index function{arguments}"),
    "sglang": ("id index type function{name arguments}", "id index type function{name arguments}"),
    "tensorrt-llm": ("id type index function{name arguments}", "type index function{arguments}"),
}


@DIALECTS
async def test_parts_of_a_tool_call_have_the_engines_keys(name: str) -> None:
    async with serve_dialect(name, BASELINE) as client:
        chunks = await accepted_response(client, {**STREAM, "tools": TOOLS[:1]})
    calls = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks if chunk["choices"]]
    first, following, *_ = [key_structure(each) for each in calls if each]
    assert (first, following) == FIRST_AND_NEXT_PART[name]


@DIALECTS
@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (COMPLETION, {"prompt": "Hello", "tools": TOOLS}, "tools"),
        (CHAT, {"response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, {"response_format": {"type": "structural_tag"}}, "response_format"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        (CHAT, {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
    ],
)
async def test_forms_that_are_not_imitated_are_refused(name: str, path: str, fields: Any, param: str) -> None:
    body = {key: value for key, value in BODY.items() if path == CHAT or key != "messages"}
    async with serve_dialect(name, BASELINE) as client:
        status, found = await post_request(client, {**body, **fields}, path)
        both, _ = await post_request(client, {**BODY, "tools": TOOLS, **json_format(name)})
    error = found.get("error", found)
    assert (status, both) == (400, 400)
    assert param in error["message"]


async def test_tensorrt_llm_takes_the_whole_json_schema_for_the_schema() -> None:
    """OpenAI's object around the schema would restrict nothing, so it is refused."""
    async with serve_dialect("tensorrt-llm", BASELINE) as client:
        status, found = await post_request(client, {**BODY, **json_format("vllm")})
        bare = {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}
        answer = await accepted_response(client, {**BODY, **bare})
        same = await accepted_response(client, {**BODY, **json_format("tensorrt-llm")})
    assert (status, "give {" in found["message"]) == (400, True)
    assert answer["choices"][0]["message"] == same["choices"][0]["message"]


@pytest.mark.parametrize(("name", "reason", "content"), [("vllm", "stop", ""), ("sglang", "tool_calls", None)])
async def test_a_named_tool_is_called(name: str, reason: str, content: str | None) -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    async with serve_dialect(name, BASELINE) as client:
        (found,) = (await accepted_response(client, {**BODY, "tools": TOOLS, "tool_choice": choice}))["choices"]
        (text,) = (await accepted_response(client, {**BODY, "tools": TOOLS, "tool_choice": "none"}))["choices"]
    assert called(found) == [{"name": "now", "arguments": "{}"}]
    assert (found["finish_reason"], found["message"]["content"]) == (reason, content)
    assert (called(text), len(text["message"]["content"].split())) == ([], 400)


async def test_tools_and_earlier_calls_are_part_of_the_prompt() -> None:
    async with serve_dialect("vllm", replace(BASELINE, prefix_cache_tokens=10_000)) as client:
        plain = await accepted_response(client, BODY)
        first = await accepted_response(client, {**BODY, "tools": TOOLS[:1]})
        message = first["choices"][0]["message"]
        later = [
            {"role": "user", "content": "Tell me more"},
            message,
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        ]
        second = await accepted_response(client, {**BODY, "tools": TOOLS[:1], "messages": later})
    assert first["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 20
    known = first["usage"]["total_tokens"] // 16 * 16
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == known
