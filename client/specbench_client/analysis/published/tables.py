"""All published tables that are shipped."""

from __future__ import annotations

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.analysis.published.illusion import BATCH, REASONING, TREES
from specbench_client.analysis.published.others import ANGEL_SLIM, ARCTIC, SGLANG, SPEC_BENCH
from specbench_client.analysis.published.production import PRODUCTION
from specbench_client.analysis.published.speed_bench import SPEED_BENCH
from specbench_client.analysis.published.table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (BATCH, TREES, REASONING, SPEED_BENCH, PRODUCTION, SPEC_BENCH, SGLANG, ANGEL_SLIM, ARCTIC)
}
ALL = "all"
LIST = "list"


def named(name: str) -> list[Table]:
    """One table, or `all` of them. Raises InvalidSpec."""
    if name == ALL:
        return list(TABLES.values())
    if name not in TABLES:
        raise InvalidSpec(
            [Problem("--published", f"{name!r} is no table", f"one of {', '.join([*TABLES, ALL, LIST])}")]
        )
    return [TABLES[name]]
