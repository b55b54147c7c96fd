"""The fence allows and refuses the same runs as the tables say; the admission policy is tested with the same tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import Problem
from specbench_api.fence.check import problems_of
from specbench_api.fence.fields import FENCED_FIELDS
from specbench_api.fence.model import Fence, matches
from specbench_testing.fenced_runs import ALLOWED, BASE, FENCE, OWN_REPOSITORY, REFUSED, Edits
from specbench_testing.resources import run_of

VALUES = Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml"


def found(edits: Edits, fence: Fence | None = None) -> list[Problem]:
    used = fence or Fence.from_json(json.dumps(FENCE))
    return problems_of(
        run_of({**BASE, **edits}).spec, used, own_images=[OWN_REPOSITORY], operator_accounts=["bench-op"]
    )


@pytest.mark.parametrize("edits", ALLOWED, ids=str)
def test_allows(edits: Edits) -> None:
    assert found(edits) == []


@pytest.mark.parametrize(("edits", "path"), REFUSED, ids=str)
def test_refuses_with_path_and_remedy(edits: Edits, path: str) -> None:
    (problem,) = found(edits)
    assert problem.path == f"spec.{path}"
    assert "this cluster" in problem.message or "operator's own identity" in problem.message
    assert problem.remedy


def test_always_refuses_the_operators_own_service_account() -> None:
    for field in ("serviceAccountName", "engineServiceAccountName"):
        (problem,) = found({f"spec.placement.{field}": "bench-op"})
        assert "the operator's own service account" in problem.message


def test_allows_everything_if_it_is_disabled() -> None:
    fence = Fence.from_json(json.dumps({**FENCE, "enabled": False}))
    assert [found(edits, fence) for edits, _ in REFUSED] == [[] for _ in REFUSED]


def test_the_tables_refuse_every_fenced_field() -> None:
    refused = {
        problem.remedy.partition("fence.")[2].partition(" ")[0] for edits, _ in REFUSED for problem in found(edits)
    }
    assert {field.allow_list for field in FENCED_FIELDS} <= refused


def test_the_model_reads_the_charts_values() -> None:
    values = yaml.safe_load(VALUES.read_text())["fence"]
    fence = Fence.from_json(json.dumps(values))
    assert fence.model_dump(mode="json", by_alias=True) == values


@pytest.mark.parametrize(
    ("text", "patterns", "expected"),
    [
        ("a", ["a"], True),
        ("ab", ["a"], False),
        ("a/b", ["a*"], True),
        ("a", [], False),
        ("", [], False),
        ("", [""], True),
        ("", ["*"], True),
        ("axb", ["a.b"], False),
        ("a[b]", ["a[b]"], True),
        ("b", ["a|b"], False),
        ("b", ["a", "b"], True),
        ("a\n", ["a"], False),
    ],
)
def test_a_pattern_is_literal_except_for_asterisks(text: str, patterns: list[str], expected: bool) -> None:
    assert matches(text, patterns) is expected


@given(st.text(), st.text())
def test_any_text_matches_itself_and_a_prefix_with_an_asterisk(before: str, after: str) -> None:
    assert matches(before + after, [before.replace("*", "") + "*"]) is (before + after).startswith(
        before.replace("*", "")
    )
