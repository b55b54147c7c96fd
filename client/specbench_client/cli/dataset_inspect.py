"""`specbench dataset inspect`: the contents of a prompts file, and what would weaken a benchmark with it."""

from __future__ import annotations

from pathlib import Path

import click

from specbench_api.outcome.termination import Exit
from specbench_api.spec.workload import Source
from specbench_client.cli.dataset_options import SOURCE, embed_with_progress, embedding_options
from specbench_client.cli.options import FILE, OUTPUT
from specbench_client.cli.output import print_output
from specbench_client.cli.streams import echo
from specbench_client.dataset.inspection import (
    CategoryReport,
    Distribution,
    DuplicateReport,
    InspectionReport,
    LenientRead,
    SessionReport,
    TokenCounters,
    inspect_prompts,
    read_leniently,
)
from specbench_client.dataset.prompt_entries import read_prompt_rows
from specbench_client.dataset.tokenizers import load_reference_tokenizer, load_target_tokenizer
from specbench_client.errors import BadInput
from specbench_client.report.text.text_table import TextTable
from specbench_client.workload.source_detection import shape_hint

DASH = "–"
_OPTIONAL = ("target tokens p50/p99", "similarity", "output copied p50")
"""Columns that need --tokenizer, --embeddings or outputs in the file; hidden if empty."""
COLUMNS = (
    "category", "prompts", "turns", "characters p50/p99", "o200k tokens p50/p99", "target tokens p50/p99", "similarity",
    "output copied p50",
)  # fmt: skip
_SHOWN = 5


@click.command("inspect")
@FILE
@embedding_options(required=False)
@click.option(
    "--outputs",
    metavar="COLUMN",
    help="Column with outputs to compare prompts with.  [default: output, outputs, response, reference]",
)
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    help="The file o200k_base.tiktoken, if tiktoken's cache does not have it.",
)
@click.option(
    "--tokenizer", type=click.Path(path_type=Path), help="The target's tokenizer.json, to count its tokens too."
)
@SOURCE
@OUTPUT
def dataset_inspect(
    file: Path,
    *,
    embeddings: str | None,
    model: str | None,
    api_key_env: str | None,
    outputs: str | None,
    table: Path | None,
    tokenizer: Path | None,
    source: Source | None,
    output: str,
) -> int:
    """Inspect the prompts of FILE: counts, lengths, similarity, duplicates, placeholders, overlap with outputs.

    \b
      specbench dataset inspect prompts.jsonl
      specbench dataset inspect prompts.jsonl --embeddings http://HOST:8000/v1 --model M --output json
      specbench dataset inspect logs.jsonl --outputs completion

    Lengths are in characters and in tokens of o200k_base. Rows that are not valid prompts are counted and listed.
    The exit code is 2 if a run would reject FILE: for such rows, for an id that is used twice, or without any prompt.
    Placeholders do not count, because `specbench dataset prepare` fetches their texts.
    """
    rows, declared = read_prompt_rows(file, source)
    read = read_leniently(rows, declared)
    counters = _counters(table, tokenizer)
    similar = None
    if embeddings and read.entries:
        similar = embed_with_progress(embeddings, read.entries, model, api_key_env)
    report = inspect_prompts(str(file), read, counters, similar, outputs)
    hint = shape_hint(declared.source, rows[0].columns) if rows and not report.prompts else ""
    lines = _lines(report)
    lines += [hint] if hint and hint not in lines else []
    print_output(output, report, text=lambda console: console.print_tables([_table(report)], lines))
    reasons = _rejections(report, read)
    if reasons:
        echo(f"error: {file}: a run would reject it: {'; '.join(reasons)}: correct these rows", err=True)
    return Exit.BAD_INPUT if reasons else Exit.OK


def _rejections(report: InspectionReport, read: LenientRead) -> list[str]:
    """Return why a run would reject the file; empty if it would not."""
    invalid = len(read.faults) - read.left_out
    reasons = [f"{invalid:,} of {report.rows:,} rows are not valid prompts"] if invalid else []
    reasons += [f"ids used twice: {', '.join(report.duplicate_ids)}"] if report.duplicate_ids else []
    empty = not report.prompts and not report.placeholders.rows
    return reasons or (["no row is a valid prompt"] if empty else [])


def _counters(table: Path | None, tokenizer: Path | None) -> TokenCounters:
    """Return the token counters. A missing table is an error if it was given, else the report states it."""
    target = load_target_tokenizer(tokenizer)[0] if tokenizer else None
    try:
        reference = load_reference_tokenizer(table)
    except BadInput as error:
        if table is not None:
            raise
        return TokenCounters(None, target, str(error))
    return TokenCounters(lambda text: len(reference.encode_ordinary(text)), target)


def _table(report: InspectionReport) -> TextTable:
    title = f"{report.file}: {report.rows:,} rows, {report.prompts:,} prompts, {report.turns:,} turns"
    rows = [_cells(category) for category in [*report.categories, report.overall]]
    shown = [at for at, head in enumerate(COLUMNS) if head not in _OPTIONAL or any(row[at] != DASH for row in rows)]
    columns, cells = [COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows]
    return TextTable(title, columns, cells, words=COLUMNS[:1])


def _cells(category: CategoryReport) -> list[str]:
    lengths = category.lengths
    return [
        category.category, f"{category.prompts:,}", f"{category.turns:,}",
        *(_both(spread) for spread in (lengths.characters, lengths.o200k_tokens, lengths.target_tokens)),
        DASH if category.similarity is None else f"{category.similarity:.3f}",
        f"{category.copied_share.p50:.2f}" if category.copied_share else DASH,
    ]  # fmt: skip


def _both(spread: Distribution | None) -> str:
    return f"{spread.p50:,.0f}/{spread.p99:,.0f}" if spread else DASH


def _lines(report: InspectionReport) -> list[str]:
    lines = [_sessions(report.sessions)] if report.sessions else []
    if report.embeddings:
        lines.append(f"similarity: mean cosine over all pairs, by {report.embeddings}")
    if report.overall.lengths.reason:
        lines.append(f"no o200k tokens: {report.overall.lengths.reason}")
    lines += _duplicates("exact duplicates", report.exact_duplicates)
    lines += _duplicates("near duplicates", report.near_duplicates)
    if report.duplicate_ids:
        lines.append(f"ids used twice: {', '.join(report.duplicate_ids)}")
    placeholders = report.placeholders
    if placeholders.rows:
        where = ", ".join(
            f"{name} {count:,}" for name, count in (placeholders.by_source or placeholders.by_category).items()
        )
        lines.append(
            f"placeholders: {placeholders.rows:,} ({where}): fetch their texts with `specbench dataset prepare`"
        )
    shown = [fault.split("\n") for fault in report.unusable.first[:_SHOWN]]
    lines += [f"not a valid prompt: {problem}" for problem, *_ in shown]
    if report.unusable.rows > _SHOWN:
        lines.append(f"and {report.unusable.rows - _SHOWN:,} more rows that are not valid prompts")
    # The remedy, which rows with the same problem share.
    return lines + list(dict.fromkeys(remedy for _, *remedies in shown for remedy in remedies))


def _sessions(found: SessionReport) -> str:
    return (
        f"sessions: {found.sessions:,} with {found.requests:,} requests, {found.overlapping:,} of them in flight"
        f" together with earlier ones; {found.tool_results:,} tool results; waits {found.waited_s:,.0f} s;"
        f" {found.reusable_share:.0%} of the characters can be reused from earlier requests"
    )


def _duplicates(label: str, found: DuplicateReport) -> list[str]:
    if not found.groups_in_all:
        return []
    more = " …" if found.groups_in_all > _SHOWN else ""
    shown = "; ".join(" = ".join(group[:_SHOWN]) for group in found.groups[:_SHOWN])
    return [f"{label}: {found.extra:,} redundant in {found.groups_in_all:,} groups: {shown}{more}"]
