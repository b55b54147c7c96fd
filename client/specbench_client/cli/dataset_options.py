"""Options that the dataset commands share, and their progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specbench_api.spec.workload import Source
from specbench_client.cli.options import Command
from specbench_client.cli.output import ProgressConsole
from specbench_client.dataset.diversity import Vectors
from specbench_client.dataset.embeddings import Embedder
from specbench_client.dataset.prompt_entries import PromptEntry

SOURCE = click.option(
    "--source",
    type=click.Choice([source.value for source in Source]),
    callback=lambda _context, _option, value: Source(value) if value else None,
    help="Format of the file.  [default: detected from its name and first row]",
)


def embedding_options(default: str | None) -> Callable[[Command], Command]:
    """Add --embeddings (required if it has no default), --model, --api-key-env and --cache to a command."""
    # With default=None click would not require the option, so a required option gets no default at all.
    required: dict[str, Any] = {"required": True} if default is None else {"default": default, "show_default": True}
    options = [
        click.option(
            "--embeddings",
            metavar="URL|local|FILE|lexical",
            **required,
            help="Source of embeddings: an OpenAI-compatible endpoint (http://HOST:PORT/v1), a sentence-transformers "
            "model on this machine (local), a file (.npy, .npz, .parquet), or shared words (lexical).",
        ),
        click.option(
            "--model", metavar="M", help="The embedding model: its name at the URL, or with local its folder or name."
        ),
        click.option(
            "--api-key-env", metavar="NAME", help="Environment variable that contains the endpoint's API key."
        ),
        click.option(
            "--cache",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder that caches embeddings by model and text.  [default: ~/.cache/specbench/embeddings]",
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def embed_with_progress(embedder: Embedder, entries: Sequence[PromptEntry]) -> Vectors:
    """Return the embeddings of the entries, with a progress bar on stderr."""
    with progress_bar("embedding") as update:
        return embedder.embed(entries, update)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if that is a terminal. Yields its update function of (done, total)."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = ProgressConsole()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
