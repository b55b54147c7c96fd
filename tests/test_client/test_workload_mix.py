"""Mixes by weight."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.prompt_coverage import MemberCoverage
from specbench_api.spec.dataset import Dataset, Member
from specbench_client.errors import BadInput
from specbench_client.workload.prompts import Prompts, load_prompts
from specbench_client.workload.selection import turns_of


def load_mix(tmp_path: Path, count: int | None, **rows: int) -> Prompts:
    members: list[dict[str, Any]] = []
    for name, weight in {"qa": 3, "code": 1}.items():
        lines = [{"id": f"{number}", "prompt": f"{name} {number}"} for number in range(rows.get(name, 9))]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        members.append({"name": name, "weight": weight, "source": "jsonl", "uri": f"{name}.jsonl"})
    members[0]["outputTokens"] = {"min": 20, "max": 150}
    dataset = {"source": "mix", "members": members, **({} if count is None else {"count": count})}
    return load_prompts(Dataset.model_validate(dataset), tmp_path)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 300))
def test_every_member_stays_within_one_turn_of_its_share(weights: list[int], turns: int) -> None:
    members = [
        Member.model_validate({"name": f"m{place}", "weight": weight, "source": "gsm8k"})
        for place, weight in enumerate(weights)
    ]
    member_turns = turns_of(members)
    counts = Counter(next(member_turns).name for _ in range(turns))

    shares = {member.name: member.weight / sum(weights) * turns for member in members}
    assert all(counts[name] < share + 1 for name, share in shares.items())
    assert all(counts[name] > share - len(weights) for name, share in shares.items())


def test_mix_is_interleaved_and_named_by_its_members(tmp_path: Path) -> None:
    found = load_mix(tmp_path, 8)

    assert Counter(prompt.category for prompt in found.rows) == {"qa": 6, "code": 2}
    assert [prompt.id for prompt in found.rows[:4]] == ["qa/0", "qa/1", "code/0", "qa/2"]
    coverage = found.coverage
    assert coverage is not None
    assert (coverage.rows, coverage.requested, coverage.used) == (18, 18, 8)
    assert coverage.members == {
        "qa": MemberCoverage(source="jsonl", share=0.75, output_tokens_min=20, output_tokens_max=150),
        "code": MemberCoverage(source="jsonl", share=0.25),
    }


def test_mix_without_a_count_ends_with_its_first_exhausted_member(tmp_path: Path) -> None:
    assert Counter(prompt.category for prompt in load_mix(tmp_path, None, qa=6).rows) == {"qa": 6, "code": 2}


def test_member_with_too_few_prompts_is_rejected_with_the_needed_number(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"members\[qa\]: a mix of 16 needs 12 of its prompts, but there are only 9"):
        load_mix(tmp_path, 16)


def test_mix_too_small_for_a_member_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"members\[code\]: none of its prompts fits into a mix of 2: raise its"):
        load_mix(tmp_path, 2)


def test_error_in_a_member_is_reported_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"code\.jsonl: contains no rows"):
        load_mix(tmp_path, 4, code=0)
