"""The simulator's answers: those of a prescribed form, and faults, each with its documented effect."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.openai_server_formats import RejectedBody
from specbench_client.simulator import (
    SimulatedEngine,
    SimulatedMethod,
    SimulatorConfig,
    SimulatorServer,
    choose_dialect,
    make_drafter,
    parse_faults,
)
from specbench_client.simulator.faults import AnswerCircumstances
from specbench_client.simulator.generated_text import (
    AnswerForm,
    GeneratedText,
    expected_number,
    generate_text,
    prescribe,
)
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.simulator_client import (
    CHAT,
    COMPLETION,
    accepted_response,
    key_structure,
    post_request,
    serve_dialect,
)

BASELINE = SimulatorConfig(time_scale=0, output_mean_tokens=40)
DRAFTING = replace(BASELINE, drafter=make_drafter(SimulatedMethod.EAGLE3, 3))
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
    with pytest.raises(RejectedBody, match="does not imitate"):
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


def test_faults_of_a_stream_begin_at_their_number_of_chunks() -> None:
    faults = parse_faults(("malformed-sse=2", "reset-after=2", "stall=3"))
    assert [faults.garbles(sent) for sent in range(4)] == [False, True, False, False]
    assert [faults.resets(sent) for sent in range(4)] == [False, False, True, True]
    assert [faults.stalls(sent) for sent in range(4)] == [False, False, False, True]


def test_cold_steps_become_faster_with_engine_time() -> None:
    faults = parse_faults(("cold=3",))
    assert [round(faults.slowdown(seconds), 2) for seconds in (0, 20, 60)] == [3.0, 1.74, 1.1]


@pytest.mark.parametrize(
    ("faults", "reused"), [((), 64), (("reuse-last-block",), 48), (("reuse-lost=0.25",), 48), (("reuse-lost",), 0)]
)
def test_reuse_faults_lose_cache_hits_only_with_a_drafter(faults: tuple[str, ...], reused: int) -> None:
    parsed = parse_faults(faults)
    assert (parsed.reused_tokens(64, speculates=True), parsed.reused_tokens(64, speculates=False)) == (reused, 64)
    assert parsed.reused_tokens(0, speculates=True) == 0


@pytest.mark.parametrize(
    ("fault", "caches", "left"),
    [("acceptance-decay=0.4", False, 0.8), ("acceptance-decay-cached=0.4", True, 0.8),
     ("acceptance-decay-cached=0.4", False, 1.0)],
)  # fmt: skip
def test_acceptance_decay_lowers_the_accepted_tokens_by_its_share(fault: str, caches: bool, left: float) -> None:
    faults = parse_faults((fault,))
    first = (0.9, 0.8, 0.5)

    def accepted(hours: float) -> float:
        left_over = faults.decayed(first, hours * 3600, caches=caches)
        return sum(prod(left_over[:depth]) for depth in (1, 2, 3))

    assert accepted(0) == pytest.approx(0.9 + 0.72 + 0.36)
    assert accepted(6) == pytest.approx(left * accepted(0))
    assert accepted(1000) == (0 if left < 1 else accepted(0))


UNDER_LOAD = AnswerCircumstances(max_tokens=200, draft_tokens=3, running=8)
QUESTIONS = [f"{number} and 3, how many?" for number in range(400)]


def answers(*faults: str, at: AnswerCircumstances = UNDER_LOAD, schema: Any = None) -> list[GeneratedText]:
    """The answers to 400 questions."""
    parsed = parse_faults(faults)
    found = []
    for question in QUESTIONS:
        text = generate_text("simulated", question, at.max_tokens, seed=0, mean_tokens=60)
        found.append(parsed.rewrite(prescribe(text, AnswerForm(schema), (question,), at.max_tokens), at))
    return found


def changed_share(*faults: str, at: AnswerCircumstances = UNDER_LOAD, schema: Any = None) -> float:
    """The share of answers that differ from those without faults; each one that does names its fault."""
    pairs = list(zip(answers(at=at, schema=schema), answers(*faults, at=at, schema=schema), strict=True))
    names = [fault.partition("=")[0] for fault in faults]
    assert all(list(other.faults) == (names if one != replace(other, faults=()) else []) for one, other in pairs)
    return sum(one.words != other.words or one.finish_reason != other.finish_reason for one, other in pairs) / 400


@pytest.mark.parametrize(
    ("fault", "at", "share"),
    [
        ("loops=0.2", replace(UNDER_LOAD, draft_tokens=0), 0.2),
        ("empty=0.2", replace(UNDER_LOAD, draft_tokens=0), 0.2),
        ("finish-reason=0.2", replace(UNDER_LOAD, draft_tokens=0), 0.2),
        ("wrong-deep=2", UNDER_LOAD, 0.5),
        ("wrong-deep=3", UNDER_LOAD, 0),
        ("restored-damage=0.5", replace(UNDER_LOAD, restored_tokens=400), 0.2),
        ("restored-damage=0.5", replace(UNDER_LOAD, restored_tokens=800), 0.4),
        ("restored-damage=0.5", UNDER_LOAD, 0),
        ("broken-tool-calls=0.2", replace(UNDER_LOAD, is_tool_call=True), 0.2),
        ("broken-tool-calls", UNDER_LOAD, 0),
        ("corrupt-json=8", UNDER_LOAD, 0),
    ],
)
def test_content_faults_change_their_share_of_answers(fault: str, at: AnswerCircumstances, share: float) -> None:
    assert changed_share(fault, at=at) == pytest.approx(share, abs=0.06 if share else 0)


@pytest.mark.parametrize("schema", [{"properties": {"a": {"type": "array"}, "b": {"enum": [1, 2]}}}, {"enum": [5]}, {}])
def test_corrupt_json_is_no_json_from_its_number_of_requests_on(schema: Any) -> None:
    """Some documents end in their middle and others begin again there; without a drafter all are correct."""
    at = replace(UNDER_LOAD, is_document=True)
    for one in answers("corrupt-json=8", at=at, schema=schema):
        with pytest.raises(json.JSONDecodeError):
            json.loads(" ".join(one.words))
    assert changed_share("corrupt-json=9", at=at, schema=schema) == 0
    assert changed_share("corrupt-json=8", at=replace(at, draft_tokens=0), schema=schema) == 0


def test_loops_repeat_a_short_period_up_to_the_limit() -> None:
    for one in answers("loops"):
        assert (len(one.words), one.finish_reason) == (200, "length")
        tail = one.words[-64:]
        assert any(tail[period:] == tail[:-period] for period in range(1, 9))


def test_wrong_answers_have_another_number() -> None:
    for one, other in zip(
        answers(), answers("restored-damage=1000", at=replace(UNDER_LOAD, restored_tokens=16)), strict=True
    ):
        assert one.words[-2] == other.words[-2] == "\n####"
        assert int(one.words[-1]) != int(other.words[-1])
        assert not set(zip(one.words[:-2], one.words[:-2], strict=True)) & set(zip(one.words, other.words, strict=True))


class BrokenClock:
    """Returns the time once, and then fails."""

    readings = 0

    def __call__(self) -> int:
        self.readings += 1
        if self.readings > 1:
            raise RuntimeError("no time")
        return 1


async def test_error_in_the_engine_loop_ends_the_process() -> None:
    """Clients must not wait forever for a dead loop."""
    config, exits = SimulatorConfig(time_scale=0), list[int]()
    engine = SimulatedEngine(config, clock=BrokenClock())
    server = SimulatorServer(engine, choose_dialect("vllm", config), None, exits.append)
    async with TestClient(ClosingTestServer(server.application())) as client, client.get("/health") as response:
        assert response.status == 500
    assert exits == [1]
