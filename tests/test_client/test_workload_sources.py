"""Prompt sources: each reads its publisher's row format and reports bad rows."""

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

from specbench_api.errors import InvalidSpec
from specbench_api.spec.dataset import CONFIGS, GENERATED_SOURCES, Dataset, Source
from specbench_client.dataset.tokenizers import load_reference_tokenizer
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import Prompts, load_prompts
from specbench_client.workload.sources.random_words import WORDS, random_text
from specbench_client.workload.sources.registry import LOADERS
from specbench_client.workload.sources.tasks import order_of_choices
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
        (Source.SHAREGPT, {"conversations": ["x", "y"]}, "conversations[0] is not a message"),
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


def test_s3_folder_is_read_by_config(tmp_path: Path) -> None:
    data = (json.dumps(PUBLISHED_ROWS[Source.SPEED_BENCH]) + "\n").encode()

    def fetch(uri: str) -> bytes:
        if uri == "s3://b/speed/qualitative.jsonl":
            return data
        raise BadInput(f"{uri}: there is no such object")

    declared = Dataset(source=Source.SPEED_BENCH, config="qualitative", uri="s3://b/speed/")
    assert texts(load_prompts(declared, tmp_path, fetch)) == [["a", "b"]]
    with pytest.raises(BadInput, match=r"s3://b/other/qualitative/test\.parquet: there is no such object"):
        load_prompts(declared.model_copy(update={"uri": "s3://b/other/"}), tmp_path, fetch)


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
        assert all(hub(config).name for config in configs)


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
