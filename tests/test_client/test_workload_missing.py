"""Rows without a sendable text: rejected with counts and names, or left out on request and reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specbench_api.spec.dataset import Dataset
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import PromptRow
from specbench_client.workload.prompts import Prompts, select_prompts
from specbench_client.workload.row_validation import TOOLS as WITH_TOOLS
from specbench_testing.present import present

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
            "s3://b/speed/: 16 of 20 rows have no text that can be sent: row 2 (s1, rag), row 3 (s2, stem),"
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
            r"1 of 2 rows have no text that can be sent: row 2 \(s1, rag\)",
        ),
        ([row(0, licensed=False, turns=[""]), *ROWS[1:]], {"allowMissing": True}, r"row 1: turns\[0\] is empty"),
        ([row(1, licensed=True)], {"allowMissing": True}, "none of the 1 rows passes the filters"),
    ],
    ids=["a placeholder in a later turn", "a broken row", "no usable row"],
)
def test_rows_are_rejected(rows: list[PromptRow], declared: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(rows, **declared)


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
TRAJECTORY = [
    {"role": "system", "content": "Mend it.", "tool_calls": None, "tool_call_id": None},
    {"role": "user", "content": "Hi", "tool_calls": None, "tool_call_id": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "tool_call_id": None},
    {"role": "tool", "content": "{}", "tool_calls": None, "tool_call_id": "c1"},
    {"role": "assistant", "content": "Done.", "tool_calls": [], "tool_call_id": None},
    {"role": "user", "content": "Sure?", "tool_calls": None, "tool_call_id": None},
]
"""As read from Parquet: every message has every column."""
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def agentic(*rows: PromptRow, with_tools: bool, **declared: Any) -> Prompts:
    dataset = {"source": "speed-bench", "uri": "agentic.jsonl", "config": "agentic", **declared}
    return select_prompts(rows, Dataset.model_validate(dataset), with_tools=with_tools)


def test_each_answer_of_a_trajectory_is_one_request_with_its_history() -> None:
    extras = json.dumps({"tools": json.dumps(TOOLS)})
    found = agentic(row(0, licensed=False, turns=TRAJECTORY, extras=extras), with_tools=True)

    assert [prompt.id for prompt in found.rows] == ["s0/step-1", "s0/step-2", "s0/step-3"]
    assert [[one.role for one in prompt.turns[0]] for prompt in found.rows] == [
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
        ["system", "user", "assistant", "tool", "assistant", "user"],
    ]
    assert {prompt.turns[0][0].tools for prompt in found.rows} == {json.dumps(TOOLS)}
    called = json.loads(found.rows[2].turns[0][2].further)
    assert called["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": "x"}}
    assert found.coverage is not None
    assert (found.coverage.rows, found.coverage.requested, found.coverage.used) == (3, 3, 3)


def test_trajectories_with_tools_need_a_client_side_template() -> None:
    plain = row(1, licensed=False, turns=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
    rows = [row(0, licensed=False, turns=TRAJECTORY), plain]
    with pytest.raises(BadInput, match=r"2 of 4 rows have no text.*(.|\n)*appliedBy: Client to send those with tools"):
        agentic(*rows, with_tools=False)

    found = agentic(*rows, with_tools=False, allowMissing=True)

    assert [prompt.id for prompt in found.rows] == ["s0/step-1", "s1/step-1"]
    assert present(found.coverage).unusable == {WITH_TOOLS: 2}
