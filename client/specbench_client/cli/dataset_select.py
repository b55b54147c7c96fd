"""`specbench dataset select`: the least similar prompts of a set, compared with random selection."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from specbench_api.spec.workload import Source
from specbench_client.cli.dataset_options import SOURCE, embed_with_progress, embedding_options
from specbench_client.cli.options import FILE, OUTPUT
from specbench_client.cli.output import ProgressConsole, print_output
from specbench_client.dataset.diversity import (
    GroupSelection,
    RandomSimilarity,
    SelectionReport,
    SelectionRequest,
    select_diverse,
)
from specbench_client.dataset.prompt_entries import entry_columns, read_entries, write_rows
from specbench_client.report.text.text_table import TextTable

COLUMNS = ("category", "candidates", "selected", "random [95 %]", "greedy", "refined", "swaps")


@click.command("select")
@FILE
@click.option(
    "--count",
    type=click.IntRange(min=1),
    required=True,
    help="Number of prompts per category, or in total with --by all.",
)
@click.option(
    "--by",
    type=click.Choice(["category", "all"]),
    default="category",
    show_default=True,
    help="Whether to select within each category, or among all prompts.",
)
@embedding_options(required=True)
@SOURCE
@click.option("--allow-fewer", is_flag=True, help="Accept categories with fewer than --count prompts.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random comparison; the selection has none.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Number of random subsets to compare with.",
)
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File for the selected prompts, JSONL."
)
@OUTPUT
def dataset_select(
    file: Path,
    *,
    count: int,
    by: Literal["category", "all"],
    embeddings: str,
    model: str | None,
    api_key_env: str | None,
    source: Source | None,
    allow_fewer: bool,
    seed: int,
    draws: int,
    to: Path,
    output: str,
) -> None:
    """Select the least similar prompts of FILE, greedily, then by exchanges until none improves the selection.

    \b
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings local --model ./all-MiniLM-L6-v2 --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 200 --by all --embeddings vectors.npy --to prompts.jsonl

    The selection minimizes the sum of the cosine similarities of all pairs, as in SPEED-Bench. The table compares its
    mean similarity with random subsets of the same size, and with greedy selection alone. The same file and embeddings
    always give the same prompts.
    """
    entries = read_entries(file, source)
    name, vectors = embed_with_progress(embeddings, entries, model, api_key_env)
    with ProgressConsole().status("selecting"):
        request = SelectionRequest(count, by, allow_fewer, seed, draws)
        selected, report = select_diverse(entries, vectors, request, name)
    write_rows(to, map(entry_columns, selected))
    _print(report, to, output)


def _print(report: SelectionReport, to: Path, output: str) -> None:
    title = f"mean cosine similarity over all pairs, by {report.embeddings}"
    rows = [*map(_group, report.groups), *(_totals(report) if report.by == "category" else [])]
    table = TextTable(title, COLUMNS, rows, words=COLUMNS[:1])
    print_output(output, report, text=lambda console: console.print_tables([table], [f"written: {to}"]))


def _group(group: GroupSelection) -> list[str]:
    figures = [_random(group.random), _figure(group.greedy), _figure(group.refined)]
    return [group.category, f"{group.candidates:,}", f"{group.selected:,}", *figures, f"{group.swaps}"]


def _totals(report: SelectionReport) -> list[list[str]]:
    """Return the rows below the categories: their mean, and all prompts together."""
    means = (report.mean_random, report.mean_greedy, report.mean_refined)
    whole = [f"{report.candidates:,}", f"{report.selected:,}", _random(report.overall_random), ""]
    return [
        ["mean of categories", "", "", *map(_figure, means), ""],
        ["all together", *whole, _figure(report.overall), ""],
    ]


def _random(drawn: RandomSimilarity | None) -> str:
    return f"{drawn.mean:.3f} [{drawn.low:.3f}, {drawn.high:.3f}]" if drawn else "–"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
