"""`specbench analyze audit`: whether a table of results is consistent. The exit code is the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.termination import Exit
from specbench_client.analysis.audit.columns import Quantity
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN
from specbench_client.cli.output import print_output
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.streams import echo
from specbench_client.documents.audit import AuditReport
from specbench_client.errors import BadInput

STDIN = "-"


@click.command()
@click.argument("table", metavar="TABLE")
@click.option(
    "--with",
    "facts",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="A value that applies to every row, such as --with engine=vLLM@0.7.3 --with concurrency=1. Repeatable.",
)
@OUTPUT_MARKDOWN
@LATEST
def audit(table: str, facts: tuple[str, ...], output: str, *, latest: bool) -> int:
    """Check whether the numbers of TABLE can come from one measurement. Exit code 0: consistent; 3: contradictions.

    \b
      specbench analyze audit results.csv
      specbench analyze audit post.md --with engine=vLLM@0.7.3 --with concurrency=1
      specbench analyze audit production-benchmark                   a published table with known errors
      specbench analyze audit specbench-results --latest             a stored run, checked by the same rules

    TABLE is CSV, JSON or Markdown (`-` is stdin), a result file of another benchmark (see `specbench import`), a stored
    run, or the name of a published table that comes with
    specbench: production-benchmark, free-lunch. Columns have their usual names: method, k, concurrency, temperature,
    accept rate, AL, TPOT (ms), TTFT, E2E, speedup, tok/s, req/h, $/h, …

    Nothing is measured and nothing is downloaded: every finding shows its calculation. Rules: docs/research/audit.md.
    """
    from specbench_client.report.text.audit import audit_lines, audit_markdown  # noqa: PLC0415  pandas takes seconds to import

    report = _audited(table, _facts(facts), latest=latest)
    if not any(rule.comparisons for rule in report.rule_usage):
        unknown = ", ".join(report.settings) or "none"
        raise BadInput(
            f"{table}: no rule applies to its columns (unknown columns: {unknown}); names: docs/research/audit.md",
            "NothingToAudit",
        )
    print_output(
        output,
        report,
        text=lambda _: echo("\n".join(audit_lines(report))),
        markdown=lambda: audit_markdown(report),
    )
    return Exit.UNTRUSTWORTHY if report.findings else Exit.OK


def _audited(table: str, facts: dict[str, str], *, latest: bool) -> AuditReport:
    from specbench_client.analysis.audit.reading import read_document  # noqa: PLC0415
    from specbench_client.analysis.audit.report import audit_document  # noqa: PLC0415
    from specbench_client.analysis.published.tables import published_names, published_text  # noqa: PLC0415

    path = Path(table)
    if table == STDIN:
        return audit_document(read_document(sys.stdin.read(), "(stdin)", facts))
    if path.is_file():
        rows = _peer_rows(path)
        text = json.dumps({"source": table, "tables": [{"name": table, "rows": rows}]}) if rows else _text(path)
        return audit_document(read_document(text, f"{table}.json" if rows else table, facts))
    if table in published_names():
        return audit_document(read_document(published_text(table), f"{table}.json", facts))
    if not path.exists() and "://" not in table:
        raise BadInput(
            f"{table}: no such file, run or published table: published tables are {', '.join(published_names())}"
        )
    return _of_run(table, latest=latest)


_PEER_COLUMNS = {
    Quantity.ACCEPTANCE_LENGTH: ("acceptance_length_emitted_pooled", "acceptance_length_emitted_mean"),
    Quantity.ACCEPTANCE_RATE: ("acceptance_rate",),
    Quantity.TPOT: ("tpot_ms_p50", "tpot_ms_mean", "tpot_ms_pooled"),
    Quantity.TTFT: ("ttft_from_send_ms_p50", "ttft_from_send_ms_mean"),
    Quantity.E2E: ("e2e_from_send_ms_p50",),
    Quantity.E2E_MEAN: ("e2e_from_send_ms_mean",),
    Quantity.OUTPUT_TOKENS: ("output_tokens_mean",),
}
"""Column of a table → the comparable figures that it may come from, the preferred one first."""


def _peer_rows(path: Path) -> list[dict[str, str]]:
    """Return the comparable figures of another benchmark's result file as rows of a table; empty for other files."""
    from specbench_client.peer_results.registry import recognised_file  # noqa: PLC0415

    rows = []
    for reading in recognised_file(path):
        known = {figure.name: figure.value for figure in reading.result.figures if figure.value is not None}
        row = {
            column.value: repr(known[found])
            for column, names in _PEER_COLUMNS.items()
            if (found := next((name for name in names if name in known), None))
        }
        level = reading.result.level
        if row and level is not None:
            row["load" if level.concurrency is None else Quantity.CONCURRENCY.value] = level.label
        rows.append(row)
    return [row for row in rows if row]


def _of_run(where: str, *, latest: bool) -> AuditReport:
    from specbench_client.analysis.audit.document import run_document  # noqa: PLC0415
    from specbench_client.analysis.audit.report import audit_document  # noqa: PLC0415
    from specbench_client.stored_runs.results import read_result  # noqa: PLC0415

    result = read_result(select_run(where, latest=latest))
    document = run_document(result.plan, result.summary)
    if not document.rows:
        raise BadInput(f"{where}: no cell of this run is valid: `specbench report` shows why", "NothingToAudit")
    return audit_document(document)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _facts(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [(text, *text.partition("=")) for text in given]
    bad = [
        Problem("--with", f"{text!r} is not COLUMN=VALUE", "--with concurrency=1")
        for text, name, sign, _ in pairs
        if not (sign and name)
    ]
    if bad:
        raise InvalidSpec(bad)
    return {name: value for _, name, _, value in pairs}
