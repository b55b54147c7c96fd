"""Length control: never above the target, rarely below it, instructions intact; and SPEED-Bench's method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_client.cli import exit_code
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
from specbench_client.dataset.tokenizers import load_reference_tokenizer, load_target_tokenizer
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_testing.reference_tokenizers import SmallTokenizer, o200k_table

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
    with pytest.raises(BadInput, match=r"is not a valid tokenizer\.json"):
        load_target_tokenizer(tmp_path)
