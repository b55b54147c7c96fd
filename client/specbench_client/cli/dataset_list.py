"""`specbench dataset list`: the sources by the names under which a spec and `--dataset` take them."""

from __future__ import annotations

import click

from specbench_api.spec.dataset import Source
from specbench_client.cli.consoles import page
from specbench_client.report.sheets import Sheet


@click.command()
def dataset_list() -> None:
    """List the sources of prompts: the name of each, what it is, where the hub has it, its licence. Nothing is fetched.

    \b
      specbench dataset list
      specbench measure … --dataset prompts.jsonl                  a file of your own
      specbench measure … --dataset humaneval:HumanEval.jsonl.gz   a published set that lies here: SOURCE:FILE
      specbench measure … --dataset gsm8k                          the same from the hub, where it has it

    In a SpecBenchRun the same names stand in workloads[].dataset.source, beside `mix` (several of them, weighed) and
    `random`. Templates, filters and splits: docs/workloads.md.
    """
    from specbench_client.workload.reference import origin  # noqa: PLC0415  seconds of imports
    from specbench_client.workload.sources.table import LOADERS  # noqa: PLC0415

    rows = [_row(source, loader.what, origin(source, loader), loader.licence) for source, loader in LOADERS.items()]
    console, columns = page(), ("Source", "What", "On the hub", "Licence")
    console.sheet(Sheet("Sources of prompts", columns, rows, words=columns))


def _row(source: Source, *cells: str) -> tuple[str, ...]:
    return (str(source), *cells)
