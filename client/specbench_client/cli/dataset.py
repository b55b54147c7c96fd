"""`specbench dataset`: prompts made ready before anything is measured."""

from __future__ import annotations

import click

from specbench_client.cli.groups import LazyGroup

STEPS = {
    "list": "The sources of prompts by name: your own files and published sets.",
    "inspect": "Counts, lengths, similarity, duplicates, placeholders, overlap with outputs.",
    "select": "The least similar prompts of a larger set.",
    "prepare": "Prompts of your own brought to a length; SPEED-Bench's placeholders filled in.",
}


class Steps(LazyGroup):
    """The commands of `specbench dataset`, in the order in which they are used."""

    headings = {"Commands": STEPS}

    def place_of(self, name: str) -> tuple[str, str]:
        """The object `dataset_<name>` in the module of the same name."""
        return f"specbench_client.cli.dataset_{name}", f"dataset_{name}"


@click.group(cls=Steps)
def dataset() -> None:
    """Make prompts ready: see which sets there are, look at one, select a diverse subset, bring it to a length.

    \b
      specbench dataset list
      specbench dataset inspect prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared
    """
