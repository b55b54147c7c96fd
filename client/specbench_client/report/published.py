"""A run beside published tables, in rows: for a terminal and for Markdown. Nothing of it is a pass or a fail."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.published import BesidePublished, PublishedComparison, PublishedTable
from specbench_client.report.columns import SIMULATED, with_interval
from specbench_client.report.sheets import Sheet, markdown_table

TITLES = (
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
TABLES = ("Name", "Rows", "Shows", "Source", "Caution")


def published_rows(comparison: PublishedComparison) -> list[list[str]]:
    """One row a cell, figure and table."""
    return [_row(each) for each in comparison.rows]


def table_rows(tables: Sequence[PublishedTable]) -> list[list[str]]:
    """What there is to compare with."""
    return [[each.name, str(each.rows), each.title, f"{each.source}; {each.read}", each.caution] for each in tables]


def published_sheet(comparison: PublishedComparison) -> Sheet:
    """The run beside the tables."""
    title = "Beside published tables: no pass, no fail"
    titled = f"{title} ({SIMULATED})" if comparison.simulated else title
    words = ("Arm", "Workload", "Figure", "Table", "Differs")
    return Sheet(titled, TITLES, published_rows(comparison), words)


def tables_sheet(tables: Sequence[PublishedTable]) -> Sheet:
    """The list of tables."""
    return Sheet("Published tables", TABLES, table_rows(tables), words=("Name", "Shows", "Source", "Caution"))


def published_lines(comparison: PublishedComparison) -> list[str]:
    """What stands below."""
    return [*(f"nothing beside: {each}" for each in comparison.unmatched), *comparison.limits]


def published_markdown(comparison: PublishedComparison) -> str:
    """As Markdown."""
    lines = ["### Beside published tables: no pass, no fail", ""]
    lines += [f"> **{SIMULATED}**", ""] if comparison.simulated else []
    lines += [*markdown_table(published_sheet(comparison)), ""] if comparison.rows else []
    lines += [f"- {line}" for line in published_lines(comparison)]
    sources = [f"- {each.name}: {each.source}; {each.read}" for each in comparison.tables]
    return "\n".join([*lines, "", "Sources:", "", *sources, ""])


def _row(each: BesidePublished) -> list[str]:
    row = each.published
    note = f" ({row.note})" if row.note else ""
    differs = "; ".join(map(str, each.differences)) or "nothing that was told"
    where = [each.arm, each.workload, each.load, row.figure, with_interval(each.measured)]
    return [*where, f"{row.value:g}{note}", f"{each.ratio:.2f}", each.table, differs]
