"""Agent traces: sessions and OpenTelemetry spans become requests with recorded histories, waits and dependencies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.spec.dataset import Dataset, Source
from specbench_api.spec.workload import Workload
from specbench_client.chat import RequestStart
from specbench_client.dataset.inspection import TokenCounters, inspect_prompts, read_leniently
from specbench_client.dataset.prompt_entries import entry_columns, read_entries, read_prompt_rows, write_rows
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import Prompts, load_prompts, load_workload
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.source_detection import guess_source
from specbench_client.workload.sources.agent_traces import recorded_starts
from specbench_testing.agent_traces import SESSION, message, otlp, span, user

CALL = {"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "a.py"}}
RESULT = {"type": "tool_call_response", "id": "c1", "response": {"lines": 3}}


def write(tmp_path: Path, *rows: Any) -> Path:
    file = tmp_path / "traces.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def load(tmp_path: Path, *rows: Any, **declared: Any) -> Prompts:
    dataset = Dataset(source=Source.AGENT_TRACES, uri=str(write(tmp_path, *rows)), **declared)
    return load_prompts(dataset, tmp_path, with_tools=True)


def only(tmp_path: Path, *rows: Any) -> Prompt:
    (prompt,) = load(tmp_path, *rows).rows
    return prompt


def texts(prompt: Prompt) -> list[list[str]]:
    return [[f"{one.role}: {one.content}" for one in turn] for turn in prompt.turns]


def test_each_answer_is_a_request_with_everything_recorded_before_it(tmp_path: Path) -> None:
    prompt = only(tmp_path, SESSION)
    assert (prompt.id, prompt.category) == ("fix-1", "coding")
    history = ["system: You fix bugs.", "user: Fix a.py.", "assistant: ", "tool: x = 1", "tool: y = 2"]
    later = ["assistant: Shall I?", "user: Yes."]
    assert texts(prompt) == [history[:2], history, [*history, *later]]
    assert json.loads(prompt.turns[1][2].further)["tool_calls"][0]["function"]["arguments"] == {"path": "a.py"}
    assert json.loads(prompt.turns[1][3].further) == {"tool_call_id": "c1"}
    assert [bool(turn[0].tools) for turn in prompt.turns] == [True] * 3
    assert prompt.turns[0][1] is prompt.turns[2][1], "a history is stored once"
    assert prompt.starts == (RequestStart(), RequestStart((0,), 2.5), RequestStart((1,), 30.0))


def test_waits_are_unknown_without_times_and_think_time_replaces_them(tmp_path: Path) -> None:
    untimed = [{name: value for name, value in one.items() if name != "timestamp"} for one in SESSION["messages"]]
    assert [one.wait_s for one in only(tmp_path, {**SESSION, "messages": untimed}).starts] == [None] * 3

    file = write(tmp_path, SESSION)
    spec = {"name": "agents", "dataset": {"source": "agent-traces", "uri": str(file)}}
    spec["chatTemplate"] = {"appliedBy": "Client"}
    recorded, replaced = (
        load_workload(Workload.model_validate({**spec, **further}), tmp_path)
        for further in ({}, {"thinkTime": {"seconds": 1}})
    )
    assert [one.wait_s for one in recorded.rows[0].starts] == [None, 2.5, 30.0]
    assert [one.wait_s for one in replaced.rows[0].starts] == [None] * 3
    assert recorded.fingerprint != replaced.fingerprint

    late = [*SESSION["messages"][:-2], {"role": "user", "content": "Hi", "timestamp": 1_000_000}]
    write(tmp_path, {**SESSION, "messages": late})
    with pytest.raises(
        BadInput, match=r"request 2 of the session 'fix-1' waits .* s in the recording, and at most 3,600"
    ):
        load_workload(Workload.model_validate(spec), tmp_path)


def test_system_prompt_begins_every_request(tmp_path: Path) -> None:
    spec = {"name": "agents", "dataset": {"source": "agent-traces", "uri": str(write(tmp_path, SESSION))}}
    spec |= {"chatTemplate": {"appliedBy": "Client"}, "systemPrompt": {"text": "Be kind."}}
    (prompt,) = load_workload(Workload.model_validate(spec), tmp_path).rows
    assert {turn[0].content for turn in prompt.turns} == {"Be kind.\n\nYou fix bugs."}


def test_spans_of_a_trace_are_one_session_with_its_overlaps(tmp_path: Path) -> None:
    history = [user("Fix it."), message("assistant", CALL), message("tool", RESULT)]
    planner = span("t1", 0.0, 2.0, history[:1], conversation="chat-9")
    tool = span("t1", 2.0, 3.0, None, operation="execute_tool")
    one, two = span("t1", 3.0, 8.0, history), span("t1", 3.5, 6.0, [user("Search.")], instructions="You search.")
    last = span("t1", 9.0, 9.5, [*history, message("assistant", {"type": "reasoning", "content": "?"}), user("And?")])
    with pytest.raises(BadInput, match="has an empty message"):
        load(tmp_path, otlp(planner), otlp(last))

    last = span("t1", 9.0, 9.5, [user("Sum up.")], as_text=True)
    other = span("t2", 1.0, 2.0, [user("Hello")])
    found = load(tmp_path, otlp(tool, two, one), otlp(last), otlp(planner, other)).rows
    assert [prompt.id for prompt in found] == ["chat-9", "t2"]
    assert texts(found[0]) == [
        ["user: Fix it."],
        ["user: Fix it.", "assistant: ", 'tool: {"lines": 3}'],
        ["system: You search.", "user: Search."],
        ["user: Sum up."],
    ]
    assert [one.after for one in found[0].starts] == [(), (0,), (0,), (1, 2)]
    assert [one.wait_s for one in found[0].starts] == pytest.approx([0.0, 1.0, 1.5, 1.0])


def test_inspection_counts_requests_and_what_they_share(tmp_path: Path) -> None:
    opening, long = user("x" * 30), user("y" * 70)
    spans = [span("t1", 0.0, 1.0, [opening]), span("t1", 2.0, 9.0, [opening, long]), span("t1", 3.0, 4.0, [opening])]
    rows, declared = read_prompt_rows(write(tmp_path, SESSION, otlp(*spans)))
    found = inspect_prompts("traces", read_leniently(rows, declared), TokenCounters()).sessions
    assert found is not None
    assert (found.sessions, found.requests, found.overlapping, found.tool_results) == (2, 6, 1, 2)
    assert found.waited_s == 2.5 + 30 + 1 + 2
    lengths = [
        [len(one.content) + len(one.further) + len(one.tools) for one in turn]
        for turn in load(tmp_path, SESSION).rows[0].turns
    ]
    again = sum(lengths[0]) + sum(lengths[1]) + 2 * 30
    assert found.reusable_share == again / (sum(map(sum, lengths)) + 30 + 100 + 30)


def test_selected_sessions_are_written_as_sessions(tmp_path: Path) -> None:
    spans = [span("t1", 0.0, 1.0, [user("Hi")]), span("t1", 0.5, 2.0, [user("Ho")], instructions="Sing.")]
    file = write(tmp_path, SESSION, otlp(*spans))
    entries, before = read_entries(file), load(tmp_path, SESSION, otlp(*spans))
    write_rows(file, [entry_columns(entry) for entry in entries])
    after = load_prompts(Dataset(source=guess_source(str(file)), uri=str(file)), tmp_path, with_tools=True)
    assert after.rows == before.rows
    assert after.fingerprint == before.fingerprint


def test_the_fingerprint_covers_messages_and_starts(tmp_path: Path) -> None:
    requests = [{"messages": [{"role": "user", "content": text}], "start": 0, "end": 1} for text in "ab"]
    changed = [requests, [requests[0], {**requests[1], "start": 0.5}], [requests[0], {**requests[0], "start": 0.5}]]
    found = {load(tmp_path, {"id": "a", "requests": each}).fingerprint for each in changed}
    assert len(found) == 3


def test_a_document_over_several_lines_and_a_file_of_documents_are_the_same(tmp_path: Path) -> None:
    document = otlp(span("t1", 0.0, 1.0, [user("Hi")]), span("t1", 2.0, 3.0, [user("Ho")]))
    assert load(tmp_path, json.dumps(document, indent=2)) == load(tmp_path, document)


def test_a_request_that_two_libraries_record_is_read_once(tmp_path: Path) -> None:
    agent = span("t1", 0.0, 9.0, None, operation="invoke_agent")
    outer = span("t1", 1.0, 3.0, [user("outer")], parent=agent)
    wrapper = span("t1", 1.25, 2.75, None, operation="wrapped", parent=outer)
    inner = span("t1", 1.5, 2.5, [user("inner")], parent=wrapper)
    after = span("t1", 4.0, 5.0, [user("after")], parent=agent)
    prompt = only(tmp_path, otlp(inner, wrapper, after), otlp(outer, agent))
    assert texts(prompt) == [["user: inner"], ["user: after"]]


def test_a_span_that_is_written_twice_is_one_request(tmp_path: Path) -> None:
    first, second = (span("t1", start, start + 1, [user("Hi")]) for start in (0.0, 2.0))
    assert len(only(tmp_path, otlp(first, second), otlp(first)).starts) == 2


def test_a_request_of_a_tool_or_an_agent_inside_a_request_does_not_replace_it(tmp_path: Path) -> None:
    outer = span("t1", 0.0, 9.0, [user("Search.")])
    tool = span("t1", 1.0, 8.0, None, operation="execute_tool", parent=outer)
    inner = span("t1", 2.0, 3.0, [user("Summarise.")], parent=tool)
    assert texts(only(tmp_path, otlp(outer, tool, inner))) == [["user: Search."], ["user: Summarise."]]


def test_spans_that_contain_each_other_lose_no_request(tmp_path: Path) -> None:
    first, second = (span("t1", start, start + 1, [user("Hi")]) for start in (0.0, 2.0))
    rows = [{**one, "parentSpanId": other["spanId"]} for one, other in ((first, second), (second, first))]
    assert len(only(tmp_path, otlp(*rows)).starts) == 2


def test_content_may_be_in_an_event_and_tools_in_either_form(tmp_path: Path) -> None:
    flat = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    nested = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    spans = [
        span(name, 0.0, 1.0, [user("Hi")], in_event=True, tools=[tool]) for name, tool in (("t1", flat), ("t2", nested))
    ]
    first, second = load(tmp_path, otlp(*spans)).rows
    assert json.loads(first.turns[0][0].tools) == [nested]
    assert first.turns == second.turns


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), min_size=1, max_size=12))
def test_what_had_ended_before_a_request_has_ended_before_it_again(drawn: list[tuple[int, int]]) -> None:
    spans = sorted((float(start), float(start + length)) for start, length in drawn)
    starts = recorded_starts(spans)
    follows: list[set[int]] = []
    for start in starts:
        follows.append(set(start.after).union(*(follows[each] for each in start.after)))
    for number, (begun, _) in enumerate(spans):
        assert follows[number] == {at for at in range(number) if spans[at][1] <= begun}
    replayed: list[float] = []
    for start, (_, _) in zip(starts, spans, strict=True):
        before = max((replayed[each] + spans[each][1] - spans[each][0] for each in start.after), default=spans[0][0])
        replayed.append(before + (start.wait_s or 0.0))
    assert replayed == [begun for begun, _ in spans], "an engine as fast as the recorded one has the recorded times"


NO_ROLE = {**SESSION, "messages": [{"content": "x"}, {"role": "assistant", "content": "y"}]}
TIMED = {"messages": [{"role": "user", "content": "Hi"}], "start": 5, "end": 4}
BROKEN: list[tuple[Any, str]] = [
    ({"id": "a", "text": "x"}, "line 2: messages and requests are missing: give"),
    ({"id": "a", "messages": []}, "line 2: messages is not a list of objects with at least one element"),
    (NO_ROLE, "line 2: messages has no answer, which follows a message of role user or tool"),
    ({**SESSION, "messages": [*SESSION["messages"][:-1], {"role": "user", "content": "x", "timestamp": 1}]},
     "line 2: messages[7] is 41.5 s earlier than messages[5]: correct their times"),
    ({**SESSION, "messages": [*SESSION["messages"], {"role": "user", "content": "x", "timestamp": "yesterday"}]},
     "line 2: messages[8].timestamp is 'yesterday', which is no time: give seconds or ISO 8601"),
    ({"id": "a", "requests": [{**TIMED, "end": "soon"}]}, "line 2: requests[0].end is 'soon', which is no time: give"),
    ({"id": "a", "requests": [TIMED]}, "line 2: requests[0] ends 1 s before it starts: correct start or end"),
    ({"id": "a", "requests": [{**TIMED, "end": 9}, {"messages": TIMED["messages"]}]},
     "line 2: requests[1] has no start and end, but others have: give both for all, or none"),
    (SESSION, "line 2: the id 'fix-1' is already used by line 1"),
    ({"resourceSpans": {"scopeSpans": []}}, "line 2: is not OTLP JSON: resourceSpans is not a list of objects: export"),
    ({"resourceSpans": [{"scopeSpans": 3}]}, "line 2: is not OTLP JSON: scopeSpans is not a list of objects: export"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "attributes": 3}), "line 2: is not OTLP JSON: attributes are not"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "traceId": ["t"]}), "line 2: is not OTLP JSON: a traceId, spanId"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "parentSpanId": {"a": 1}}), "line 2: is not OTLP JSON: a traceId,"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "startTimeUnixNano": "9" * 400}), "line 2: span t-0.0 does not follow"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "attributes": [{"key": "a", "value": {"intValue": float("inf")}}]}),
     "line 2: is not OTLP JSON: attributes are not"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "spanId": ""}), "line 2: is not OTLP JSON: a traceId, spanId or"),
    (otlp({**span("t", 0.0, 1.0, [user("Hi")]), "startTimeUnixNano": "1700000000000"}),
     "line 2: span t-0.0: startTimeUnixNano is 1700000000000, which is before 1974: OTLP has nanoseconds"),
    ({"id": "a", "requests": [{**TIMED, "start": 1_700_000_000_000, "end": 1_700_000_001_000}]},
     "line 2: requests[0].start is 1700000000000, which is after the year 5000 in seconds: times are in seconds"),
    (otlp(span("t", 0.0, 1.0, None, operation="execute_tool")),
     "line 2: none of 1 spans has gen_ai.operation.name chat or generate_content"),
    (otlp(span("t", 0.0, 1.0, None)), "line 2"),
    (otlp(span("t", 0.0, 1.0, '[{"role"')), "line 2: span t-0.0: gen_ai.input.messages is not valid JSON"),
    (otlp(span("t", 0.0, 1.0, [{"role": "user"}])),
     "line 2: span t-0.0 does not follow the semantic conventions for GenAI: KeyError: 'parts'"),
    (otlp(span("t", 0.0, 1.0, [message("user", {"type": "uri", "uri": "x"})])), "has parts of type uri"),
    (otlp(span("t", 0.0, 1.0, [message("assistant", {"type": "text", "content": "x"})])),
     "does not end with a message of role user or tool"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "problem"), BROKEN, ids=range(len(BROKEN)))
def test_a_session_that_cannot_be_replayed_is_reported_with_its_line(tmp_path: Path, row: Any, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        load(tmp_path, SESSION, row)
    assert problem in str(error.value)
    assert "line 2" in str(error.value)


@pytest.mark.parametrize("row", [SESSION, {"requests": [TIMED]}, otlp()], ids=["messages", "requests", "spans"])
def test_traces_are_recognised(tmp_path: Path, row: dict[str, Any]) -> None:
    assert guess_source(str(write(tmp_path, row))) is Source.AGENT_TRACES


def test_requests_that_end_with_a_question_are_no_sessions(tmp_path: Path) -> None:
    asked = {"id": "a", "messages": SESSION["messages"][:2]}
    assert guess_source(str(write(tmp_path, asked))) is Source.JSONL
