"""Text tables: figures are never cut on a terminal, and cells are escaped in Markdown."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specbench_client.documents.figure import Figure
from specbench_client.report.renderers import escape_markdown, fit_columns, markdown_table, markdown_topics, rich_table
from specbench_client.report.text.text_table import TextTable, Topic, with_interval

SHEET = TextTable(
    "Speed-up of [bold]a[/bold]",
    ("Arm", "TTFT ms\np50/p99", "Speed-up [95 %]", "Says"),
    [("ngram", "1,033/1,871", "1.234 [0.983, 1.424]", "[red]indistinguishable[/red]"), ("none", "–", "", "baseline")],
    words=("Arm", "Says"),
    styles=("red", ""),
    caption="trust [it]",
)


def render(sheet: TextTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(rich_table(sheet, width))
    return console.export_text()


def columns(text: str) -> list[str]:
    """Return the text of each column, joined over wrapped lines."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return ["".join("".join(parts).split()) for parts in zip(*lines, strict=True)]


@pytest.mark.parametrize("width", range(30, 121, 6))
def test_figures_are_complete_at_every_terminal_width(width: int) -> None:
    expected = ["".join("".join(row[place] for row in SHEET.rows).split()) for place in range(4)]
    assert columns(render(SHEET, width)) == expected


def test_texts_are_wrapped_before_numbers() -> None:
    assert "1.234 [0.983, 1.424]" in render(SHEET, 70)
    assert "[red]indistinguishable[/red]" not in render(SHEET, 70)


def test_narrow_terminal_drops_optional_columns_in_order_and_names_them() -> None:
    sheet = replace(SHEET, optional=("TTFT ms\np50/p99", "Says"))
    assert fit_columns(sheet, 120)[1] == []
    narrow, dropped = fit_columns(sheet, 70)
    assert dropped == ["TTFT ms\np50/p99"]
    assert narrow.columns == ["Arm", "Speed-up [95 %]", "Says"]
    assert fit_columns(sheet, 40)[1] == ["TTFT ms\np50/p99", "Says"]
    assert "Not shown in 40 columns: TTFT ms p50/p99, Says." in " ".join(render(sheet, 40).split())
    assert [len(columns(render(sheet, width))) for width in (120, 70, 40)] == [4, 3, 2]


def test_names_are_not_parsed_as_terminal_markup() -> None:
    text = render(SHEET, 120)
    for part in ("[bold]a[/bold]", "[red]indistinguishable[/red]", "trust [it]", "[95 %]"):
        assert part in text


def test_markdown_right_aligns_numbers_and_shows_missing_values_as_a_dash() -> None:
    assert markdown_topics([Topic("", [SHEET])]) == [
        "**Speed-up of [bold]a[/bold]**",
        "",
        "| Arm | TTFT ms p50/p99 | Speed-up [95 %] | Says |",
        "|---|---:|---:|---|",
        "| ngram | 1,033/1,871 | 1.234 [0.983, 1.424] | [red]indistinguishable[/red] |",
        "| none | – | – | baseline |",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("draft_model at `x`*", "draft_model at \\`x\\`\\*"),
        ("_a_ ~~b~~ <script>", "\\_a\\_ \\~\\~b\\~\\~ &lt;script>"),
        ("1.02 [0.98, 1.06]", "1.02 [0.98, 1.06]"),
        ("[l](u) [0.98, 1.06]", "\\[l\\](u) \\[0.98, 1.06\\]"),
        ("[l][r]", "\\[l\\]\\[r\\]"),
        ("a|b\n\n# c", "a\\|b # c"),
    ],
)
def test_text_is_escaped_in_markdown(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


@given(st.lists(st.text(alphabet="a|\\[]()`*_<> \n", max_size=12), min_size=2, max_size=2))
def test_cell_never_ends_its_row_or_starts_another(cells: list[str]) -> None:
    row = markdown_table(TextTable("", ("a", "b"), [cells], words=()))[-1]
    bare, escape = 0, False
    for letter in row:
        bare += letter == "|" and not escape
        escape = letter == "\\" and not escape
    assert bare == 3
    assert "\n" not in row


@pytest.mark.parametrize(
    ("n", "unit", "text"),
    [
        (1, "repeat", "9.00 (1 repeat: no interval)"),
        (60, "prompt", "9.00 (no interval)"),
        (2, "prompt", "9.00 (2 prompts: no interval)"),
    ],
)
def test_missing_interval_is_explained_by_the_sampling_unit(
    n: int, unit: Literal["prompt", "repeat"], text: str
) -> None:
    figure = Figure(value=9.0, unit="tokens/s", definition="d", n=n, source="both")
    assert with_interval(figure, unit=unit) == text
