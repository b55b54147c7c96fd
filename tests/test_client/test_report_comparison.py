"""The pull-request comment: verdict first, one screen, limited length, and escaped Markdown."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from specbench_api.spec.conditions import GateReason
from specbench_client.documents.comparison import (
    ComparedFigure,
    Comparison,
    ComparisonGap,
    ComparisonGapReason,
    Difference,
    GateReport,
    GateTest,
    GateTestOutcome,
)
from specbench_client.documents.figure import Figure, FigureInterval, Verdict
from specbench_client.report.table_renderers import fit_columns, rich_table
from specbench_client.report.text.comparison import (
    LENGTH_MAX,
    ROWS_MAX,
    comparison_markdown,
    comparison_notes,
    comparison_table,
    gate_markdown,
    gate_table,
)
from specbench_client.report.text.text_table import TextTable
from specbench_testing.gate_reports import gate_report, side

INTERVAL = FigureInterval(low=0.806, high=0.875, method="m")


def compared_figure(**changes: Any) -> ComparedFigure:
    fields: dict[str, Any] = {
        "arm": "ngram",
        "workload": "chat",
        "load": "1",
        "metric": "tpot",
        "unit": "ms",
        "before": 5.69,
        "after": 6.87,
        "ratio": Figure(value=0.84, unit="ratio", definition="d", n=9, interval=INTERVAL, source="both"),
        "more_is_better": False,
        "conclusion": Verdict.WORSE,
        "repeats": (3, 3),
    }
    return ComparedFigure(**{**fields, **changes})


def gate_test(**changes: Any) -> GateTest:
    fields: dict[str, Any] = {
        "compared": compared_figure(),
        "max_regression_percent": 5,
        "limit": 1.05,
        "low": 0.806,
        "high": 0.875,
        "outcome": GateTestOutcome.FAILED,
    }
    return GateTest(**{**fields, **changes})


def report_of(reason: GateReason = GateReason.REGRESSED, **changes: Any) -> GateReport:
    return gate_report(reason).model_copy(update={"tests": [gate_test()], **changes})


def gaps(count: int = 1, message: str = "the later result does not have it") -> list[ComparisonGap]:
    return [
        ComparisonGap(
            arm=f"a{row}", workload="chat", load="1", reason=ComparisonGapReason.MISSING_AFTER, message=message
        )
        for row in range(count)
    ]


def test_comment_starts_with_the_verdict_then_tests_then_differences() -> None:
    gpu = Difference(name="GPU", before="H100", after="H200")
    report = report_of(message="1 of 1 tests", differences=[gpu], uncompared=gaps())
    lines = gate_markdown(report, "https://ci/report.html").splitlines()
    assert lines[0] == "### ❌ specbench: Gate failed: 1 of 1 tests regressed"
    assert lines[2] == "1 of 1 tests"
    row = "| ❌ Failed | ngram | chat | 1 | tpot | 5.69 ms | 6.87 ms | 0.840 [0.806, 0.875] | ≤ 1.050 |"
    assert row in lines
    assert "- Different: GPU H100 → H200" in lines
    assert "- Not compared: a0 on chat at 1: the later result does not have it" in lines
    assert any("[Report](https://ci/report.html)" in line for line in lines)


def printed(*sheets: TextTable) -> str:
    """Return what a terminal of 160 columns shows."""
    text = io.StringIO()
    for sheet in sheets:
        Console(file=text, width=160).print(rich_table(sheet, 160))
    return text.getvalue()


@pytest.mark.parametrize(
    ("reason", "passed", "head"),
    [
        (GateReason.PASSED, True, "✅ specbench: Gate passed"),
        (GateReason.REGRESSED, False, "❌ specbench: Gate failed: 1 of 1 tests regressed"),
        (GateReason.INCONCLUSIVE, False, "❌ specbench: Gate not passed: Inconclusive"),
        (GateReason.INCONCLUSIVE, True, "✅ specbench: Gate passed (inconclusive, which this gate lets pass)"),
        (GateReason.NOT_COMPARABLE, False, "❌ specbench: Gate not passed: NotComparable"),
    ],
)
def test_comment_title_shows_the_gates_reason(reason: GateReason, passed: bool, head: str) -> None:
    assert gate_markdown(report_of(reason, passed=passed)).splitlines()[0].startswith(f"### {head}")


def test_limit_is_inverted_for_more_is_better_and_missing_interval_is_marked() -> None:
    speed = compared_figure(metric="speedup", unit="ratio", more_is_better=True, conclusion=Verdict.NO_INTERVAL)
    text = gate_markdown(report_of(tests=[gate_test(compared=speed, limit=0.95, low=None, high=None)]))
    assert "| speedup | 5.69 | 6.87 | 0.840 (no interval) | ≥ 0.950 |" in text


def test_comment_of_many_tests_is_limited_and_counts_the_others() -> None:
    text = gate_markdown(report_of(tests=[gate_test()] * (ROWS_MAX + 7), uncompared=gaps(30)))
    assert text.count("| ❌ Failed |") == ROWS_MAX
    assert "… and 7 more tests, in gate.json" in text
    assert "… and 18 more that were not compared, in gate.json" in text


@pytest.mark.parametrize("long", [{"message": "x" * 200_000}, {"limits": ["y" * 200_000]}])
def test_comment_is_never_longer_than_the_limit(long: dict[str, Any]) -> None:
    text = gate_markdown(report_of(**long, uncompared=gaps(30, "z" * 100_000)))
    assert len(text) <= LENGTH_MAX
    assert text.startswith("### ❌")


def test_names_and_messages_are_escaped_in_markdown() -> None:
    evil = "a|b\n\n# <script>@team `x` [l](u)*"
    text = gate_markdown(report_of(tests=[gate_test(compared=compared_figure(arm=evil))], message=evil))
    row = next(line for line in text.splitlines() if "Failed |" in line)
    assert row.count(" | ") == 8
    assert "<script>" not in text
    assert "@team" not in text
    assert "\\[l\\](u)" in text


def test_simulated_results_are_marked_in_every_output() -> None:
    simulated = side("pr", "results/pr").model_copy(update={"simulated": True})
    report, compared = report_of(after=simulated), comparison_of(after=simulated)
    for text in (gate_markdown(report), comparison_markdown(compared)):
        assert text.splitlines()[2] == "> **Simulated. These numbers are not a measurement of any engine.**"
    assert printed(gate_table(report), comparison_table(compared)).count("(simulated, not a measurement)") == 2


def comparison_of(**changes: Any) -> Comparison:
    fields: dict[str, Any] = {
        "created": "2026-01-02T03:04:05Z",
        "before": side("main", "results/main"),
        "after": side("pr", "results/pr"),
        "cells": [compared_figure()],
    }
    return Comparison(**{**fields, **changes})


def test_comparison_shows_before_after_ratio_and_conclusion() -> None:
    text = comparison_markdown(comparison_of())
    assert "### specbench: main → pr" in text
    assert "| ngram | chat | 1 | tpot | 5.69 ms | 6.87 ms | 0.840 [0.806, 0.875] | worse |" in text


def test_terminal_tables_show_the_same_content() -> None:
    shown = printed(gate_table(report_of()), comparison_table(comparison_of()))
    words = ("Gate failed", "❌ Failed", "≤ 1.050", "main → pr", "0.840 [0.806, 0.875]", "worse")
    assert [word for word in words if word not in shown] == []
    gpu = Difference(name="GPU", before="H100", after="H200")
    assert comparison_notes([gpu], gaps()) == [
        "differs: GPU H100 → H200",
        "not compared: a0 on chat at 1: the later result does not have it",
    ]


def test_narrow_terminal_keeps_what_decides_a_gate() -> None:
    left, dropped = fit_columns(gate_table(report_of()), 80)
    assert dropped == ["Workload", "Before"]
    assert list(left.columns) == ["Outcome", "Arm", "Load", "Metric", "After", "After / before", "Limit"]
    several = report_of(tests=[gate_test(), gate_test(compared=compared_figure(workload="edits"))])
    assert "Workload" in fit_columns(gate_table(several), 80)[0].columns, "it names the rows"
