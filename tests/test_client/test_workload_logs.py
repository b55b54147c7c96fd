"""Request logs in common formats: the messages that are sent, and recorded statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.errors import BadInput
from specbench_client.load.arrivals import load_trace
from specbench_client.workload.prompts import Prompts, load_prompts
from specbench_client.workload.row_validation import TOOLS
from specbench_testing.present import present

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
LOGGED_REQUEST = {"model": "m", "messages": MESSAGES, "temperature": 0.7, "max_tokens": 100}
ANSWER = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 34}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "flat": {**LOGGED_REQUEST, "usage": ANSWER["usage"], "timestamp": 1700000000.5},
    "pairs": {"timestamp": "2023-11-14T22:13:20.5Z", "request": LOGGED_REQUEST, "response": ANSWER},
    "pairs as text": {"ts": 1700000000.5, "request": json.dumps(LOGGED_REQUEST), "response": json.dumps(ANSWER)},
    "pairs with bodies": {"created": 1700000000.5, "request": {"body": LOGGED_REQUEST}, "response": {"body": ANSWER}},
    "batch": {
        "custom_id": "r1",
        "method": "POST",
        "body": {**LOGGED_REQUEST, "created": 1700000000.5},
        "response": ANSWER,
    },
    "helicone": {
        "request_created_at": "2023-11-14T22:13:20.500+00:00",
        "request_body": LOGGED_REQUEST,
        "response_body": ANSWER,
    },
    "langfuse": {
        "startTime": "2023-11-14T22:13:20.500Z",
        "input": MESSAGES,
        "output": "Because.",
        "modelParameters": {"temperature": 0.7, "max_tokens": 100},
        "usage": {"input": 12, "output": 34},
    },
    "langfuse, wrapped": {
        "startTime": "2023-11-14T22:13:20.500Z",
        "input": {"messages": MESSAGES},
        "modelParameters": {"temperature": 0.7, "max_tokens": 100},
        "usage": {"input": 12, "output": 34},
    },
}


def load_log(tmp_path: Path, *lines: dict[str, Any], **declared: Any) -> Prompts:
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_prompts(Dataset(source=Source.OPENAI_LOGS, uri="log.jsonl", **declared), tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_and_statistics_are_read_from_every_log_format(layout: str, tmp_path: Path) -> None:
    found = load_log(tmp_path, LAYOUTS[layout], {**LAYOUTS[layout], "custom_id": "r2", "category": "chat"})

    sent = [(message.role, message.content) for message in found.rows[0].turns[0]]
    assert sent == [("system", "Be brief."), ("user", "Why?")]
    assert len(found.rows[0].turns) == 1, "logged answers stay in the history of one turn"
    recorded = present(present(found.coverage).recorded)
    assert (recorded.input_tokens_median, recorded.output_tokens_median, recorded.max_tokens_median) == (12, 34, 100)
    assert (recorded.temperatures, recorded.seconds) == ({"0.7": 2}, 0)


def test_log_without_statistics_leaves_them_missing(tmp_path: Path) -> None:
    found = load_log(tmp_path, {"messages": MESSAGES}, {"prompt": "Once upon"})

    assert found.rows[1].turns[0][0].content == "Once upon"
    assert found.coverage is not None
    assert present(found.coverage.recorded).to_dict() == {"temperatures": {"default": 2}}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"tools": [{"type": "function"}]}, TOOLS),
        ({"tools": "all"}, "offers tools in an unknown format"),
        ({"functions": [{"name": "f"}]}, "offers functions, the older form of tools, which is not supported"),
        (
            {"messages": [*MESSAGES, {"role": "assistant", "content": "x"}]},
            "does not end with a message of role user or tool",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}, *MESSAGES]},
            "has tool calls without a name, or with arguments that are not valid JSON",
        ),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, *MESSAGES]}, TOOLS),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
            "has content in several parts, or without text, which is not supported",
        ),
        ({"messages": [{"role": "user", "content": None}]}, "has an empty message"),
    ],
)
def test_unsupported_request_is_reported_as_unusable(edit: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_log(tmp_path, LOGGED_REQUEST, {**LOGGED_REQUEST, **edit})
    assert f"1 of 2 rows have no text that can be sent: line 2\n  1 x {reason}\n" in str(caught.value)
    assert "dataset prepare" not in str(caught.value)

    coverage = present(load_log(tmp_path, LOGGED_REQUEST, {**LOGGED_REQUEST, **edit}, allow_missing=True).coverage)

    assert (coverage.requested, coverage.used, coverage.unusable) == (2, 1, {reason: 1})


def test_tools_and_calls_are_sent_with_a_client_side_template(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"b": 1, "a": 2}}}]
    result = {"role": "tool", "tool_call_id": "c1", "content": ""}
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    (tmp_path / "log.jsonl").write_text(json.dumps({"messages": messages, "tools": tools}) + "\n")
    declared = Dataset(source=Source.OPENAI_LOGS, uri="log.jsonl")

    (turn,) = load_prompts(declared, tmp_path, with_tools=True).rows[0].turns

    assert turn[0].tools == json.dumps(tools), "key order is preserved"
    called = {"content": None, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {"at": "x"}}}]}
    assert [json.loads(one.further or "{}") for one in turn] == [{}, {}, called, {"tool_call_id": "c1"}]


def test_content_with_one_text_part_is_that_text(tmp_path: Path) -> None:
    found = load_log(tmp_path, {"messages": [{"role": "user", "content": [{"type": "text", "text": " a "}]}]})
    assert found.rows[0].turns[0][0].content == " a "


def test_log_is_also_an_arrival_trace(tmp_path: Path) -> None:
    lines = [{**LOGGED_REQUEST, "timestamp": f"2026-01-31T09:30:0{second}Z"} for second in (0, 2, 5)]
    found = load_log(tmp_path, *lines)

    times = load_trace("log.jsonl", tmp_path)

    assert len(found.rows) == times.size
    assert (times - times[0]).tolist() == [0, 2, 5]
    assert found.coverage is not None
    assert present(found.coverage.recorded).seconds == 5
