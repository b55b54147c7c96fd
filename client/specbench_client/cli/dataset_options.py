"""Options that the dataset commands share, and their progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specbench_api.spec.workload import Source
from specbench_client.cli.measure import request_headers
from specbench_client.cli.options import Command
from specbench_client.cli.output import ProgressConsole
from specbench_client.dataset.diversity import Vectors
from specbench_client.dataset.embeddings import embed_prompts
from specbench_client.dataset.prompt_entries import PromptEntry

SOURCE = click.option(
    "--source",
    type=click.Choice([source.value for source in Source]),
    callback=lambda _context, _option, value: Source(value) if value else None,
    help="Format of the file.  [default: detected from its name and first row]",
)


def embedding_options(*, required: bool) -> Callable[[Command], Command]:
    """Add --embeddings, --model and --api-key-env to a command."""
    options = [
        click.option(
            "--embeddings",
            metavar="URL|local|FILE",
            required=required,
            help="Source of embeddings: an OpenAI-compatible endpoint (http://HOST:PORT/v1), a sentence-transformers "
            "model on this machine (local), or a file (.npy, .parquet).",
        ),
        click.option(
            "--model", metavar="M", help="The embedding model: its name at the URL, or with local its folder or name."
        ),
        click.option(
            "--api-key-env",
            metavar="NAME",
            help="Environment variable that contains the endpoint's API key.  [default: OPENAI_API_KEY]",
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def embed_with_progress(
    embeddings: str, entries: Sequence[PromptEntry], model: str | None, api_key_env: str | None
) -> tuple[str, Vectors]:
    """Return the name of the embeddings and the vectors of the entries, with a progress bar on stderr."""
    headers = request_headers((), api_key_env)
    with progress_bar("embedding") as update:
        return embed_prompts(embeddings, entries, update, model=model, headers=headers)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr if that is a terminal. Yields its update function of (done, total)."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = ProgressConsole()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
