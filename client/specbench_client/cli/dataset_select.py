"""`specbench dataset select`: the least similar prompts of a set, and what that was worth."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from specbench_api.spec.workload import Source
from specbench_client.cli.consoles import Ticker, page
from specbench_client.cli.embedding import SOURCE, embedded, embedding_options
from specbench_client.cli.options import FILE, OUTPUT
from specbench_client.dataset.embeddings.choose import Wanted, choose
from specbench_client.dataset.entries import our_row, read_entries, write_rows
from specbench_client.dataset.selecting import Ask, GroupSelection, RandomSimilarity, SelectionReport, select_diverse
from specbench_client.report.sheets import Sheet

COLUMNS = ("category", "candidates", "selected", "random [95 %]", "greedy", "refined", "swaps")


@click.command("select")
@FILE
@click.option(
    "--count", type=click.IntRange(min=1), required=True, help="Prompts of each category, or of all together."
)
@click.option("--by", type=click.Choice(["category", "all"]), default="category", show_default=True)
@embedding_options(default=None)
@SOURCE
@click.option("--allow-fewer", is_flag=True, help="Take all of a category that has fewer than --count.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random comparison only.")
@click.option(
    "--draws", type=click.IntRange(min=0), default=100, show_default=True, help="Random subsets to compare with."
)
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The selected prompts, JSONL."
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
    cache: Path | None,
    source: Source | None,
    allow_fewer: bool,
    seed: int,
    draws: int,
    to: Path,
    output: str,
) -> None:
    """Select the prompts of FILE that are least alike: greedily, then by exchanges until none helps any more.

    \b
      specbench dataset select traffic.jsonl --count 80 --embeddings http://HOST:8000/v1 --model M --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 80 --embeddings local --model ./all-MiniLM-L6-v2 --to prompts.jsonl
      specbench dataset select traffic.jsonl --count 200 --by all --embeddings vectors.npy --to prompts.jsonl

    What is made least is the sum of the cosines of all pairs, as SPEED-Bench selects. The table compares the mean
    over pairs with as many prompts drawn at random and with greedy selection alone. The same file and embeddings give
    the same prompts everywhere.
    """
    embedder = choose(Wanted(embeddings, model, api_key_env, cache))
    entries = read_entries(file, source)
    vectors = embedded(embedder, entries)
    ask = Ask(count, by, allow_fewer, seed, draws)
    console = Ticker(stderr=True)
    with console.status("selecting") as status:
        selected, report = select_diverse(
            entries, vectors, ask, embedder.name,
            lambda group, sweep, swaps: status.update(f"selecting: {group}, sweep {sweep}, {swaps} exchanges"),
        )  # fmt: skip
    write_rows(to, map(our_row, selected))
    _show(report, to, output)


def _show(report: SelectionReport, to: Path, output: str) -> None:
    if output == "json":
        click.echo(report.to_json(), nl=False)
        return
    console = page()
    title = f"mean cosine over all pairs, by {report.embeddings}"
    rows = [*map(_group, report.groups), *(_together(report) if report.by == "category" else [])]
    console.sheet(Sheet(title, COLUMNS, rows, words=COLUMNS[:1]))
    console.print(f"written: {to}", soft_wrap=True)


def _group(group: GroupSelection) -> list[str]:
    swaps = f"{group.swaps}" if group.settled else f"{group.swaps} (not settled)"
    figures = [_random(group.random), _figure(group.greedy), _figure(group.refined)]
    return [group.category, f"{group.candidates:,}", f"{group.selected:,}", *figures, swaps]


def _together(report: SelectionReport) -> list[list[str]]:
    """What all categories have in common."""
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
