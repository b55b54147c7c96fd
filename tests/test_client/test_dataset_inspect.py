"""`specbench dataset`: inspection, length control and embeddings."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.exit_codes import Exit
from specbench_client.chat import ChatMessage
from specbench_client.cli import exit_code
from specbench_client.dataset import embeddings
from specbench_client.dataset.diversity import Vectors
from specbench_client.dataset.embeddings import BATCH, embed_prompts
from specbench_client.dataset.inspection import LEAST_JACCARD, copied_share, distribution, exact_groups, near_groups
from specbench_client.dataset.length_control import (
    ContextColumns,
    DoesNotFit,
    LengthRequest,
    PromptParts,
    TargetTokenizer,
    adjust_lengths,
    fit_prompt,
    split_context,
)
from specbench_client.dataset.prompt_entries import PromptEntry, read_entries
from specbench_client.dataset.tokenizers import load_reference_tokenizer, load_target_tokenizer
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.measure_flags import with_flag_names
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.present import present
from specbench_testing.reference_tokenizers import SmallTokenizer, o200k_table

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"


def words(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [f"w{generator.randrange(10_000)}" for _ in range(count)]


def shingles(text: str) -> set[tuple[str, ...]]:
    tokens = text.split()
    return {tuple(tokens[start : start + 5]) for start in range(max(1, len(tokens) - 4))}


def test_case_whitespace_and_width_do_not_distinguish_prompts() -> None:
    assert exact_groups(["Is  it\nso?", "is it so?", "ｉｓ it so?", "is it so"]) == [[0, 1, 2]]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(0, 1000))
@settings(deadline=None)
def test_near_duplicates_match_a_comparison_of_all_pairs(edits: list[int], seed: int) -> None:
    """The texts are three originals with copies that differ in some words."""
    texts = []
    for number, changed in enumerate(edits):
        text = words(seed + number % 3, 60)
        for place in range(changed):
            text[place * 20 + 1] = f"changed{number}"
        texts.append(" ".join(text))
    found = {place: group for group in near_groups(texts) for place in group}
    for first in range(len(texts)):
        for second in range(first):
            one, other = shingles(texts[first]), shingles(texts[second])
            if len(one & other) / len(one | other) >= LEAST_JACCARD:
                assert found[first] is found[second]
            if first % 3 != second % 3:
                assert found.get(first) is None or found[first] is not found.get(second)


def test_short_prompts_are_near_duplicates_only_with_equal_words() -> None:
    assert near_groups(["what is pi", "what is pi?", "what is e", "", "!!"]) == [[0, 1]]


def test_missing_token_table_is_rejected_or_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert inspect(tmp_path) == Exit.BAD_INPUT
    out = " ".join(capsys.readouterr().out.split())
    words = ("7 rows, 3 prompts, 4 turns", "placeholders: 1 (news 1)", "no o200k tokens: tiktoken's table")
    assert [each for each in words if each not in out] == []
    assert inspect(tmp_path, "--table", str(tmp_path / "none"), "--outputs", "source", "-o", "json") == 2
    assert "give the file o200k_base.tiktoken" in capsys.readouterr().err
    assert inspect(tmp_path, "--outputs", "source", "-o", "json") == Exit.BAD_INPUT
    assert "copiedShare" not in json.loads(capsys.readouterr().out)["overall"]


def test_distribution_of_values() -> None:
    found = present(distribution([1, 2, 3, 4]))
    assert (found.least, found.p50, found.most, found.mean, found.n) == (1, 2.5, 4, 2.5, 4)
    assert distribution([]) is None


def test_copied_share_counts_four_grams_of_the_prompt() -> None:
    prompt = "the quick brown fox jumps over the lazy dog"
    outputs = (prompt, "the quick brown fox sleeps", "nothing of that is here", "too short")
    assert [copied_share(prompt, each) for each in outputs] == [1.0, 0.5, 0.0, None]


ROWS: list[dict[str, object]] = [
    {
        "id": "a",
        "category": "qa",
        "prompt": "what is the answer to all of it",
        "output": "the answer to all of it is 42",
    },
    {"id": "a", "category": "qa", "prompt": "What is the  answer to all of it"},
    {"id": "b", "category": "chat", "turns": ["добрый день", "как дела"], "source": "own"},
    {"id": "c", "category": "chat", "turns": [f"{PLACEHOLDER}\n\n{{article}}"], "source": "news"},
    {"id": "d", "category": "chat", "prompt": ""},
    {"id": "e", "category": "chat"},
]


def inspect(tmp_path: Path, *further: str) -> int:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "not JSON\n")
    return exit_code(["dataset", "inspect", str(file), *further])


def test_all_problems_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", np.ones((3, 2)))
    assert inspect(tmp_path, "-o", "json", "--embeddings", str(tmp_path / "v.npy")) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert [f"line {number}" in printed.err for number in range(1, 8)] == [True, True, False, True, True, True, True]
    report = json.loads(printed.out)
    assert (report["rows"], report["prompts"], report["turns"], report["multiTurn"]) == (7, 3, 4, 1)
    assert report["placeholders"] == {"rows": 1, "byCategory": {"chat": 1}, "bySource": {"news": 1}, "first": ["c"]}
    assert report["unusable"]["rows"] == 3
    first = report["unusable"]["first"]
    assert ("line 5: prompt is empty" in first[0], "line 7: not JSON" in first[2]) == (True, True)
    assert report["duplicateIds"] == ["a"]
    assert report["exactDuplicates"] == {"groupsInAll": 1, "extra": 1, "groups": [["a", "a"]]}
    assert report["embeddings"] == str(tmp_path / "v.npy")
    chat, qa = report["categories"]
    assert "similarity" not in chat
    assert qa["similarity"] == pytest.approx(1)
    assert qa["copiedShare"]["n"] == 1
    assert 0 < qa["copiedShare"]["p50"] < 1


def test_a_row_without_a_prompt_is_rejected_as_by_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": "a", "prompt": "one"}\n{"id": "b"}\n')
    assert exit_code(["dataset", "inspect", str(file), "-o", "json"]) == Exit.BAD_INPUT
    report = json.loads(capsys.readouterr().out)
    assert (report["prompts"], report["unusable"]["rows"], report["unusable"]["rejected"]) == (1, 1, 1)
    assert report["unusable"]["first"][0].startswith("line 2: ")
    with pytest.raises(BadInput, match="line 2"):
        read_entries(file)


def test_remedy_of_a_file_without_prompts_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"id": id_, "said": "hello"}) + "\n" for id_ in (1, 2)))
    assert exit_code(["dataset", "inspect", str(file)]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert printed.err.count("is required, found none") == 2
    assert printed.err.count("--prompt-column") == 1


def test_a_file_is_rejected_in_the_words_of_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (ROWS[0], ROWS[3])))
    with pytest.raises(BadInput) as rejected:
        read_entries(file)
    assert "--allow-missing" in with_flag_names(str(rejected.value))
    assert exit_code(["dataset", "inspect", str(file)]) == Exit.BAD_INPUT
    assert with_flag_names(str(rejected.value)) in capsys.readouterr().err


def test_rows_that_the_source_leaves_out_do_not_reject_the_file(tmp_path: Path) -> None:
    human, gpt = {"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}
    file = tmp_path / "in.jsonl"
    file.write_text(
        "".join(json.dumps({"id": str(len(said)), "conversations": said}) + "\n" for said in ([human, gpt], [gpt]))
    )
    arguments = ["dataset", "inspect", str(file), "--source", "sharegpt"]
    assert exit_code(arguments) == Exit.OK


RULER = SmallTokenizer()
TEXTS = st.text(st.sampled_from("abcde  \n.é世🙂"), max_size=60)


def tokens(text: str) -> int:
    return len(RULER.encode_ordinary(text))


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 200), st.lists(TEXTS, max_size=4))
@settings(deadline=None)
def test_fitted_prompt_is_near_its_length_and_changes_only_the_context(
    before: str, context: str, after: str, target: int, filler: list[str]
) -> None:
    frame = tokens(before + after)
    try:
        found = fit_prompt(PromptParts(before, context, after), target, RULER, filler)
    except DoesNotFit:
        enough = tokens(before + "\n\n".join([context, *filler]) + after) >= target
        assert frame > target or not enough
        return
    assert found.text.startswith(before)
    assert found.text.endswith(after)
    assert "\ufffd" not in found.text
    assert found.tokens == tokens(found.text) <= target
    assert found.tokens >= target - 6  # a character of four bytes, and a letter that joins at either seam
    kept = found.text[len(before) : len(found.text) - len(after)]
    assert "\n\n".join([context, *filler]).startswith(kept)


def test_long_context_is_truncated_and_short_one_is_extended() -> None:
    parts = PromptParts("", "aaa bbb ccc ddd", "\n\nwhy?")
    assert fit_prompt(parts, 10, RULER).text == "aaa bbb ccc \n\nwhy?"
    assert fit_prompt(parts, 14, RULER, ["eee fff"]).text == "aaa bbb ccc ddd\n\neee\n\nwhy?"
    assert fit_prompt(parts, tokens("aaa bbb ccc ddd\n\nwhy?"), RULER).text == "aaa bbb ccc ddd\n\nwhy?"


def test_prompt_that_cannot_be_fitted_is_rejected_with_a_reason() -> None:
    with pytest.raises(DoesNotFit, match="it has 12 tokens without its context"):
        fit_prompt(PromptParts("", "aaa", "!" * 12), 8, RULER)
    with pytest.raises(DoesNotFit, match="it has only 3 tokens with all available filler"):
        fit_prompt(PromptParts("", "aaa", "!!"), 8, RULER, [])


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"context": "C", "instruction": "I"}, ContextColumns(), PromptParts("", "C", "\n\nI")),
        (
            {"context": "{instruction}", "instruction": "{context}"},
            ContextColumns(),
            PromptParts("", "{instruction}", "\n\n{context}"),
        ),
        (
            {"context": "C", "instruction": "I"},
            ContextColumns("{instruction}: <{context}>"),
            PromptParts("I: <", "C", ">"),
        ),
        (
            {"prompt": "Read <d>C</d> now"},
            ContextColumns(marks=("<d>", "</d>")),
            PromptParts("Read <d>", "C", "</d> now"),
        ),
        ({"turns": ["<d>C"]}, ContextColumns(marks=("<d>", "C")), PromptParts("<d>", "", "C")),
    ],
)
def test_context_is_found_by_columns_template_or_marks(
    columns: dict[str, object], options: ContextColumns, expected: PromptParts
) -> None:
    assert split_context(columns, options) == expected


@pytest.mark.parametrize(
    ("columns", "options", "word"),
    [
        ({"prompt": "all in one"}, ContextColumns(), "its column context is missing.*--marks"),
        ({"context": "C", "instruction": 7}, ContextColumns(), "its column instruction is not a text"),
        ({"prompt": "no marks"}, ContextColumns(marks=("<d>", "</d>")), "does not contain '<d>'"),
        (
            {"prompt": "</d> the wrong way <d>"},
            ContextColumns(marks=("<d>", "</d>")),
            "does not contain '<d>' followed by '</d>'",
        ),
        ({"turns": ["one", "two"]}, ContextColumns(marks=("<d>", "</d>")), "several turns have no single length"),
    ],
)
def test_row_without_a_context_is_rejected_with_a_remedy(
    columns: dict[str, object], options: ContextColumns, word: str
) -> None:
    with pytest.raises(DoesNotFit, match=word):
        split_context(columns, options)


def test_invalid_templates_and_marks_are_rejected() -> None:
    with pytest.raises(BadInput, match="once each"):
        ContextColumns("{context} alone")
    with pytest.raises(BadInput, match="non-empty"):
        ContextColumns(marks=("<d>", ""))


def row(name: str, context: str, category: str = "docs") -> PromptRow:
    return PromptRow(
        name, {"id": name, "category": category, "context": context, "instruction": "why?", "team": "blue"}
    )


def test_short_context_is_filled_from_its_category_without_repetition() -> None:
    rows = [row("b", "bbb"), row("c", "ccc"), row("a", "aaa"), row("twin", "bbb"), row("z", "zzz", "other")]
    written, report = adjust_lengths(rows, LengthRequest(11, ContextColumns(), fewer=True), RULER)
    assert {one["id"]: one["prompt"] for one in written} == {
        "b": "bbb\n\nccc\n\naaa\n\nwhy?",
        "c": "ccc\n\nbbb\n\naaa\n\nwhy?",
        "a": "aaa\n\nbbb\n\nccc\n\nwhy?",
        "twin": "bbb\n\naaa\n\nccc\n\nwhy?",
    }
    assert {name: value for name, value in written[0].items() if name != "prompt"} == {
        "id": "b",
        "category": "docs",
        "team": "blue",
        "o200k_tokens": 11,
    }
    assert [one.id for one in report.left_out] == ["z"]
    assert (report.rows, report.written, report.cut) == (5, 4, 0)


def test_rows_that_do_not_fit_are_rejected_together() -> None:
    with pytest.raises(BadInput, match=r"r0: its column context(.|\n)*and 2 more of 7 rows\nAdd --allow-fewer"):
        adjust_lengths(
            [PromptRow(f"r{n}", {"id": f"r{n}", "prompt": "x"}) for n in range(7)],
            LengthRequest(9, ContextColumns()),
            RULER,
        )


def test_target_tokenizer_lengths_are_reported_too() -> None:
    written, report = adjust_lengths(
        [row("a", "aaa bbb ccc")], LengthRequest(9, ContextColumns()), RULER, TargetTokenizer(len, "abc")
    )
    assert written[0]["target_tokens"] == len(str(written[0]["prompt"]))
    assert report.target_tokenizer is not None
    assert report.target_tokenizer.most == written[0]["target_tokens"]


@pytest.mark.process
def test_prompts_of_real_text_have_the_requested_token_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = o200k_table()
    words = ["Überall ", "世界 ", "naïve ", "🙂 ", "specification ", "1234567 "]
    rows = [
        {
            "id": f"q{n}",
            "context": "".join(words[(n * k) % 6] for k in range(1, 200 + 40 * n)),
            "instruction": "Sum it up.",
        }
        for n in range(12)
    ]
    file, to = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    command = ["dataset", "prepare", str(file), "--isl", "1k", "--table", str(table), "--to", str(to), "-o", "json"]
    assert exit_code(command) == 0
    report = json.loads(capsys.readouterr().out)
    ruler = load_reference_tokenizer(table)
    for line in to.read_text().splitlines():
        prompt = json.loads(line)["prompt"]
        assert prompt.endswith("\n\nSum it up.")
        assert 996 <= len(ruler.encode_ordinary(prompt)) <= 1000
    assert report["written"] == 12
    assert report["exact"] >= 8


@pytest.mark.parametrize("isl", ["0", "8K", "8.5k", "-3", "many"])
def test_invalid_token_count_is_rejected(isl: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    assert exit_code(["dataset", "prepare", str(tmp_path / "in.jsonl"), f"--isl={isl}", "--to", "out.jsonl"]) == 2
    assert "give for example 8000 or 8k" in capsys.readouterr().err


def test_invalid_or_missing_tables_and_tokenizers_are_rejected_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(BadInput, match="or give the file with --table"):
        load_reference_tokenizer()
    (tmp_path / "wrong").write_text("IQ== 0\n")
    with pytest.raises(BadInput, match="its SHA-256 differs"):
        load_reference_tokenizer(tmp_path / "wrong")
    with pytest.raises(BadInput, match="No such file"):
        load_reference_tokenizer(tmp_path / "none")
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match=r"its tokenizer\.json cannot be read"):
        load_target_tokenizer(tmp_path)


def entry(name: str, text: str) -> PromptEntry:
    return PromptEntry(Prompt(name, None, ((ChatMessage("user", text),),)), {})


def check_progress(done: int, total: int) -> None:
    assert done <= total


def direction(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(text.count("a"))]


@dataclass
class Server:
    """An embedding endpoint that returns rows in reverse order, after the status codes in `failures`."""

    failures: list[int] = field(default_factory=list)
    always: int | None = None
    inputs: list[list[str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    def answer(self, request: Request) -> Reply:
        body = json.loads(request.body)
        self.keys.append(request.headers.get("Authorization"))
        if self.always or self.failures:
            return self.always or self.failures.pop(), {}, b"not now"
        assert body["model"] == "m"
        self.inputs.append(body["input"])
        rows = [{"index": index, "embedding": direction(text)} for index, text in enumerate(body["input"])]
        return 200, {"Content-Type": "application/json"}, json.dumps({"data": rows[::-1]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    with http_server(found.answer) as port:
        found.url = f"http://127.0.0.1:{port}/v1"
        yield found


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "PAUSES_S", (0.0,) * len(embeddings.PAUSES_S))


def embed(source: str, *entries: PromptEntry, **further: Any) -> Vectors:
    return embed_prompts(source, entries, check_progress, model="m", **further)[1]


def unit(*rows: list[float]) -> Any:
    raw = np.array(rows)
    return pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)


def test_each_distinct_text_is_sent_once_and_vectors_match_their_prompts(server: Server) -> None:
    entries = [entry(f"p{number}", "a" * (number % 100 + 1)) for number in range(300)]
    vectors = embed(server.url, *entries, headers={"Authorization": "Bearer secret"})
    assert sorted(text for batch in server.inputs for text in batch) == sorted({one.text for one in entries})
    assert max(map(len, server.inputs)) <= BATCH
    assert vectors == unit(*(direction(one.text) for one in entries))
    assert set(server.keys) == {"Bearer secret"}


def test_busy_server_is_retried(server: Server) -> None:
    server.failures = [429, 503, 500]
    assert embed(server.url, entry("p", "one")) == unit(direction("one"))


def test_server_that_stays_busy_or_is_not_there_fails_after_the_maximum_of_tries(server: Server) -> None:
    server.always = 503
    with pytest.raises(EngineFailed, match="HTTP 503"):
        embed(server.url, entry("p", "one"))
    assert len(server.keys) == len(embeddings.PAUSES_S) + 1
    with pytest.raises(EngineFailed, match=r"127\.0\.0\.1"):
        embed("http://127.0.0.1:9/v1", entry("p", "x"))


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (307, "--embeddings"),
        (404, "--embeddings"),
        (405, "--embeddings"),
        (400, "3 characters"),
        (401, "--api-key-env"),
    ],
)
def test_rejected_text_is_not_retried(status: int, remedy: str, server: Server) -> None:
    server.always = status
    with pytest.raises(BadInput, match=f"HTTP {status}: not now: .*{remedy}"):
        embed(server.url, entry("p", "one"))
    assert len(server.keys) == 1


def test_the_url_may_have_the_route_of_embeddings(server: Server) -> None:
    assert embed(f"{server.url}/embeddings", entry("p", "one")) == unit(direction("one"))


def test_local_model_encodes_distinct_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("sentence_transformers")
    encode = lambda texts, show_progress_bar: [direction(text) for text in texts]  # noqa: E731
    library.SentenceTransformer = lambda _: SimpleNamespace(encode=encode)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    assert embed("local", entry("p", "one"), entry("q", "a"), entry("r", "one")) == unit(
        *map(direction, ("one", "a", "one"))
    )


ENTRIES = [entry("p", "x"), entry("q", "y")]


def write_vectors(file: Path) -> str:
    if file.suffix == ".npy":
        np.save(file, np.array([[3, 4], [0, 2]], dtype=np.float32))
    else:
        rows = {"id": ["q", "p", "other"], "embedding": [[0.0, 2.0], [3.0, 4.0], [1.0, 1.0]]}
        pq.write_table(pa.table(rows), file)
    return str(file)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_vectors_from_a_file_match_their_prompts(name: str, tmp_path: Path) -> None:
    assert embed(write_vectors(tmp_path / name), *ENTRIES) == unit([3, 4], [0, 2])


@pytest.mark.parametrize(
    ("name", "word"), [("v.npy", r"shape \(2, 2\) for 3 prompts"), ("v.parquet", "no embedding of the prompt 'z'")]
)
def test_file_without_every_prompt_is_rejected(name: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=word):
        embed(write_vectors(tmp_path / name), *ENTRIES, entry("z", "z"))


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_unreadable_file_is_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"{name}: cannot be read as embeddings"):
        embed(str(tmp_path / name), *ENTRIES)


def test_token_ids_cannot_be_embedded(server: Server) -> None:
    with pytest.raises(BadInput, match=r"'t' .*token ids"):
        embed(server.url, PromptEntry(Prompt("t", None, ((ChatMessage("user", "", (1, 2)),),)), {}))


@pytest.mark.parametrize(
    ("source", "model", "word"),
    [("http://x/v1", None, "requires --model"), ("local", None, "requires --model"), ("vectors.csv", "m", "give http")],
)
def test_invalid_sources_are_rejected_with_a_remedy(source: str, model: str | None, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        embed_prompts(source, ENTRIES, check_progress, model=model)
