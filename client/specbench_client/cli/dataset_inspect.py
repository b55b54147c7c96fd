"""`specbench dataset inspect`: what a prompts file holds, and what would make a benchmark of it doubtful."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_api.spec.workload import Source
from specbench_client.cli.consoles import page
from specbench_client.cli.embedding import SOURCE, embedded, embedding_options
from specbench_client.cli.options import FILE, OUTPUT
from specbench_client.dataset.embeddings.choose import Wanted, choose
from specbench_client.dataset.entries import rows_of
from specbench_client.dataset.inspecting import (
    CategoryReport,
    Counting,
    Duplicates,
    InspectionReport,
    inspect,
    read_leniently,
)
from specbench_client.dataset.length.ruler import load_ruler, load_tokenizer
from specbench_client.dataset.percentiles import Spread
from specbench_client.errors import BadInput
from specbench_client.report.sheets import Sheet
from specbench_client.workload.shapes import shape_hint

NONE = "none"
DASH = "–"
_ASKED_FOR = ("target tokens p50/p99", "similarity", "output copied p50", "BLEU-4 p50")
"""Columns that only --tokenizer, --embeddings or outputs in the file fill."""
COLUMNS = (
    "category", "prompts", "turns", "characters p50/p99", "o200k tokens p50/p99", "target tokens p50/p99", "similarity",
    "output copied p50", "BLEU-4 p50",
)  # fmt: skip
_SHOWN = 5


@click.command("inspect")
@FILE
@embedding_options(default="lexical")
@click.option(
    "--outputs", metavar="COLUMN", help="Outputs to compare with. [default: output, outputs, response, reference]"
)
@click.option("--table", type=click.Path(path_type=Path), help="o200k_base.tiktoken, where tiktoken's cache has none.")
@click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="The target's tokenizer.json: its lengths beside ours."
)
@SOURCE
@OUTPUT
def dataset_inspect(
    file: Path,
    *,
    embeddings: str,
    model: str | None,
    api_key_env: str | None,
    cache: Path | None,
    outputs: str | None,
    table: Path | None,
    tokenizer: Path | None,
    source: Source | None,
    output: str,
) -> None:
    """Look at the prompts of FILE: counts, lengths, similarity, duplicates, placeholders, overlap with outputs.

    \b
      specbench dataset inspect prompts.jsonl
      specbench dataset inspect prompts.jsonl --embeddings http://HOST:8000/v1 --model M --output json
      specbench dataset inspect logs.jsonl --outputs completion --embeddings none

    Rows that are no prompts are counted and named, and hide nothing else.
    """
    rows, declared = rows_of(file, source)
    read = read_leniently(rows, declared)
    counting = _counting(table, tokenizer)
    similar = None
    if embeddings != NONE and read.entries:
        embedder = choose(Wanted(embeddings, model, api_key_env, cache))
        similar = (embedder.name, embedded(embedder, read.entries))
    report = inspect(str(file), read, counting, similar, outputs)
    if output == "json":
        click.echo(report.to_json(), nl=False)
    else:
        _show(report, shape_hint(declared.source, rows[0].columns) if rows and not report.prompts else "")


def _counting(table: Path | None, tokenizer: Path | None) -> Counting:
    """A table that was named must be there; one that was not may be missing, and the report says so."""
    target = load_tokenizer(tokenizer)[0] if tokenizer else None
    try:
        ruler = load_ruler(table)
    except BadInput as error:
        if table is not None:
            raise
        return Counting(None, target, str(error))
    return Counting(lambda text: len(ruler.encode_ordinary(text)), target)


def _show(report: InspectionReport, hint: str) -> None:
    console = page()
    title = f"{report.file}: {report.rows:,} rows, {report.prompts:,} prompts, {report.turns:,} turns"
    rows = [_cells(category) for category in [*report.categories, report.overall]]
    told = [at for at, head in enumerate(COLUMNS) if head not in _ASKED_FOR or any(row[at] != DASH for row in rows)]
    columns, cells = [COLUMNS[at] for at in told], [[row[at] for at in told] for row in rows]
    console.sheet(Sheet(title, columns, cells, words=COLUMNS[:1]))
    for line in [*_lines(report), *([hint] if hint else [])]:
        console.print(line, soft_wrap=True)


def _cells(category: CategoryReport) -> list[str]:
    lengths = category.lengths
    return [
        category.category, f"{category.prompts:,}", f"{category.turns:,}",
        *(_both(spread) for spread in (lengths.characters, lengths.o200k_tokens, lengths.target_tokens)),
        DASH if category.similarity is None else f"{category.similarity:.3f}",
        *(f"{spread.p50:.2f}" if spread else DASH for spread in (category.copied_share, category.bleu4)),
    ]  # fmt: skip


def _both(spread: Spread | None) -> str:
    return f"{spread.p50:,.0f}/{spread.p99:,.0f}" if spread else DASH


def _lines(report: InspectionReport) -> list[str]:
    scripts = ", ".join(f"{name.lower()} {count:,}" for name, count in report.scripts.items())
    lines = [f"scripts (not languages): {scripts}"] if scripts else []
    if report.embeddings:
        lines.append(f"similarity: mean cosine over all pairs, by {report.embeddings}")
    if report.overall.lengths.reason:
        lines.append(f"no o200k tokens: {report.overall.lengths.reason}")
    lines += _duplicates("exact duplicates", report.exact_duplicates)
    lines += _duplicates("near duplicates", report.near_duplicates)
    if report.duplicate_ids:
        lines.append(f"ids used twice: {', '.join(report.duplicate_ids)}")
    held = report.placeholders
    if held.rows:
        where = ", ".join(f"{name} {count:,}" for name, count in (held.by_source or held.by_category).items())
        lines.append(f"placeholders: {held.rows:,} ({where}): their text must be fetched from its source")
    lines += [f"no prompt: {fault}" for fault in report.unusable.first[:_SHOWN]]
    if report.unusable.rows > _SHOWN:
        lines.append(f"and {report.unusable.rows - _SHOWN:,} more rows that are no prompts")
    return lines


def _duplicates(what: str, found: Duplicates) -> list[str]:
    if not found.groups_in_all:
        return []
    more = " …" if found.groups_in_all > _SHOWN else ""
    shown = "; ".join(" = ".join(group[:_SHOWN]) for group in found.groups[:_SHOWN])
    return [f"{what}: {found.extra:,} too many in {found.groups_in_all:,} groups: {shown}{more}"]
