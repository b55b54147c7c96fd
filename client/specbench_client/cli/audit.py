"""`specbench audit`: whether a table of results agrees with itself. Its exit code is the verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.audit import AuditReport
from specbench_api.outcome.ending import Exit
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

STDIN = "-"


@click.command()
@click.argument("table", metavar="TABLE")
@click.option(
    "--with",
    "facts",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="What holds for every row and stands in the text: --with engine=vLLM@0.7.3 --with concurrency=1.",
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Of several stored runs, the newest.")
def audit(table: str, facts: tuple[str, ...], output: str, *, latest: bool) -> int:
    """Ask whether the numbers of TABLE can be of one measurement. Exit code 0: no contradiction; 3: at least one.

    TABLE is CSV, JSON or Markdown (also `-`), a stored run of ours, or the name of a published table that is shipped:
    production-benchmark, free-lunch. Columns go by their usual names: method, k, concurrency, temperature, accept rate,
    AL, TPOT (ms), TTFT, E2E, speedup, tok/s, req/h, $/h, …

    \b
      specbench audit results.csv
      specbench audit post.md --with engine=vLLM@0.7.3 --with concurrency=1
      specbench audit production-benchmark                   a published table with known faults
      specbench audit specbench-results --latest             a run of ours, held to the same rules

    Nothing is measured and nothing is looked up: every finding shows its sum. Rules: docs/audit.md.
    """
    from specbench_client.report.audit import audit_lines, audit_markdown  # noqa: PLC0415  pandas: seconds of imports

    report = _audited(table, _facts(facts), latest=latest)
    if not any(rule.asked for rule in report.asked):
        read = ", ".join(report.settings) or "none"
        raise BadInput(
            f"{table}: no rule can be asked of its columns (not known: {read}): see docs/audit.md for their names",
            "NothingToAudit",
        )
    if output == "json":
        click.echo(report.to_json(), nl=False)
    elif output == "markdown":
        click.echo(audit_markdown(report), nl=False)
    else:
        click.echo("\n".join(audit_lines(report)))
    return Exit.UNTRUSTWORTHY if report.findings else Exit.OK


def _audited(table: str, facts: dict[str, str], *, latest: bool) -> AuditReport:
    from specbench_client.analysis.audit.judge import audit as judged  # noqa: PLC0415  as above
    from specbench_client.analysis.audit.published import names, text_of  # noqa: PLC0415
    from specbench_client.analysis.audit.reading import read_document  # noqa: PLC0415

    path = Path(table)
    if table == STDIN:
        return judged(read_document(sys.stdin.read(), "(stdin)", facts))
    if path.is_file():
        return judged(read_document(_text(path), table, facts))
    if table in names():
        return judged(read_document(text_of(table), f"{table}.json", facts))
    if not path.exists() and "://" not in table:
        raise BadInput(f"{table}: neither a file, nor a run, nor one of the shipped tables: {', '.join(names())}")
    return _of_run(table, latest=latest)


def _of_run(where: str, *, latest: bool) -> AuditReport:
    from specbench_client.analysis.audit.judge import audit as judged  # noqa: PLC0415  as above
    from specbench_client.analysis.audit.of_run import document_of  # noqa: PLC0415
    from specbench_client.drive.compared import read_result  # noqa: PLC0415

    result = read_result(run_store(open_results(where), where, latest=latest))
    document = document_of(result.plan, result.summary)
    if not document.rows:
        raise BadInput(f"{where}: no cell of this run is valid: `specbench report` says why", "NothingToAudit")
    return judged(document)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


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
