"""docs/audit.md: every rule as the code has it, and the answer that it shows is the one that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_client.analysis.audit.rule import Rule
from specbench_client.analysis.audit.rules.table import RULES
from specbench_client.cli import exit_code

PAGE = (Path(__file__).resolve().parents[2] / "docs/audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_stands_on_the_page_word_for_word(rule: Rule) -> None:
    assert f"| {rule.name} | {rule.says} | {rule.why} | {rule.tolerance} |" in PAGE


def test_the_answer_that_the_page_shows_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["audit", "production-benchmark"]) == 3
    assert capsys.readouterr().out.strip() in PAGE


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["free-lunch", "--output", "json"], 3, '"rule": "AcceptanceLength"'),
        (["free-lunch", "--output", "markdown"], 3, "- **AcceptanceLength** (example, row 1)"),
        (["nothing.csv"], 2, "nor one of the shipped tables: free-lunch, production-benchmark"),
        (["free-lunch", "--with", "k"], 2, "'k' is not COLUMN=VALUE"),
    ],
)
def test_the_command_answers_in_each_form(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["audit", *arguments]) == code
    told = capsys.readouterr()
    assert words in told.out + told.err


def test_a_table_of_which_nothing_can_be_asked_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("name of it,colour\na,red\n")
    assert exit_code(["audit", str(tmp_path / "t.csv")]) == 2
    assert "no rule can be asked of its columns (not known: name of it, colour)" in capsys.readouterr().err


def test_a_clean_table_ends_with_zero(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("method,k,AL,TPOT (ms),speedup\nnone,0,1,20,1\neagle3,3,2.4,10,1.9\n")
    assert exit_code(["audit", str(tmp_path / "t.csv")]) == 0
