"""`specbench dataset`: list, inspect, select and prepare prompts before anything is measured."""

from __future__ import annotations

import click

from specbench_client.cli.command_groups import LazyGroup

HEADINGS = {
    "Commands": {
        "list": "The known sources of prompts: your own files and published sets.",
        "inspect": "Counts, lengths, similarity, duplicates, placeholders, overlap with outputs.",
        "select": "The least similar prompts of a larger set.",
        "prepare": "Prompts cut or filled to a length; SPEED-Bench's placeholders resolved.",
    }
}


@click.group(cls=LazyGroup, headings=HEADINGS, modules=dict.fromkeys(("inspect", "select", "prepare"), "dataset_files"))
def dataset() -> None:
    """Prepare prompts: list known sources, inspect a file, select a diverse subset, adjust lengths.

    \b
      specbench dataset list
      specbench dataset inspect prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared
    """


@dataset.command("list")
def dataset_list() -> None:
    """List the known sources of prompts, with their location on the hub and their license; nothing is downloaded.

    \b
      specbench dataset list
      specbench measure … --dataset prompts.jsonl                  a file of your own
      specbench measure … --dataset humaneval:HumanEval.jsonl.gz   a published set on this machine: SOURCE:FILE
      specbench measure … --dataset gsm8k                          a published set from the hub

    A SpecBenchRun uses the same names in workloads[].dataset.source, in addition to `mix` (several sources with
    weights) and `sessions` (random words). Templates, filters and splits:
    docs, "Workloads".
    """
    from specbench_client.cli.output import result_console  # noqa: PLC0415  pandas takes seconds to import
    from specbench_client.report.text.text_table import TextTable  # noqa: PLC0415
    from specbench_client.workload.sources.registry import LOADERS, describe_origin  # noqa: PLC0415

    rows = [
        (str(source), loader.what, describe_origin(source, loader), loader.licence)
        for source, loader in LOADERS.items()
    ]
    columns = ("Source", "What", "On the hub", "Licence")
    result_console().print_table(TextTable("Sources of prompts", columns, rows, words=columns))
