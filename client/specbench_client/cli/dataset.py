"""`specbench dataset`: list, inspect, select and prepare prompts before anything is measured."""

from __future__ import annotations

import click

from specbench_client.cli.groups import LazyGroup

HEADINGS = {
    "Commands": {
        "list": "The known sources of prompts: your own files and published sets.",
        "inspect": "Counts, lengths, similarity, duplicates, placeholders, overlap with outputs.",
        "select": "The least similar prompts of a larger set.",
        "prepare": "Prompts cut or filled to a length; SPEED-Bench's placeholders resolved.",
    }
}


@click.group(cls=LazyGroup, headings=HEADINGS, module_prefix="specbench_client.cli.dataset_")
def dataset() -> None:
    """Prepare prompts: list known sources, inspect a file, select a diverse subset, adjust lengths.

    \b
      specbench dataset list
      specbench dataset inspect prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared
    """
