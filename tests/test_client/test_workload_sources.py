"""Published datasets and agent traces become prompts."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.spec.dataset import CONFIGS, GENERATED_SOURCES, Dataset, Source
from specbench_api.spec.workload import Workload
from specbench_client.chat import RequestStart
from specbench_client.dataset.inspection import TokenCounters, inspect_prompts
from specbench_client.dataset.prompt_entries import entry_columns, read_entries, read_prompt_rows, write_rows
from specbench_client.dataset.tokenizers import load_reference_tokenizer
from specbench_client.errors import BadInput
from specbench_client.workload import locations
from specbench_client.workload.prompts import Prompts, load_prompts, load_workload
from specbench_client.workload.row_outcomes import check_rows
from specbench_client.workload.row_parsing import Prompt
from specbench_client.workload.source_detection import guess_source
from specbench_client.workload.sources.agent_traces import recorded_starts
from specbench_client.workload.sources.published_datasets import order_of_choices
from specbench_client.workload.sources.random_words import WORDS, random_text
from specbench_client.workload.sources.registry import LOADERS
from specbench_testing.agent_traces import SESSION, message, otlp, span, user
from specbench_testing.present import present
from specbench_testing.reference_tokenizers import o200k_table
from specbench_testing.resources import run_of

Row = dict[str, Any]
GPQA = {
    "Question": "Which one?",
    "Correct Answer": "right ",
    "Incorrect Answer 1": "w1",
    "Incorrect Answer 2": "w2",
    "Incorrect Answer 3": "w3",
    "Record ID": "rec1",
    "High-level domain": "Physics",
    "Subdomain": "Optics",
}
PUBLISHED_ROWS: dict[Source, Row] = {
    Source.SPEC_BENCH: {"question_id": 81, "category": "writing", "turns": ["a", "b"]},
    Source.SPEED_BENCH: {
        "question_id": "s1",
        "category": "coding",
        "sub_category": "python",
        "turns": ["a", "b"],
        "source": "x",
        "src_id": "1",
        "difficulty": "hard",
        "multiturn": True,
    },
    Source.MT_BENCH: {"category": "math", "prompt": ["a", "b"], "reference": [], "prompt_id": 7},
    Source.HUMANEVAL: {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f"},
    Source.GSM8K: {"question": "How many?", "answer": "#### 4"},
    Source.MATH_500: {"problem": "Find $x$.", "subject": "Algebra", "level": 3, "unique_id": "test/1.json"},
    Source.MBPP: {"task_id": 11, "text": "Write a function.", "code": "…", "test_list": ["…"]},
    Source.AIME: {"id": 3, "problem": "Let $n$.", "solution": "…", "answer": "5"},
    Source.GPQA: GPQA,
    Source.CNN_DAILYMAIL: {"article": "News.", "highlights": "…", "id": "ab"},
    Source.SHAREGPT: {
        "id": "QWJhYvA_0",
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}],
    },
    Source.INSTRUCTCODER: {"input": "x = {1}", "instruction": "Use {input}.", "output": "…"},
    Source.EDIT: {"code": "x = {code}", "change_request": "Use {change_request}.", "norm_distance": 0.2},
    Source.OPENAI_LOGS: {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.7},
    Source.AGENT_TRACES: {
        "session_id": "s-1",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
    },
    Source.MOONCAKE: {"timestamp": 27482, "input_length": 4, "output_length": 52, "hash_ids": [46]},
}
EXPECTED: dict[Source, tuple[str, str | None, list[str]]] = {
    Source.SPEC_BENCH: ("81", "writing", ["a", "b"]),
    Source.SPEED_BENCH: ("s1", "coding", ["a", "b"]),
    Source.MT_BENCH: ("7", "math", ["a", "b"]),
    Source.HUMANEVAL: (
        "HumanEval/0",
        "coding",
        [
            (
                "Complete the following Python function. Answer with the whole function in one code block."
                "\n\n```python\ndef f():\n```"
            )
        ],
    ),
    Source.GSM8K: ("line-1", "math", ["How many?"]),
    Source.MATH_500: (
        "test/1.json",
        "Algebra",
        ["Find $x$.\n\nPlease reason step by step, and put your final answer within \\boxed{}."],
    ),
    Source.MBPP: ("11", "coding", ["Write a function."]),
    Source.AIME: (
        "3",
        "math",
        ["Let $n$.\n\nPlease reason step by step, and put your final answer within \\boxed{}."],
    ),
    Source.GPQA: (
        "rec1",
        "Physics",
        [
            (
                "What is the correct answer to this question: Which one?\n\nChoices:\n"
                "(A) right\n(B) w2\n(C) w3\n(D) w1\n\n"
                'Format your response as follows: "The correct answer is (insert answer here)"'
            )
        ],
    ),
    Source.CNN_DAILYMAIL: (
        "ab",
        "summarization",
        ["Could you summarize the following article, please reuse text from the article if possible: News."],
    ),
    Source.SHAREGPT: ("QWJhYvA_0", "chat", ["Hi"]),
    Source.INSTRUCTCODER: (
        "line-1",
        "editing",
        ["x = {1}\n\nUse {input}. Just output the code, do not include any explanation."],
    ),
    Source.EDIT: (
        "line-1",
        "editing",
        [
            (
                "Given a code file, please apply the change requests and generate the new file.\n\nOriginal file:\n"
                "```python\nx = {code}\n```\n\nChange request:\nUse {change_request}.\n\n"
                'Please generate the new code file in the "New file" section below.'
            )
        ],
    ),
    Source.OPENAI_LOGS: ("line-1", None, ["Hi"]),
    Source.AGENT_TRACES: ("s-1", None, ["Hi"]),
    Source.MOONCAKE: ("line-1", None, ["local office right common"]),
}


def load(tmp_path: Path, source: Source, rows: Sequence[Row], **declared: Any) -> Prompts:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_prompts(Dataset(**{"source": source, "uri": "p.jsonl", **declared}), tmp_path)


def rejection_message(tmp_path: Path, source: Source, rows: Sequence[Row], **declared: Any) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, source, rows, **declared)
    return str(caught.value)


def texts(prompts: Prompts) -> list[list[str]]:
    return [[turn[0].content for turn in prompt.turns] for prompt in prompts.rows]


def test_every_source_has_a_loader_and_a_test_row() -> None:
    assert set(LOADERS) == set(Source) - set(GENERATED_SOURCES)
    assert set(PUBLISHED_ROWS) == set(EXPECTED) == set(LOADERS) - {Source.JSONL, Source.PARQUET, Source.CSV}


@pytest.mark.parametrize("source", PUBLISHED_ROWS, ids=str)
def test_published_row_gives_the_expected_prompt(source: Source, tmp_path: Path) -> None:
    (prompt,) = load(tmp_path, source, [PUBLISHED_ROWS[source]]).rows

    assert (prompt.id, prompt.category, [turn[0].content for turn in prompt.turns]) == EXPECTED[source]


@pytest.mark.parametrize("source", PUBLISHED_ROWS, ids=str)
def test_gzip_and_parquet_give_the_same_prompts(source: Source, tmp_path: Path) -> None:
    lines = load(tmp_path, source, [PUBLISHED_ROWS[source]])
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress((tmp_path / "p.jsonl").read_bytes(), mtime=0))
    packed = load_prompts(Dataset(source=source, uri="p.jsonl.gz"), tmp_path)
    row = {name: value for name, value in PUBLISHED_ROWS[source].items() if value != []}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "p.parquet")
    parquet = load_prompts(Dataset(source=source, uri="p.parquet"), tmp_path)

    assert packed == lines
    assert texts(parquet) == texts(lines)


@pytest.mark.parametrize("source", [source for source in PUBLISHED_ROWS if source is not Source.OPENAI_LOGS], ids=str)
def test_row_of_another_format_is_rejected_with_its_line(source: Source, tmp_path: Path) -> None:
    message = rejection_message(tmp_path, source, [PUBLISHED_ROWS[source], {"other": 1}])

    assert message.startswith("p.jsonl, line 2: ")
    assert "missing" in message or "neither prompt nor turns" in message


@pytest.mark.parametrize(
    ("source", "edit", "expected"),
    [
        (Source.SPEC_BENCH, {"turns": ["a", ""]}, "turns[1] is empty"),
        (Source.SPEC_BENCH, {"turns": None}, "the column turns is missing"),
        (Source.SPEED_BENCH, {"turns": []}, "turns is empty: give a list with at least one element"),
        (Source.SPEED_BENCH, {"turns": None}, "neither turns (prepared Parquet) nor messages (NeMo-Skills)"),
        (Source.SPEED_BENCH, {"turns": None, "messages": [{"role": "system", "content": "x"}]}, "user messages"),
        (Source.MT_BENCH, {"prompt": ["a"]}, "has 1 turns, but every question of MT-Bench has 2"),
        (Source.HUMANEVAL, {"prompt": 3}, "prompt is of type int"),
        (Source.GSM8K, {"question": " "}, "question is empty"),
        (Source.GSM8K, {"question": float("nan")}, "question is of type float"),
        (Source.GPQA, {"Incorrect Answer 2": None}, "the column Incorrect Answer 2 is missing"),
        (Source.SHAREGPT, {"conversations": "x"}, "conversations is missing"),
        (Source.SHAREGPT, {"conversations": ["x", "y"]}, "conversations is missing, or no list of messages"),
        (Source.EDIT, {"change_request": ""}, "change_request is empty"),
        (Source.OPENAI_LOGS, {"messages": None}, "contains no request"),
        (Source.MOONCAKE, {"input_length": 513}, "is 2 blocks of 512 tokens, but hash_ids has 1 ids"),
        (Source.MOONCAKE, {"input_length": 0}, "input_length is 0: give a number of tokens, 1 or more"),
        (Source.MOONCAKE, {"output_length": "9"}, "output_length is '9': give a number of tokens"),
        (Source.MOONCAKE, {"hash_ids": ["a"]}, "not a list of whole numbers"),
        (Source.OPENAI_LOGS, {"messages": ["x"]}, "messages is not a list of objects"),
    ],
)
def test_broken_row_is_rejected_with_its_line(source: Source, edit: Row, expected: str, tmp_path: Path) -> None:
    row = {name: value for name, value in {**PUBLISHED_ROWS[source], **edit}.items() if value is not None}

    message = rejection_message(tmp_path, source, [row])
    assert message.startswith("p.jsonl, line 1: ")
    assert expected in message


def test_humaneval_raw_config_sends_only_the_code(tmp_path: Path) -> None:
    prompts = load(tmp_path, Source.HUMANEVAL, [PUBLISHED_ROWS[Source.HUMANEVAL]], config="raw")

    assert texts(prompts) == [["def f():\n"]]


def test_speed_bench_rows_in_nemo_skills_format_are_read(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    row = {**PUBLISHED_ROWS[Source.SPEED_BENCH], "messages": messages}
    del row["turns"]

    assert load(tmp_path, Source.SPEED_BENCH, [row]) == load(
        tmp_path, Source.SPEED_BENCH, [PUBLISHED_ROWS[Source.SPEED_BENCH]]
    )


def test_speed_bench_folder_is_read_by_config(tmp_path: Path) -> None:
    folder = tmp_path / "speed" / "qualitative"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([PUBLISHED_ROWS[Source.SPEED_BENCH]]), folder / "test.parquet")

    found = load_prompts(Dataset(source=Source.SPEED_BENCH, config="qualitative", uri="speed"), tmp_path)

    assert texts(found) == [["a", "b"]]
    with pytest.raises(BadInput, match=r"contains none of throughput_1k/test\.parquet, throughput_1k\.jsonl"):
        load_prompts(Dataset(source=Source.SPEED_BENCH, config="throughput_1k", uri="speed"), tmp_path)


def test_s3_folder_is_read_by_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (json.dumps(PUBLISHED_ROWS[Source.SPEED_BENCH]) + "\n").encode()

    def fetch(uri: str) -> bytes:
        if uri == "s3://b/speed/qualitative.jsonl":
            return data
        raise BadInput(f"{uri}: there is no such object")

    monkeypatch.setattr(locations, "read_object", fetch)
    declared = Dataset(source=Source.SPEED_BENCH, config="qualitative", uri="s3://b/speed/")
    assert texts(load_prompts(declared, tmp_path)) == [["a", "b"]]
    with pytest.raises(BadInput, match=r"s3://b/other/qualitative/test\.parquet: there is no such object"):
        load_prompts(declared.model_copy(update={"uri": "s3://b/other/"}), tmp_path)


def test_sharegpt_array_is_read_and_excluded_rows_are_counted(tmp_path: Path) -> None:
    rows = [
        PUBLISHED_ROWS[Source.SHAREGPT],
        {"id": "short", "conversations": [{"from": "human", "value": "Hi"}]},
        {"id": "bot", "conversations": [{"from": "gpt", "value": "Ho"}, {"from": "human", "value": "Hi"}]},
    ]
    (tmp_path / "s.json").write_text(json.dumps(rows, indent=1))

    found = load_prompts(Dataset(source=Source.SHAREGPT, uri="s.json"), tmp_path)

    assert [prompt.id for prompt in found.rows] == ["QWJhYvA_0"]
    assert found.coverage is not None
    assert found.coverage.excluded == {"fewer than two messages": 1, "does not begin with a user's message": 1}
    assert (found.coverage.rows, found.coverage.requested, found.coverage.unusable) == (3, 1, {})


def test_gpqa_choice_order_depends_only_on_seed_and_question(tmp_path: Path) -> None:
    rows = [{**GPQA, "Record ID": f"rec{number}"} for number in range(40)]
    found = load(tmp_path, Source.GPQA, rows)

    letters = [
        next(line[1] for line in prompt.turns[0][0].content.splitlines() if line.endswith(" right"))
        for prompt in found.rows
    ]

    assert set(letters) == set("ABCD"), "the right answer occurs in every position"
    shuffled = {prompt.id: prompt for prompt in load(tmp_path, Source.GPQA, rows[::-1]).rows}
    assert all(shuffled[prompt.id] == prompt for prompt in found.rows), "independent of the order of rows"
    assert load(tmp_path, Source.GPQA, rows, seed=1).fingerprint != found.fingerprint
    assert order_of_choices(0, "rec1") == [0, 2, 3, 1]


def test_every_allowed_config_is_known_to_its_source() -> None:
    for source, configs in CONFIGS.items():
        hub = present(LOADERS[source].hub)
        assert all(hub.of_config(config).name for config in configs)


@pytest.mark.parametrize("source", [Source.HUMANEVAL, Source.GSM8K, Source.SPEC_BENCH], ids=str)
def test_original_dataset_files_are_read_completely(source: Source, tmp_path: Path) -> None:
    name, count, turns = {
        Source.HUMANEVAL: ("HumanEval.jsonl.gz", 164, 164),
        Source.GSM8K: ("gsm8k_test.jsonl", 1319, 1319),
        Source.SPEC_BENCH: ("spec_bench_question.jsonl", 480, 560),
    }[source]
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / name
    if not file.is_file():
        pytest.skip(f"{name} is not on this machine")

    found = load_prompts(Dataset(source=source, uri=str(file)), tmp_path)

    assert (len(found.rows), found.turns) == (count, turns)


# Mooncake's traces.

TRACE: list[Row] = [
    {"timestamp": 0, "input_length": 1300, "output_length": 500, "hash_ids": [7, 8, 9]},
    {"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": [7, 8, 10]},
    {"timestamp": 3052, "input_length": 1400, "output_length": 9, "hash_ids": [7, 8, 9]},
    {"timestamp": 3052, "input_length": 512, "output_length": 9, "hash_ids": [11]},
]


def test_rows_of_a_trace_have_its_lengths_and_share_the_prefixes_of_equal_ids(tmp_path: Path) -> None:
    found = load(tmp_path, Source.MOONCAKE, TRACE).rows
    words = [prompt.turns[0][0].content.split(" ") for prompt in found]

    assert [len(each) for each in words] == [row["input_length"] for row in TRACE]
    assert [prompt.output_tokens for prompt in found] == [500, 1, 9, 9]
    shared = {
        (one, other): next((at for at, pair in enumerate(zip(*pick, strict=False)) if pair[0] != pair[1]), None)
        for one, other in itertools.combinations(range(4), 2)
        for pick in [(words[one], words[other])]
    }
    assert shared == {(0, 1): 1024, (0, 2): None, (1, 2): 1024, (0, 3): 0, (1, 3): 0, (2, 3): 0}


def test_texts_of_a_trace_depend_on_the_seed_alone(tmp_path: Path) -> None:
    first, again, other = (load(tmp_path, Source.MOONCAKE, TRACE, seed=seed) for seed in (0, 0, 1))
    assert first == again == load(tmp_path, Source.MOONCAKE, TRACE)
    assert {text for each in texts(first) for text in each}.isdisjoint(text for each in texts(other) for text in each)


def test_output_length_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    found = {load(tmp_path, Source.MOONCAKE, [{**TRACE[3], "output_length": length}]).fingerprint for length in (1, 2)}
    assert len(found) == 2


def test_sessions_share_their_beginning_alone_and_depend_on_the_seed(tmp_path: Path) -> None:
    lengths = {"turns": 3, "turnTokens": 20, "answerTokens": 7, "sharedPrefixTokens": 32}
    declared = {"source": "sessions", "count": 5, "sessions": lengths}
    found, again, other = (
        load_prompts(Dataset.model_validate({**declared, "seed": seed}), tmp_path) for seed in (0, 0, 1)
    )
    assert found == again
    assert found.fingerprint != other.fingerprint
    first = [[[len(one.content.split()) for one in turn] for turn in prompt.turns] for prompt in found.rows]
    assert first == [[[32, 20], [20], [20]]] * 5
    assert {(prompt.output_tokens, prompt.category) for prompt in found.rows} == {(7, "sessions")}
    assert len({prompt.turns[0][0] for prompt in found.rows}) == 1
    asked = [turn[-1].content for prompt in found.rows for turn in prompt.turns]
    assert len(set(asked)) == 15
    # n(t) is 52, 79 and 106; 32, 59 and 86 tokens were computed before, in whole blocks 32, 48 and 80.
    assert present(found.coverage).reusable_share == (32 + 48 + 80) / (52 + 79 + 106)


SHORTEST = {"turns": 1, "turnTokens": 16, "answerTokens": 1}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"source": "sessions", "count": 5}, r"source sessions needs dataset\.sessions .* and dataset\.count"),
        (
            {"source": "sessions", "sessions": SHORTEST},
            r"source sessions needs dataset\.sessions .* and dataset\.count",
        ),
        (
            {"source": "jsonl", "uri": "p.jsonl", "count": 5, "sessions": SHORTEST},
            r"source sessions needs dataset\.sessions .* and dataset\.count",
        ),
        (
            {"source": "sessions", "count": 5, "sessions": {**SHORTEST, "sharedPrefixTokens": 40}},
            r"sessions\.sharedPrefixTokens must be a multiple of 16",
        ),
    ],
)
def test_lengths_of_sessions_belong_to_their_source(declared: Row, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        run_of({"spec.workloads[0].dataset": declared})


def test_a_word_of_random_text_is_a_token() -> None:
    encoding = load_reference_tokenizer(o200k_table())
    assert len(encoding.encode_ordinary(random_text("any", 512))) == 512
    assert len(set(WORDS)) == 256
    assert {len(encoding.encode_ordinary(f"{before}{word}")) for word in WORDS for before in ("", " ")} == {1}


def test_a_user_file_with_a_column_output_length_has_no_limits(tmp_path: Path) -> None:
    (prompt,) = load(tmp_path, Source.JSONL, [{"prompt": "Hi", "output_length": 5}]).rows
    assert prompt.output_tokens is None


CALL = {"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "a.py"}}
RESULT = {"type": "tool_call_response", "id": "c1", "response": {"lines": 3}}


def write(tmp_path: Path, *rows: Any) -> Path:
    file = tmp_path / "traces.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def load_of_traces(tmp_path: Path, *rows: Any, **declared: Any) -> Prompts:
    dataset = Dataset(source=Source.AGENT_TRACES, uri=str(write(tmp_path, *rows)), **declared)
    return load_prompts(dataset, tmp_path, with_tools=True)


def only(tmp_path: Path, *rows: Any) -> Prompt:
    (prompt,) = load_of_traces(tmp_path, *rows).rows
    return prompt


def texts_of_traces(prompt: Prompt) -> list[list[str]]:
    return [[f"{one.role}: {one.content}" for one in turn] for turn in prompt.turns]


def test_each_answer_is_a_request_with_everything_recorded_before_it(tmp_path: Path) -> None:
    prompt = only(tmp_path, SESSION)
    assert (prompt.id, prompt.category) == ("fix-1", "coding")
    history = ["system: You fix bugs.", "user: Fix a.py.", "assistant: ", "tool: x = 1", "tool: y = 2"]
    later = ["assistant: Shall I?", "user: Yes."]
    assert texts_of_traces(prompt) == [history[:2], history, [*history, *later]]
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
        load_of_traces(tmp_path, otlp(planner), otlp(last))

    last = span("t1", 9.0, 9.5, [user("Sum up.")], as_text=True)
    other = span("t2", 1.0, 2.0, [user("Hello")])
    found = load_of_traces(tmp_path, otlp(tool, two, one), otlp(last), otlp(planner, other)).rows
    assert [prompt.id for prompt in found] == ["chat-9", "t2"]
    assert texts_of_traces(found[0]) == [
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
    found = inspect_prompts("traces", check_rows(rows, declared, with_tools=True), TokenCounters()).sessions
    assert found is not None
    assert (found.sessions, found.requests, found.overlapping, found.tool_results) == (2, 6, 1, 2)
    assert found.waited_s == 2.5 + 30 + 1 + 2
    lengths = [
        [len(one.content) + len(one.further) + len(one.tools) for one in turn]
        for turn in load_of_traces(tmp_path, SESSION).rows[0].turns
    ]
    again = sum(lengths[0]) + sum(lengths[1]) + 2 * 30
    assert found.reusable_share == again / (sum(map(sum, lengths)) + 30 + 100 + 30)


def test_selected_sessions_are_written_as_sessions(tmp_path: Path) -> None:
    spans = [span("t1", 0.0, 1.0, [user("Hi")]), span("t1", 0.5, 2.0, [user("Ho")], instructions="Sing.")]
    file = write(tmp_path, SESSION, otlp(*spans))
    entries, before = read_entries(file), load_of_traces(tmp_path, SESSION, otlp(*spans))
    write_rows(file, [entry_columns(entry) for entry in entries])
    after = load_prompts(Dataset(source=guess_source(str(file)), uri=str(file)), tmp_path, with_tools=True)
    assert after.rows == before.rows
    assert after.fingerprint == before.fingerprint


def test_the_fingerprint_covers_messages_and_starts(tmp_path: Path) -> None:
    requests = [{"messages": [{"role": "user", "content": text}], "start": 0, "end": 1} for text in "ab"]
    changed = [requests, [requests[0], {**requests[1], "start": 0.5}], [requests[0], {**requests[0], "start": 0.5}]]
    found = {load_of_traces(tmp_path, {"id": "a", "requests": each}).fingerprint for each in changed}
    assert len(found) == 3


def test_a_document_over_several_lines_and_a_file_of_documents_are_the_same(tmp_path: Path) -> None:
    document = otlp(span("t1", 0.0, 1.0, [user("Hi")]), span("t1", 2.0, 3.0, [user("Ho")]))
    assert load_of_traces(tmp_path, json.dumps(document, indent=2)) == load_of_traces(tmp_path, document)


def test_a_request_that_two_libraries_record_is_read_once(tmp_path: Path) -> None:
    agent = span("t1", 0.0, 9.0, None, operation="invoke_agent")
    outer = span("t1", 1.0, 3.0, [user("outer")], parent=agent)
    wrapper = span("t1", 1.25, 2.75, None, operation="wrapped", parent=outer)
    inner = span("t1", 1.5, 2.5, [user("inner")], parent=wrapper)
    after = span("t1", 4.0, 5.0, [user("after")], parent=agent)
    prompt = only(tmp_path, otlp(inner, wrapper, after), otlp(outer, agent))
    assert texts_of_traces(prompt) == [["user: inner"], ["user: after"]]


def test_a_span_that_is_written_twice_is_one_request(tmp_path: Path) -> None:
    first, second = (span("t1", start, start + 1, [user("Hi")]) for start in (0.0, 2.0))
    assert len(only(tmp_path, otlp(first, second), otlp(first)).starts) == 2


def test_a_request_of_a_tool_or_an_agent_inside_a_request_does_not_replace_it(tmp_path: Path) -> None:
    outer = span("t1", 0.0, 9.0, [user("Search.")])
    tool = span("t1", 1.0, 8.0, None, operation="execute_tool", parent=outer)
    inner = span("t1", 2.0, 3.0, [user("Summarise.")], parent=tool)
    assert texts_of_traces(only(tmp_path, otlp(outer, tool, inner))) == [["user: Search."], ["user: Summarise."]]


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
    first, second = load_of_traces(tmp_path, otlp(*spans)).rows
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


def attributes_of(**values: str) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


PROMPT = {"gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": "Hi"}
OPENLLMETRY = attributes_of(llm__request__type="chat", **PROMPT)
OPENINFERENCE = attributes_of(
    openinference__span__kind="LLM",
    llm__input_messages__0__message__role="user",
    llm__input_messages__0__message__content="Hi",
)
IN_EVENTS = [
    {"name": f"gen_ai.{role}.message", "attributes": attributes_of(gen_ai__system="openai", content=text)}
    for role, text in (("system", "Be brief."), ("user", "Hi"))
]
CONTENT_AS_JSON = {**PROMPT, "gen_ai__prompt__0__content": json.dumps([{"type": "text", "text": "Hi"}])}


@pytest.mark.parametrize(
    ("recorded", "texts"),
    [
        ({"attributes": OPENLLMETRY}, ["user: Hi"]),
        ({"attributes": attributes_of(llm__request__type="chat", **CONTENT_AS_JSON)}, ["user: Hi"]),
        ({"attributes": OPENINFERENCE}, ["user: Hi"]),
        ({"events": IN_EVENTS}, ["system: Be brief.", "user: Hi"]),
    ],
    ids=["OpenLLMetry", "OpenLLMetry, parts", "OpenInference", "events"],
)
def test_messages_may_be_attributes_or_events_of_their_own(
    tmp_path: Path, recorded: dict[str, Any], texts: list[str]
) -> None:
    found = load_of_traces(tmp_path, otlp({**span("t1", 0.0, 1.0, None), **recorded})).rows
    assert [texts_of_traces(prompt) for prompt in found] == [[texts]]


def test_recorded_tools_that_cannot_be_read_are_rejected(tmp_path: Path) -> None:
    tools = attributes_of(llm__request__functions__0__name="look")
    with pytest.raises(BadInput, match="1 x offers tools in an unknown format"):
        load_of_traces(tmp_path, otlp({**span("t1", 0.0, 1.0, None), "attributes": [*OPENLLMETRY, *tools]}))


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
     "line 2: none of 1 spans is a call of a model (gen_ai.operation.name chat or generate_content)"),
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
        load_of_traces(tmp_path, SESSION, row)
    assert problem in str(error.value)
    assert "line 2" in str(error.value)


@pytest.mark.parametrize("row", [SESSION, {"requests": [TIMED]}, otlp()], ids=["messages", "requests", "spans"])
def test_traces_are_recognised(tmp_path: Path, row: dict[str, Any]) -> None:
    assert guess_source(str(write(tmp_path, row))) is Source.AGENT_TRACES


def test_requests_that_end_with_a_question_are_no_sessions(tmp_path: Path) -> None:
    asked = {"id": "a", "messages": SESSION["messages"][:2]}
    assert guess_source(str(write(tmp_path, asked))) is Source.JSONL
