"""Answers are checked for what the workload demands and for general flaws, in processes of their own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specbench_api.spec.answers import AnswerMatch, Answers
from specbench_api.spec.engine import SIMULATED_DIALECTS, DialectName, Engine, EngineKind
from specbench_api.spec.workload import Output, Workload
from specbench_client.cooperative_tasks import NICENESS
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.documents.record import AnswerFlaw, Record
from specbench_client.errors import BadInput
from specbench_client.load import judge_child, judge_parent
from specbench_client.load.answer_rules import LOOP_TOKENS, flaw_of, unmet_demand
from specbench_client.load.judge_child import JudgeStart
from specbench_client.load.judge_parent import MAX_OVERRUNS, AnswerJudge, JudgeLost
from specbench_client.simulator import (
    SimulatedEngine,
    SimulatedMethod,
    SimulatorConfig,
    SimulatorServer,
    TruthFile,
    choose_dialect,
    make_drafter,
    parse_faults,
)
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.workload.prompts import Prompts, load_workload
from specbench_client.workload.row_parsing import Prompt, extract_answer
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.conversation_turns import blank_record, context, row
from specbench_testing.load_loops import LoopDriver

PERSON: dict[str, Any] = {
    "$defs": {"name": {"type": "string", "minLength": 1}},
    "type": "object",
    "properties": {"name": {"$ref": "#/$defs/name"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PERSON}},
    {"type": "function", "function": {"name": "now"}},
]
NUMBER, CHOICE, EXACT = AnswerMatch


@pytest.mark.parametrize(
    ("match", "text", "found"),
    [
        (NUMBER, "She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\n#### 18", "18"),
        (NUMBER, "#### 7\nNo, wait.\n#### $1,080.50 a day", "1080.5"),
        (NUMBER, "So it takes 3 days and costs $1,234,567.00.", "1234567"),
        (NUMBER, "the answer is 18.", "18"),
        (NUMBER, "\\boxed{-42}", "-42"),
        (NUMBER, "a loss of \u22127", "-7"),
        (NUMBER, "pages 10-15", "15"),
        (NUMBER, "it is (-3)", "-3"),
        (NUMBER, "0.50 or .5", "0.5"),
        (NUMBER, "007, -0.0", "0"),
        (NUMBER, "12 eggs\n#### none", "12"),
        (NUMBER, "1,2,3", "3"),
        (NUMBER, "9" * 400, "9" * 400),
        (NUMBER, "#### 3. Compute the total\n5*6=30\nThe answer is 30", "30"),
        (NUMBER, "#### 3) Total\n#### Step 4: 5*6=30", "30"),
        (NUMBER, "#### **12 eggs**.\nThat is for 3 days.", "12"),
        (NUMBER, "final answer: 1e3, 2.5E-2x", "2"),
        (NUMBER, "final answer: 1.5e3", "1500"),
        (NUMBER, "#### -2E-2", "-0.02"),
        (NUMBER, "no number at all", None),
        (NUMBER, "", None),
        (CHOICE, "B", "B"),
        (CHOICE, "Answer: I think it is B", "B"),
        (CHOICE, "The correct answer is option B. A is wrong", "B"),
        (CHOICE, "Answer: Choice **C**. A is wrong", "C"),
        (CHOICE, "B is what I chose", "B"),
        (CHOICE, "A train moves: D", "D"),
        (CHOICE, "D? A train moves", "D"),
        (CHOICE, "A is right", "A"),
        (CHOICE, "The answer is A because B is wrong", "A"),
        (CHOICE, "The answer is (b), not A", "B"),
        (CHOICE, "The answer is [j]", "J"),
        (CHOICE, "the answer is a bit long: C", "C"),
        (CHOICE, "(C)", "C"),
        (CHOICE, "A is tempting. The correct answer is (D)", "D"),
        (CHOICE, "The answer is A... no. The answer is **B**, not C.", "B"),
        (CHOICE, "Answer: $\\boxed{J}$", "J"),
        (CHOICE, "ANSWER: E", "E"),
        (CHOICE, "I think H. Because it's K.", "H"),
        (CHOICE, "The answer is a bee.", None),
        (CHOICE, "Both BC and ABBA", None),
        (EXACT, "  Paris \n", "Paris"),
        (EXACT, " ", None),
    ],
)
def test_graders_find_the_answer_in_a_text(match: AnswerMatch, text: str, found: str | None) -> None:
    assert extract_answer(text, match) == found


def flaw(answers: dict[str, Any], text: str = "", *calls: ToolCall, expected: str = "18", cut: bool = False) -> Any:
    finish = "length" if cut else "stop"
    answer = EngineAnswer(text, (), RequestAcceptance(), finish_reason=finish, tool_calls=calls)
    return unmet_demand(Answers.model_validate(answers), expected, answer)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "Ada", "age": 36}', None),
        (' {"age": 0, "name": "A", "more": null}\n', None),
        ('{"name": "Ada", "age": 36', AnswerFlaw.INVALID_JSON),
        ('{"name": "Ada", "age": 36}}', AnswerFlaw.INVALID_JSON),
        ('{"name": "Ada", {"name": "Ada", "age": 36}', AnswerFlaw.INVALID_JSON),
        ("[" * 100_000, AnswerFlaw.INVALID_JSON),
        ("", AnswerFlaw.INVALID_JSON),
        ('{"name": "Ada", "age": NaN}', AnswerFlaw.INVALID_JSON),
        ("36", AnswerFlaw.SCHEMA_MISMATCH),
        ('{"name": "", "age": 36}', AnswerFlaw.SCHEMA_MISMATCH),
        ('{"name": "Ada", "age": 121}', AnswerFlaw.SCHEMA_MISMATCH),
    ],
)
def test_documents_are_parsed_and_validated(text: str, found: AnswerFlaw | None) -> None:
    assert flaw({"jsonSchema": PERSON}, text) == found
    assert flaw({"jsonSchema": PERSON}, text, cut=True) == (found and AnswerFlaw.UNFINISHED)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#"}, "1"),
        ({"multipleOf": 0.5}, "1" + "0" * 400),
        ({"$defs": {"a": {"$id": "b", "$ref": "#/$defs/c"}, "c": {}}, "$ref": "#/$defs/a"}, "1"),
    ],
)
def test_what_cannot_be_compared_does_not_match(schema: dict[str, Any], text: str) -> None:
    assert flaw({"jsonSchema": schema}, text) is AnswerFlaw.SCHEMA_MISMATCH


VALID = ToolCall("weather", '{"name": "Ada", "age": 36}')


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([], AnswerFlaw.NO_TOOL_CALL),
        ([VALID], None),
        ([VALID, ToolCall("now", "")], None),
        ([ToolCall("now", '{"zone": "UTC"}')], None),
        ([ToolCall("weather", "")], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([ToolCall("whether", "{}")], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([ToolCall("now", "[1]")], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([ToolCall("now", "null")], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([ToolCall("", "{}")], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([VALID, ToolCall("weather", '{"name": "Ada"}')], AnswerFlaw.TOOL_CALL_MISMATCH),
        ([ToolCall("weather", '{"name": "Ada", ')], AnswerFlaw.INVALID_JSON),
    ],
)
def test_tool_calls_are_parsed_and_validated(calls: list[ToolCall], found: AnswerFlaw | None) -> None:
    assert flaw({"tools": TOOLS}, "Let me see.", *calls) == found
    assert flaw({"tools": TOOLS}, "", *calls, cut=True) == (found and AnswerFlaw.UNFINISHED)


@pytest.mark.parametrize("word", ["const", "default", "enum", "examples"])
def test_only_schemas_have_references(word: str) -> None:
    value = {"$ref": "#/$defs/none"}
    shown = [value] if word in ("enum", "examples") else value
    assert Answers(json_schema={"type": "object", word: shown}).json_schema
    with pytest.raises(ValueError, match="leads to nothing in this schema"):
        Answers(json_schema={"type": "object", "properties": {word: value}})


def test_answers_are_compared_with_the_expected_one() -> None:
    expected = {"expected": {"match": "Number"}}
    assert flaw(expected, "It is 18.0.") is None
    assert flaw(expected, "It is 19.") is AnswerFlaw.WRONG_ANSWER
    assert flaw(expected, "None.") is AnswerFlaw.WRONG_ANSWER
    assert flaw(expected, "16 - 3 is", cut=True) is AnswerFlaw.UNFINISHED


# The real simulator, over HTTP, in each of its dialects.

NGRAM = SimulatorConfig(time_scale=0, output_mean_tokens=40, drafter=make_drafter(SimulatedMethod.NGRAM, 6))
QUESTIONS = [
    Prompt(f"q{number}", None, row("q", f"A has {number} eggs and sells 3. How many?").turns, expected=f"{number + 3}")
    for number in range(20)
]


async def measured(
    folder: Path, name: DialectName, answers: dict[str, Any], *faults: str, stream: bool = True, tokens: int = 400,
    rows: Sequence[Prompt] = QUESTIONS, cache: int = 0, **extra: Any,
) -> tuple[list[Record], dict[str, list[str]]]:  # fmt: skip
    """The records of a load, and the faults of each answer as the simulator reports them."""
    config, truth = replace(NGRAM, faults=parse_faults(faults), prefix_cache_tokens=cache), folder / "truth.jsonl"
    app = SimulatorServer(SimulatedEngine(config), choose_dialect(str(name), config), TruthFile(truth)).application()
    async with ClosingTestServer(app, shutdown_timeout=0.1) as server, KernelTransport(idle_timeout_s=60) as transport:
        changed: dict[str, Any] = {
            "engine": Engine(kind=EngineKind.SIMULATOR, dialect=name), "drafting": True,
            "output": Output(max_tokens=tokens, stream=stream),
            "answers": Answers.model_validate(answers), **extra,
        }  # fmt: skip
        driver = LoopDriver(context(transport, str(server.make_url("")), **changed), answers=changed["answers"])
        await driver.closed(list(rows), 2)
    lines = map(json.loads, truth.read_text().splitlines())
    return driver.records, {line["request_id"]: line["text_faults"] for line in lines}


VLLM = DialectName.VLLM


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "stream", "answers", "fault", "found"),
    [
        # Tool calls are read by dialect, in chunks or whole.
        *(
            (name, stream, {"tools": TOOLS[:1]}, "broken-tool-calls=0.5", {"InvalidJson"})
            for name in SIMULATED_DIALECTS
            for stream in (True, False)
        ),
        (VLLM, True, {"jsonSchema": PERSON}, "corrupt-json=1", {"InvalidJson"}),
        (VLLM, False, {"tools": TOOLS}, "empty=0.5", {"Empty"}),
        (VLLM, True, {"expected": {"match": "Number"}}, "wrong-deep=5", {"WrongAnswer"}),
    ],
)
async def test_faults_are_found_in_exactly_the_answers_that_have_them(
    tmp_path: Path, name: DialectName, *, stream: bool, answers: dict[str, Any], fault: str, found: set[str]
) -> None:
    records, truth = await measured(tmp_path, name, answers, fault, stream=stream)
    assert {each.flaw for each in records if truth[each.request_id]} == found
    assert {each.flaw for each in records if not truth[each.request_id]} <= {None}


@pytest.mark.process
@pytest.mark.parametrize("answers", [{"jsonSchema": PERSON}, {"tools": TOOLS}, {"expected": {"match": "Number"}}])
async def test_answers_without_faults_are_judged_and_have_no_flaw(tmp_path: Path, answers: dict[str, Any]) -> None:
    records, _ = await measured(tmp_path, VLLM, answers)
    assert Counter((each.error_class, each.judged, each.flaw) for each in records) == {(None, True, None): 20}


# The expected answers of a dataset.


def load_answers(tmp_path: Path, rows: list[dict[str, Any]], answers: dict[str, Any], source: str) -> Prompts:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    workload = {"name": "w", "dataset": {"source": source, "uri": "p.jsonl"}, "answers": answers}
    return load_workload(Workload.model_validate(workload), tmp_path)


def loaded(tmp_path: Path, rows: list[dict[str, Any]], answers: dict[str, Any], source: str = "jsonl") -> list[Any]:
    return [prompt.expected for prompt in load_answers(tmp_path, rows, answers, source).rows]


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (CHOICE, "The answer is" + " " * 100_000 + "42."),
        (CHOICE, "The answer is option" + " *" * 50_000),
        (NUMBER, "#" * 100_000),
        (NUMBER, "#### " * 20_000),
    ],
)
def test_extraction_is_linear(match: AnswerMatch, text: str) -> None:
    """The event loop waits for it. A quadratic search takes more minutes than a test may."""
    assert extract_answer(text, match) in {None, "42"}


@pytest.mark.draws
def test_unique_items_are_compared_as_json_in_linear_time() -> None:
    def flaw(items: list[Any], draft: str = "https://json-schema.org/draft/2020-12/schema") -> AnswerFlaw | None:
        schema = {
            "$schema": draft, "type": "array", "uniqueItems": True,
            "items": {"anyOf": [{"$ref": "#"}, {"type": ["object", "number", "boolean", "string"]}]},
        }  # fmt: skip
        return unmet_demand(Answers(json_schema=schema), None, EngineAnswer(json.dumps(items), (), RequestAcceptance()))

    cases: list[list[Any]] = [[1, True], [0, False], [{"a": 1}, {"a": True}], [[], {}], ["1", 1], [["a", 1], {"a": 1}]]
    assert [flaw(distinct) for distinct in cases] == [None] * len(cases)
    for twice in ([1, 1.0], [{"a": [1], "b": 2}, {"b": 2, "a": [1.0]}], [[[1, 1]]]):
        assert flaw(twice) is AnswerFlaw.SCHEMA_MISMATCH
    for draft in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"):
        assert flaw([[{"a": number} for number in range(8000)]], draft) is None


GSM8K = {"question": "How many eggs?", "answer": "She sells <<16-3-4=9>>9.\n#### 1,018"}
GPQA = {
    "Record ID": "r1", "Question": "Why?", "Correct Answer": "yes", "Incorrect Answer 1": "no",
    "Incorrect Answer 2": "maybe", "Incorrect Answer 3": "never",
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "published", "expected", "found"),
    [
        ("gsm8k", GSM8K, {"match": "Number"}, "1018"),
        ("gsm8k", {**GSM8K, "short": 7.0}, {"match": "Number", "field": "short"}, "7"),
        ("aime", {"Problem": "x?", "Answer": 42}, {"match": "Number"}, "42"),
        ("jsonl", {"prompt": "Which?", "answer": "(B)"}, {"match": "Choice"}, "B"),
        ("jsonl", {"prompt": "Capital?", "gold": "Paris"}, {"match": "Exact", "field": "gold"}, "Paris"),
    ],
)
def test_expected_answers_come_from_the_row(
    tmp_path: Path, source: str, published: dict[str, Any], expected: dict[str, Any], found: str
) -> None:
    assert loaded(tmp_path, [published], {"expected": expected}, source) == [found]


def test_gpqas_letter_is_that_of_the_shuffled_choice(tmp_path: Path) -> None:
    (prompt,) = load_answers(tmp_path, [GPQA], {"expected": {"match": "Choice"}}, "gpqa").rows
    assert f"({prompt.expected}) yes" in prompt.turns[0][0].content


@pytest.mark.parametrize(
    ("published", "answers", "message"),
    [
        ({"prompt": "a"}, {"expected": {"match": "Number"}}, "column answer is missing.*answers.expected.field"),
        (
            {"prompt": "a", "x": "b"},
            {"expected": {"match": "Number", "field": "x"}},
            "x has no answer of the kind Number",
        ),
        (
            {"said": "a", "answer": 1},
            {"expected": {"match": "Number"}},
            "found none; the row's columns are: said, answer",
        ),
        ({"token_ids": [1]}, {"jsonSchema": PERSON}, "'line-1' is given as token_ids"),
        ({"turns": ["a", "b"]}, {"tools": TOOLS}, "has turns after the tool call"),
    ],
)
def test_prompts_that_cannot_be_judged_are_rejected(
    tmp_path: Path, published: dict[str, Any], answers: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        loaded(tmp_path, [published], answers)


def test_an_expected_answer_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    expected = {"expected": {"match": "Number"}}
    rows = [{**GSM8K, "answer": answer} for answer in ("#### 18", "#### 19", "It is 18")]
    assert len({load_answers(tmp_path, [row], expected, "gsm8k").fingerprint for row in rows}) == 2


PROSE = "Speculative decoding drafts some tokens and verifies them in one step of the target."
WORDS = [f"{first}{second}" for first in "bcdfghklmnprst" for second in ("ado", "erin", "ilum", "oks", "ute")]


def prose(words: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


@pytest.mark.parametrize(
    ("text", "reasoning", "finish", "flaw"),
    [
        (PROSE, "", "stop", None),
        (PROSE, "", None, None),
        ("", "", "stop", AnswerFlaw.EMPTY),
        (" \n", "", "length", AnswerFlaw.EMPTY),
        ("", "Let me think.", "length", None),
        ("", "Let me think.", "stop", AnswerFlaw.EMPTY),
        ("", "", "tool_calls", None),
        ("", "f{}", "function_call", None),
        ("tab\tand\r\nlines\x0b\x0c", "", "stop", None),
        ("a\x00b", "", "stop", AnswerFlaw.BROKEN_TEXT),
        ("\x1b[31mred", "", "stop", AnswerFlaw.BROKEN_TEXT),
        ("caf\ufffd au lait", "", "length", AnswerFlaw.BROKEN_TEXT),
        ("cut in a character \ufffd", "", "length", None),
        ("not cut \ufffd", "", "stop", AnswerFlaw.BROKEN_TEXT),
    ],
)
def test_flaws_of_one_answer(text: str, reasoning: str, finish: str | None, flaw: AnswerFlaw | None) -> None:
    assert flaw_of(text, reasoning, finish, None, called=finish == "function_call") is flaw


@pytest.mark.parametrize("period", [1, 2, 7, 40, 300, 1000])
@pytest.mark.parametrize("start", ["", prose(50)])
def test_loops_are_found_wherever_they_are_cut(period: int, start: str) -> None:
    unit = (prose(400, seed=period) + ".")[-period:]
    repeated = unit * (4 + 400 // period)
    for cut in {0, 1, period // 2}:
        text = start + repeated[cut:] + unit[:cut]
        assert flaw_of(text, "", "length", None) is AnswerFlaw.LOOP, (period, cut)


def test_a_loop_of_single_characters_is_measured_in_tokens() -> None:
    assert flaw_of("!" * LOOP_TOKENS, "", "length", LOOP_TOKENS) is AnswerFlaw.LOOP
    assert flaw_of("!" * (LOOP_TOKENS - 1), "", "length", LOOP_TOKENS - 1) is None


def test_a_loop_in_the_reasoning_is_found() -> None:
    assert flaw_of("", "Wait, is it? " * 40, "length", None) is AnswerFlaw.LOOP


@pytest.mark.parametrize(
    "text",
    [
        PROSE * 3,
        prose(2000),
        "".join(f"{number}. The same words every time\n" for number in range(100)),
        prose(40) + "\n" + "-" * 80,
        "".join(f"|{'---|' * 8}\n|{' a |' * 8}\n{prose(9, seed)}\n" for seed in range(9)),
        "again " * 100 + prose(3),
    ],
)
def test_text_that_repeats_otherwise_is_no_loop(text: str) -> None:
    assert flaw_of(text, "", "stop", None) is None


PATTERN = {"jsonSchema": {"type": "string", "pattern": "^(a+)*$"}}
FAST, SLOW, WRONG = '"aaa"', f'"{"a" * 60}!"', '"b"'
ALTERNATIVES = {"jsonSchema": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 3}}
NESTED = "[" * 40 + "1" + "]" * 40
ARGUMENTS = {"tools": [{"type": "function", "function": {"name": "say", "parameters": {
    "properties": {"text": PATTERN["jsonSchema"]}}}}]}  # fmt: skip
GOOD, NOT_JUDGED = (True, None), (False, "NotJudged")


def answer(text: str, *calls: ToolCall) -> EngineAnswer:
    return EngineAnswer(text, (), RequestAcceptance(), finish_reason="stop", tool_calls=calls)


def called(text: str) -> EngineAnswer:
    return answer("", ToolCall("say", f'{{"text": {text}}}'))


async def judged(answers: dict[str, Any], given: Sequence[EngineAnswer]) -> list[tuple[bool, str | None]]:
    """Whether each answer was judged, and its flaw."""
    records: list[Record] = []
    async with AnswerJudge(Answers.model_validate(answers), records.append) as judge:
        for number, each in enumerate(given):
            judge.submit(replace(blank_record(), request_id=str(number)), each)
        await judge.drained()
    assert [int(record.request_id) for record in records] == list(range(len(given)))
    return [(record.judged, record.flaw) for record in records]


@pytest.mark.process
@pytest.mark.parametrize(
    ("answers", "given", "flaw"),
    [
        (PATTERN, [answer(text) for text in (FAST, SLOW, WRONG)], "SchemaMismatch"),
        (ALTERNATIVES, [answer(text) for text in ("[]", NESTED, "1")], "SchemaMismatch"),
        (ARGUMENTS, [called(text) for text in (FAST, SLOW, WRONG)], "ToolCallMismatch"),
    ],
    ids=["pattern", "alternatives", "arguments"],
)
async def test_answers_that_take_too_long_are_not_judged_and_all_others_are(
    answers: dict[str, Any], given: list[EngineAnswer], flaw: str
) -> None:
    assert await judged(answers, given) == [GOOD, NOT_JUDGED, (True, flaw)]


@pytest.mark.process
async def test_a_load_has_a_limit_of_slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_parent, "MAX_OVERRUNS", 2)
    found = await judged(PATTERN, [answer(text) for text in (FAST, SLOW, SLOW, FAST, *[SLOW] * 1000)])
    assert found == [GOOD] + [NOT_JUDGED] * 1003
    assert MAX_OVERRUNS > 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("letters", "chunks", "fit"), [(3, 0, 48), (20_000, 0, 4), (3, 1000, 1)], ids=["short", "long", "chunks"]
)
async def test_answers_beyond_the_memory_of_waiting_ones_are_not_judged(
    monkeypatch: pytest.MonkeyPatch, letters: int, chunks: int, fit: int
) -> None:
    """Twice as many are submitted at once as fit; when those are judged, as many fit again."""
    monkeypatch.setattr(judge_parent, "MAX_WAITING_BYTES", 100_000)
    records = asyncio.Queue[Record]()
    record = replace(blank_record(), chunk_ns=list(range(chunks)))
    async with AnswerJudge(Answers.model_validate({"jsonSchema": {"type": "string"}}), records.put_nowait) as judge:
        for _ in ("first", "again"):
            for _ in range(2 * fit):
                judge.submit(record, answer(f'"{"a" * letters}"'))
            found = [await records.get() for _ in range(2 * fit)]
            assert Counter((each.judged, each.flaw) for each in found) == {GOOD: fit, NOT_JUDGED: fit}


def last_argument(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")[-2]


@pytest.mark.process
@pytest.mark.parametrize(
    ("start", "expected"),
    [(JudgeStart.NORMAL, ["schema", "ready", "lower"]), (JudgeStart.LOW, ["lower", "schema", "ready"])],
)
def test_the_first_process_lowers_its_priority_once_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, start: JudgeStart, expected: list[str]
) -> None:
    events: list[str] = []
    monkeypatch.setattr(judge_child, "give_way_to_sockets", lambda: events.append("lower"))
    monkeypatch.setattr(judge_child, "_reply", lambda _: events.append("ready"))
    reads = SimpleNamespace(model_validate_json=lambda _: events.append("schema"))
    monkeypatch.setattr(judge_child, "Answers", reads)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"{}")))
    judge_child.main(start)
    assert events == expected


@pytest.mark.process
async def test_each_process_judges_at_a_lower_priority_and_only_the_first_starts_at_the_normal_one() -> None:
    records = asyncio.Queue[Record]()
    async with AnswerJudge(Answers.model_validate(PATTERN), records.put_nowait) as judge:
        starts, priorities = list[str](), list[int]()
        for text in (FAST, SLOW, FAST):
            judge.submit(blank_record(), answer(text))
            await records.get()
            starts.append(last_argument(judge.pid))
            priorities.append(os.getpriority(os.PRIO_PROCESS, judge.pid))
    assert starts == ["normal", "low", "low"]
    assert set(priorities) == {min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)}


@pytest.mark.process
async def test_a_process_that_was_killed_is_an_error_and_never_an_unjudged_answer() -> None:
    records: list[Record] = []
    async with AnswerJudge(Answers.model_validate(PATTERN), records.append) as judge:
        os.kill(judge.pid, signal.SIGKILL)
        judge.submit(blank_record(), answer(FAST))
        with pytest.raises(JudgeLost, match="exit code -9"):
            await judge.drained()
        with pytest.raises(JudgeLost):
            judge.submit(blank_record(), answer(FAST))
    assert records == []


@pytest.mark.process
async def test_a_process_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_parent, "_COMMAND", ("false",))
    with pytest.raises(JudgeLost, match="did not start"):
        async with AnswerJudge(Answers.model_validate(PATTERN), lambda _: None):
            pass


async def test_the_event_loop_runs_while_an_answer_is_judged() -> None:
    async with AnswerJudge(Answers.model_validate(PATTERN), lambda _: None) as judge:
        judge.submit(blank_record(), answer(SLOW))
        judging, turns = asyncio.create_task(judge.drained()), 0
        while not judging.done():
            turns += 1
            await asyncio.sleep(0.01)
        await judging
    assert turns > 10
