"""SECURITY.md: every guarantee names tests that exist, and the table of fuzzing has the numbers of these tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from specbench_testing.fuzzing import SEED_VARIABLE, seed_parameters, shifted

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = sorted(set(TEST.findall(PAGE)))


def rows_of(heading: str) -> list[list[str]]:
    """The cells of each row of the table below a heading, without the head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


@cache
def functions_of(file: Path) -> set[str]:
    """The names of a module's test functions."""
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("file", "function"), NAMED, ids=lambda value: value)
def test_a_named_test_exists(file: str, function: str) -> None:
    assert function.startswith("test_")
    assert function in functions_of(ROOT / file)


def test_every_guarantee_names_a_test() -> None:
    guarantees = rows_of("Guarantees")
    assert len(guarantees) > 20
    assert [row for row in guarantees if not TEST.findall(row[-1])] == []


def module(file: str) -> Any:
    """A test module, for its constants."""
    spec = spec_from_file_location(f"security_page_{Path(file).stem}", ROOT / file)
    assert spec
    assert spec.loader
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_table_of_fuzzing_has_the_cases_and_seeds_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    specs = module("tests/test_operator/test_fuzzed_specs.py")
    results = module("tests/test_client/test_fuzzed_results.py")
    answers = module("tests/test_client/test_hostile_fuzz.py")
    sizes = [
        (specs.SEEDS, specs.CASES),
        (results.SEEDS, results.CASES),
        (answers.STREAMED_BLOCKS, answers.ANSWERS_PER_BLOCK),
        (answers.CONTROL_BLOCKS, answers.ANSWERS_PER_BLOCK),
    ]
    expected = [[f"{len(seeds) * cases:,}", f"{seeds[0]}–{seeds[-1]}, {cases} each"] for seeds, cases in sizes]
    assert [row[1:3] for row in rows_of("Fuzzing")] == expected


def test_make_test_runs_the_first_seed_and_make_test_long_the_others() -> None:
    first = [each.values for each in seed_parameters(range(3)) if "long" not in {mark.name for mark in each.marks}]
    assert first == [(0,)]


def test_other_seeds_are_given_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SEED_VARIABLE in PAGE
    monkeypatch.setenv(SEED_VARIABLE, "1000")
    assert shifted(range(10, 12)) == range(1010, 1012)
