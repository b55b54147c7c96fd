"""A run beside published tables, for a terminal and as Markdown. Nothing of it is a pass or a fail."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.published import PublishedComparison, PublishedMatch, PublishedTable
from specbench_client.report.text.text_table import (
    SIMULATED,
    TextTable,
    markdown_sentence,
    markdown_table,
    with_interval,
)

PUBLISHED_TITLES = (
    "Arm",
    "Workload",
    "Load",
    "Figure",
    "Measured [95 %]",
    "Published",
    "Ratio",
    "Table",
    "Differs",
)
PUBLISHED_LIST_TITLES = ("Name", "Rows", "Shows", "Source", "Caution")


def published_rows(comparison: PublishedComparison) -> list[list[str]]:
    """Return one row for each cell, figure and table."""
    return [_published_row(each) for each in comparison.rows]


def table_rows(tables: Sequence[PublishedTable]) -> list[list[str]]:
    """Return one row for each published table."""
    return [[each.name, str(each.rows), each.title, f"{each.source}; {each.read}", each.caution] for each in tables]


def published_table(comparison: PublishedComparison) -> TextTable:
    """Return the run compared with published tables."""
    title = "Beside published tables: no pass, no fail"
    titled = f"{title} ({SIMULATED})" if comparison.simulated else title
    words = ("Arm", "Workload", "Figure", "Table", "Differs")
    return TextTable(titled, PUBLISHED_TITLES, published_rows(comparison), words)


def published_list_table(tables: Sequence[PublishedTable]) -> TextTable:
    """Return the list of published tables."""
    return TextTable(
        "Published tables", PUBLISHED_LIST_TITLES, table_rows(tables), words=("Name", "Shows", "Source", "Caution")
    )


def published_lines(comparison: PublishedComparison) -> list[str]:
    """Return the lines below the table."""
    return [*(f"nothing beside: {each}" for each in comparison.unmatched), *comparison.limits]


def published_markdown(comparison: PublishedComparison) -> str:
    """Return the comparison as Markdown."""
    lines = ["### Beside published tables: no pass, no fail", ""]
    lines += [f"> **{SIMULATED}**", ""] if comparison.simulated else []
    lines += [*markdown_table(published_table(comparison)), ""] if comparison.rows else []
    lines += [f"- {markdown_sentence(line)}" for line in published_lines(comparison)]
    sources = [f"- {markdown_sentence(f'{each.name}: {each.source}; {each.read}')}" for each in comparison.tables]
    return "\n".join([*lines, "", "Sources:", "", *sources, ""])


def _published_row(each: PublishedMatch) -> list[str]:
    row = each.published
    note = f" ({row.note})" if row.note else ""
    differs = "; ".join(map(str, each.differences)) or "no known difference"
    where = [each.arm, each.workload, each.load, row.figure, with_interval(each.measured)]
    return [*where, f"{row.value:g}{note}", f"{each.ratio:.2f}", each.table, differs]
