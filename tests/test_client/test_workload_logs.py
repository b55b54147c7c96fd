"""Request logs in common formats, prompt files of which something is missing, and random text."""

from __future__ import annotations

import json
import random
import sysconfig
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from specbench_api.spec.dataset import Dataset, Source
from specbench_client.chat import ChatMessage
from specbench_client.errors import BadInput
from specbench_client.load.arrivals import load_trace
from specbench_client.trust.checks.prompts import MOVED_MIN
from specbench_client.workload import random_text_detection as detection
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompts import Prompts, load_prompts, select_prompts
from specbench_client.workload.random_text_detection import NUMBER, PAIRS_MAX, PROMPTS_MAX, word_order, words_of
from specbench_client.workload.row_outcomes import TOOLS
from specbench_client.workload.row_outcomes import TOOLS as WITH_TOOLS
from specbench_client.workload.row_parsing import FUNCTIONS, OTHER_PARTS, Prompt
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
        ({"functions": [{"name": "f"}]}, FUNCTIONS),
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
            OTHER_PARTS,
        ),
        ({"messages": [{"role": "user", "content": None}]}, "has an empty message"),
    ],
)
def test_unsupported_request_is_reported_as_unusable(edit: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_log(tmp_path, LOGGED_REQUEST, {**LOGGED_REQUEST, **edit})
    assert f"1 of 2 rows cannot be sent as text: line 2\n  1 x {reason}\n" in str(caught.value)
    assert "dataset prepare" not in str(caught.value)
    with pytest.raises(BadInput) as of_all:
        load_log(tmp_path, {**LOGGED_REQUEST, **edit})
    assert "allowMissing" in str(caught.value)
    assert "allowMissing" not in str(of_all.value)

    coverage = present(load_log(tmp_path, LOGGED_REQUEST, {**LOGGED_REQUEST, **edit}, allow_missing=True).coverage)

    assert (coverage.requested, coverage.used, coverage.unusable) == (2, 1, {reason: 1})


@pytest.mark.parametrize(
    "call", [CALL, {"id": CALL["id"], "name": "look", "args": {"at": "x"}, "type": "tool_call"}], ids=["", "LangChain"]
)
def test_tools_and_calls_are_sent_with_a_client_side_template(call: dict[str, Any], tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"b": 1, "a": 2}}}]
    result = {"role": "tool", "tool_call_id": "c1", "content": ""}
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
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


LICENSED = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\n\n{article}"
REASON = "placeholder: the licence does not allow redistribution of the text"


def row(number: int, *, licensed: bool, **columns: Any) -> PromptRow:
    given = {
        "question_id": f"s{number}",
        "category": "rag" if number % 2 else "stem",
        "turns": [LICENSED if licensed else "Why?"],
        "source": "https://huggingface.co/cais/hle" if number % 2 else "https://example.org/bamboo",
    }
    return PromptRow(f"row {number + 1}", {**given, **columns})


ROWS = [row(number, licensed=number % 5 != 0) for number in range(20)]


def select(rows: list[PromptRow] = ROWS, **declared: Any) -> Prompts:
    dataset = {"source": "speed-bench", "config": "qualitative", "uri": "s3://b/speed/", **declared}
    return select_prompts(rows, Dataset.model_validate(dataset))


def test_placeholders_are_rejected_with_counts_names_and_a_remedy() -> None:
    with pytest.raises(BadInput) as caught:
        select()
    assert str(caught.value).splitlines() == [
        (
            "s3://b/speed/: 16 of 20 rows cannot be sent as text: row 2 (s1, rag), row 3 (s2, stem),"
            " row 4 (s3, rag), row 5 (s4, stem), row 7 (s6, stem) and 11 more"
        ),
        f"  16 x {REASON}",
        "  by category: rag 8, stem 8",
        "  by source: https://huggingface.co/cais/hle 8, https://example.org/bamboo 8",
        (
            "  run `specbench dataset prepare speed-bench --config qualitative` to download the texts;"
            " or set dataset.allowMissing: true to skip them; results then list what was skipped"
        ),
    ]


def test_allowed_missing_rows_are_counted_per_category() -> None:
    found = select(allowMissing=True)

    assert [prompt.id for prompt in found.rows] == ["s0", "s5", "s10", "s15"]
    coverage = present(found.coverage)
    assert (coverage.rows, coverage.requested, coverage.used, coverage.turns) == (20, 20, 4, 4)
    assert coverage.unusable == {REASON: 16}
    by_category = {one.category: (one.requested, one.used, one.unusable) for one in coverage.by_category}
    assert by_category == {"stem": (10, 2, {REASON: 8}), "rag": (10, 2, {REASON: 8})}


def test_placeholders_outside_the_requested_categories_are_ignored() -> None:
    coverage = present(select([row(0, licensed=False), row(1, licensed=True)], categories=["stem"]).coverage)
    assert (coverage.requested, coverage.unusable) == (1, {})


@pytest.mark.parametrize(
    ("rows", "declared", "message"),
    [
        (
            [row(0, licensed=False), row(1, licensed=False, turns=["Why?", LICENSED])],
            {},
            r"1 of 2 rows cannot be sent as text: row 2 \(s1, rag\)",
        ),
        ([row(0, licensed=False, turns=[""]), *ROWS[1:]], {"allowMissing": True}, r"row 1: turns\[0\] is empty"),
        ([row(1, licensed=True)], {"allowMissing": True}, "none of the 1 rows passes the filters"),
    ],
    ids=["a placeholder in a later turn", "a broken row", "no usable row"],
)
def test_rows_are_rejected(rows: list[PromptRow], declared: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(rows, **declared)


TRAJECTORY = [
    {"role": "system", "content": "Mend it.", "tool_calls": None, "tool_call_id": None},
    {"role": "user", "content": "Hi", "tool_calls": None, "tool_call_id": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "tool_call_id": None},
    {"role": "tool", "content": "{}", "tool_calls": None, "tool_call_id": "c1"},
    {"role": "assistant", "content": "Done.", "tool_calls": [], "tool_call_id": None},
    {"role": "user", "content": "Sure?", "tool_calls": None, "tool_call_id": None},
]
"""As read from Parquet: every message has every column."""
MISSING_TOOLS = [{"type": "function", "function": {"name": "look"}}]


def agentic(*rows: PromptRow, with_tools: bool, **declared: Any) -> Prompts:
    dataset = {"source": "speed-bench", "uri": "agentic.jsonl", "config": "agentic", **declared}
    return select_prompts(rows, Dataset.model_validate(dataset), with_tools=with_tools)


def test_each_answer_of_a_trajectory_is_one_request_with_its_history() -> None:
    extras = json.dumps({"tools": json.dumps(MISSING_TOOLS)})
    found = agentic(row(0, licensed=False, turns=TRAJECTORY, extras=extras), with_tools=True)

    assert [prompt.id for prompt in found.rows] == ["s0/step-1", "s0/step-2", "s0/step-3"]
    assert [[one.role for one in prompt.turns[0]] for prompt in found.rows] == [
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
        ["system", "user", "assistant", "tool", "assistant", "user"],
    ]
    assert {prompt.turns[0][0].tools for prompt in found.rows} == {json.dumps(MISSING_TOOLS)}
    called = json.loads(found.rows[2].turns[0][2].further)
    assert called["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": "x"}}
    assert found.coverage is not None
    assert (found.coverage.rows, found.coverage.requested, found.coverage.used) == (3, 3, 3)


def test_trajectories_with_tools_need_a_client_side_template() -> None:
    plain = row(1, licensed=False, turns=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
    rows = [row(0, licensed=False, turns=TRAJECTORY), plain]
    with pytest.raises(BadInput, match=r"2 of 4 rows cannot.*(.|\n)*appliedBy: Client to send those with tools"):
        agentic(*rows, with_tools=False)

    found = agentic(*rows, with_tools=False, allowMissing=True)

    assert [prompt.id for prompt in found.rows] == ["s0/step-1", "s1/step-1"]
    assert present(found.coverage).unusable == {WITH_TOOLS: 2}


DRAW = random.Random(7)
LIST = [
    f"{first}{second}{third}"
    for first in "bdfgklm"
    for second in ("an", "ora", "ith", "ull", "e", "os", "ind")
    for third in "aeioust"
]
CODE = [path.read_text() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]]


def prompts(texts: list[str]) -> list[Prompt]:
    return [Prompt(f"p{number}", None, ((ChatMessage("user", text),),)) for number, text in enumerate(texts)]


def token_prompts(rows: list[list[int]]) -> list[Prompt]:
    return [Prompt(f"p{number}", None, ((ChatMessage("user", "", tuple(row)),),)) for number, row in enumerate(rows)]


def words(count: int, vocabulary: list[str] = LIST) -> str:
    return " ".join(DRAW.choices(vocabulary, k=count))


SHARED = words(600)
RANDOM = {
    "of a list": lambda: prompts([words(256) for _ in range(40)]),
    "some more frequent": lambda: prompts([words(256, [*LIST, *LIST[:20] * 20]) for _ in range(40)]),
    "real words shuffled": lambda: prompts([words(256, " ".join(CODE).split()) for _ in range(40)]),
    "letters": lambda: prompts(["".join(DRAW.choices("abcdefghijklmnopqrst     ", k=1500)) for _ in range(40)]),
    "four long ones": lambda: prompts([words(8000) for _ in range(4)]),
    "behind one instruction": lambda: prompts(
        [f"Answer in one word, please: {words(256)} What is it?" for _ in range(40)]
    ),
    "behind one long beginning": lambda: prompts([f"{SHARED} {words(256)}" for _ in range(40)]),
    "token ids": lambda: token_prompts([[DRAW.randrange(128000) for _ in range(512)] for _ in range(20)]),
    "token ids in sequence": lambda: token_prompts(
        [list(range(at, at + 512)) for at in DRAW.sample(range(128000), 20)]
    ),
    "Chinese letters": lambda: prompts(
        ["".join(DRAW.choices([chr(0x4E00 + n) for n in range(900)], k=400)) for _ in range(40)]
    ),
}


@pytest.mark.parametrize("kind", RANDOM)
def test_random_words_and_tokens_lose_nothing_when_shuffled(kind: str) -> None:
    DRAW.seed(7)
    order = present(word_order(RANDOM[kind]()))
    assert order.moved < MOVED_MIN


def test_code_has_a_word_order() -> None:
    order = present(word_order(prompts(CODE)))
    assert order.pairs <= PAIRS_MAX
    assert order.repeated - order.shuffled > 5 * MOVED_MIN


@pytest.mark.parametrize(
    "few",
    [
        prompts(["Why is the sky blue?"]),
        prompts([words(100) for _ in range(30)]),
        prompts([words(400)] * 60),
        prompts(["yes " * 5000 + str(number) for number in range(5)]),
        prompts(["Which drifts?\n" + "\n".join(f"{DRAW.random():.3f} {DRAW.random():.3f}" for _ in range(90))] * 60),
        [],
    ],
    ids=["one", "short", "the same", "one word", "numbers", "none"],
)
def test_too_few_words_give_no_result(few: list[Prompt]) -> None:
    assert word_order(few) is None


def test_only_some_of_many_equal_prompts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(side_effect=words_of)
    monkeypatch.setattr(detection, "words_of", read)
    assert word_order(prompts([f"Where is order {number}?" for number in range(PROMPTS_MAX + 500)])) is None
    assert read.call_count == PROMPTS_MAX


def test_result_does_not_depend_on_the_order_of_prompts() -> None:
    given = prompts(CODE)
    assert word_order(given) == word_order(given[::-1])


def test_words_are_lower_case_with_numbers_replaced() -> None:
    (spaced,) = prompts(["Whose, (as ever) is x1: 3.5?"])
    (dense,) = prompts(["问题,很多。"])
    (ids,) = token_prompts([[5, 6]])
    assert words_of(spaced) == ["whose", "as", "ever", "is", NUMBER, NUMBER]
    assert words_of(dense) == ["问", "题", "很", "多"]
    assert words_of(ids) == [5, 6]
