"""docs/research/audit.md: lists every rule as defined in the code, and shows the actual output of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_client.analysis.audit.report import RULES
from specbench_client.analysis.audit.rules.rule import AuditRule
from specbench_client.cli import exit_code

PAGE = (Path(__file__).resolve().parents[2] / "docs/research/audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_page_lists_every_rule_verbatim(rule: AuditRule) -> None:
    assert f"| {rule.name} | {rule.statement} | {rule.why} | {rule.tolerance} |" in PAGE


def test_the_page_shows_the_actual_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "audit", "production-benchmark"]) == 3
    assert capsys.readouterr().out.strip() in PAGE


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["free-lunch", "--output", "json"], 3, '"rule": "AcceptanceLength"'),
        (["free-lunch", "--output", "markdown"], 3, "- **AcceptanceLength** (example, row 1)"),
        (["nothing.csv"], 2, "published tables are free-lunch, production-benchmark"),
        (["free-lunch", "--with", "k"], 2, "'k' is not COLUMN=VALUE"),
    ],
)
def test_the_command_returns_the_exit_code_and_prints_each_format(
    arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "audit", *arguments]) == code
    printed = capsys.readouterr()
    assert expected in printed.out + printed.err


def test_a_table_without_known_columns_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("name of it,colour\na,red\n")
    assert exit_code(["analyze", "audit", str(tmp_path / "t.csv")]) == 2
    assert "no rule applies to its columns (unknown columns: name of it, colour)" in capsys.readouterr().err


def test_the_exit_code_for_a_clean_table_is_zero(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("method,k,AL,TPOT (ms),speedup\nnone,0,1,20,1\neagle3,3,2.4,10,1.9\n")
    assert exit_code(["analyze", "audit", str(tmp_path / "t.csv")]) == 0
