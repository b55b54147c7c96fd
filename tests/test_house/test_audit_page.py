"""docs/research/audit.md: every rule as the code has it, and the answer that it shows is the one that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_client.analysis.audit.report import RULES
from specbench_client.analysis.audit.rules.rule import AuditRule
from specbench_client.cli import exit_code

PAGE = (Path(__file__).resolve().parents[2] / "docs/research/audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_stands_on_the_page_word_for_word(rule: AuditRule) -> None:
    assert f"| {rule.name} | {rule.says} | {rule.why} | {rule.tolerance} |" in PAGE


def test_the_answer_that_the_page_shows_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "audit", "production-benchmark"]) == 3
    assert capsys.readouterr().out.strip() in PAGE


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["free-lunch", "--output", "json"], 3, '"rule": "AcceptanceLength"'),
        (["free-lunch", "--output", "markdown"], 3, "- **AcceptanceLength** (example, row 1)"),
        (["nothing.csv"], 2, "published tables are free-lunch, production-benchmark"),
        (["free-lunch", "--with", "k"], 2, "'k' is not COLUMN=VALUE"),
    ],
)
def test_the_command_answers_in_each_form(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "audit", *arguments]) == code
    told = capsys.readouterr()
    assert words in told.out + told.err


def test_a_table_without_known_columns_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("name of it,colour\na,red\n")
    assert exit_code(["analyze", "audit", str(tmp_path / "t.csv")]) == 2
    assert "no rule applies to its columns (unknown columns: name of it, colour)" in capsys.readouterr().err


def test_a_clean_table_ends_with_zero(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("method,k,AL,TPOT (ms),speedup\nnone,0,1,20,1\neagle3,3,2.4,10,1.9\n")
    assert exit_code(["analyze", "audit", str(tmp_path / "t.csv")]) == 0
