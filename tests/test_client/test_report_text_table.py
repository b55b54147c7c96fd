"""The one table: nothing of it is cut on a terminal, and no cell is Markdown of its own."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specbench_api.outcome.figure import Figure
from specbench_client.report.text.text_table import (
    TextTable,
    escape_markdown,
    fit_columns,
    markdown_section,
    markdown_table,
    rich_table,
    with_interval,
)

SHEET = TextTable(
    "Speed-up of [bold]a[/bold]",
    ("Arm", "TTFT ms\np50/p99", "Speed-up [95 %]", "Says"),
    [("ngram", "1,033/1,871", "1.234 [0.983, 1.424]", "[red]indistinguishable[/red]"), ("none", "–", "", "baseline")],
    words=("Arm", "Says"),
    styles=("red", ""),
    caption="trust [it]",
)


def shown(sheet: TextTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(rich_table(sheet, width))
    return console.export_text()


def columns(text: str) -> list[str]:
    """The letters of each column, whatever lines they are folded over."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return ["".join("".join(parts).split()) for parts in zip(*lines, strict=True)]


@pytest.mark.parametrize("width", range(30, 121, 6))
def test_no_terminal_is_too_narrow_for_a_figure(width: int) -> None:
    wanted = ["".join("".join(row[place] for row in SHEET.rows).split()) for place in range(4)]
    assert columns(shown(SHEET, width)) == wanted


def test_numbers_keep_their_line_where_there_is_room_and_words_are_folded_first() -> None:
    assert "1.234 [0.983, 1.424]" in shown(SHEET, 70)
    assert "[red]indistinguishable[/red]" not in shown(SHEET, 70)


def test_a_narrow_terminal_drops_optional_columns_in_their_order_and_names_them() -> None:
    sheet = replace(SHEET, optional=("TTFT ms\np50/p99", "Says"))
    assert fit_columns(sheet, 120)[1] == []
    narrow, dropped = fit_columns(sheet, 70)
    assert dropped == ["TTFT ms\np50/p99"]
    assert narrow.columns == ["Arm", "Speed-up [95 %]", "Says"]
    assert fit_columns(sheet, 40)[1] == ["TTFT ms\np50/p99", "Says"]
    assert "Not shown in 40 columns: TTFT ms p50/p99, Says." in " ".join(shown(sheet, 40).split())
    assert [len(columns(shown(sheet, width))) for width in (120, 70, 40)] == [4, 3, 2]


def test_names_are_no_markup_of_the_terminal() -> None:
    text = shown(SHEET, 120)
    for part in ("[bold]a[/bold]", "[red]indistinguishable[/red]", "trust [it]", "[95 %]"):
        assert part in text


def test_markdown_has_numbers_on_the_right_and_a_dash_where_something_is_missing() -> None:
    assert markdown_section(SHEET).splitlines() == [
        "**Speed-up of [bold]a[/bold]**",
        "",
        "| Arm | TTFT ms p50/p99 | Speed-up [95 %] | Says |",
        "|---|---:|---:|---|",
        "| ngram | 1,033/1,871 | 1.234 [0.983, 1.424] | [red]indistinguishable[/red] |",
        "| none | – | – | baseline |",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("draft_model at `x`*", "draft_model at \\`x\\`\\*"),
        ("_a_ ~~b~~ <script>", "\\_a\\_ \\~\\~b\\~\\~ &lt;script>"),
        ("1.02 [0.98, 1.06]", "1.02 [0.98, 1.06]"),
        ("[l](u) [0.98, 1.06]", "\\[l\\](u) \\[0.98, 1.06\\]"),
        ("[l][r]", "\\[l\\]\\[r\\]"),
        ("a|b\n\n# c", "a\\|b # c"),
    ],
)
def test_what_could_be_markdown_is_none(text: str, wanted: str) -> None:
    assert escape_markdown(text) == wanted


@given(st.lists(st.text(alphabet="a|\\[]()`*_<> \n", max_size=12), min_size=2, max_size=2))
def test_no_cell_ends_its_row_or_opens_another(cells: list[str]) -> None:
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
def test_a_missing_interval_is_explained_by_the_sampling_unit(
    n: int, unit: Literal["prompt", "repeat"], text: str
) -> None:
    figure = Figure(value=9.0, unit="tokens/s", definition="d", n=n, source="both")
    assert with_interval(figure, unit=unit) == text
