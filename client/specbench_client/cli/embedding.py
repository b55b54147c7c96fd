"""The options that say where embeddings come from, and their progress on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specbench_api.spec.workload import Source
from specbench_client.cli.consoles import Ticker
from specbench_client.dataset.diversity.vectors import Vectors
from specbench_client.dataset.embeddings.choose import Embedder
from specbench_client.dataset.entries import Entry

Command = TypeVar("Command", bound=Callable[..., Any])
SOURCE = click.option(
    "--source",
    type=click.Choice([source.value for source in Source]),
    callback=lambda _context, _option, value: Source(value) if value else None,
    help="Shape of the file; guessed by its name and first row.",
)


def embedding_options(default: str | None) -> Callable[[Command], Command]:
    """Add --embeddings (required where it has no default), --model, --api-key-env and --cache to a command."""
    # click takes a default that is given, None too, for an answer: a required option must be given none.
    needed: dict[str, Any] = {"required": True} if default is None else {"default": default, "show_default": True}
    options = [
        click.option(
            "--embeddings",
            metavar="URL|local|FILE|lexical",
            **needed,
            help="An OpenAI-compatible endpoint (http://HOST:PORT/v1), a sentence-transformers model on this machine "
            "(local), a file (.npy, .npz, .parquet), or shared words (lexical).",
        ),
        click.option("--model", metavar="M", help="With URL: the model served. With local: its folder or name."),
        click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the endpoint's key."),
        click.option(
            "--cache",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder in which embeddings are kept by model and text. [default: ~/.cache/specbench/embeddings]",
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def embedded(embedder: Embedder, entries: Sequence[Entry]) -> Vectors:
    """The vectors; how far they are is shown on stderr."""
    with ticking("embedding") as told:
        return embedder.embed(entries, told)


@contextmanager
def ticking(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal, moved by (done, in all)."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Ticker(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
