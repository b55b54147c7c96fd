"""`specbench dataset`: prompts made ready before anything is measured."""

from __future__ import annotations

import importlib

import click

STEPS = {
    "prepare": "Prompts of your own brought to a length; SPEED-Bench's placeholders filled in.",
    "inspect": "Counts, lengths, similarity, duplicates, placeholders, overlap with outputs.",
    "select": "The least similar prompts of a larger set.",
}
"""Each is the object `dataset_<name>` in the module of the same name."""


class Steps(click.Group):
    """Loads a step when it is called, as the program does with its commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(STEPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in STEPS:
            return None
        command = getattr(importlib.import_module(f"specbench_client.cli.dataset_{cmd_name}"), f"dataset_{cmd_name}")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(STEPS.items()))


@click.group(cls=Steps)
def dataset() -> None:
    """Make prompts ready: select a diverse subset, look at a set, bring it to a length, fill in placeholders.

    \b
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset inspect prompts.jsonl
      specbench dataset prepare documents.jsonl --isl 8k --to prompts-8k.jsonl
      specbench dataset prepare speed-bench --config qualitative --from SPEED-Bench --to prepared
    """
