"""`specbench dataset list`: the sources of prompts, with the names that a spec and `--dataset` accept."""

from __future__ import annotations

import click

from specbench_client.cli.output import result_console
from specbench_client.report.text.text_table import TextTable


@click.command("list")
def dataset_list() -> None:
    """List the known sources of prompts, with their location on the hub and their license; nothing is downloaded.

    \b
      specbench dataset list
      specbench measure … --dataset prompts.jsonl                  a file of your own
      specbench measure … --dataset humaneval:HumanEval.jsonl.gz   a published set on this machine: SOURCE:FILE
      specbench measure … --dataset gsm8k                          a published set from the hub

    A SpecBenchRun uses the same names in workloads[].dataset.source, in addition to `mix` (several sources with
    weights) and `random`. Templates, filters and splits: docs/reference/workloads.md.
    """
    from specbench_client.workload.sources.registry import LOADERS, describe_origin  # noqa: PLC0415  pandas takes seconds to import

    rows = [
        (str(source), loader.what, describe_origin(source, loader), loader.licence)
        for source, loader in LOADERS.items()
    ]
    columns = ("Source", "What", "On the hub", "Licence")
    result_console().print_table(TextTable("Sources of prompts", columns, rows, words=columns))
